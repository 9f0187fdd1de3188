"""Proved values of pieces other than Lipschitz bounds: how large outputs, or entries of the Jacobian, are there.

Intervals of the pieces come from linear relaxation, whose error shrinks with the square of a piece where activations
are smooth; no ellipsoid is carried.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lipcert.model.arrays import Array
from lipcert.model.network import Network, Neurons
from lipcert.model.regions import Region
from lipcert.proof.guide import Guide, View
from lipcert.proof.hints import Hints, Interval, Linear
from lipcert.proof.interval_arithmetic import activated, affine, derivatives
from lipcert.proof.piece_bounds import Bounding, ends
from lipcert.proof.pieces import Bounds, Pieces
from lipcert.proof.sweep import Sweep, proving
from lipcert.proof.taylor import Second
from lipcert.suggest.lines import suggested_lines

_SLACK = 2.0**-40
"""Share of the sizes that are added up, by which sums in another order may differ."""


class RowBounds(Bounding):
    """Values of pieces that follow from their intervals."""

    def __init__(self, network: Network, region: Region, sweeps: Sequence[Hints], rows: int) -> None:
        super().__init__(network, region, sweeps, rows)
        with proving():
            first = self.sweep(self.root, RowLines()).run(needs_bound=False)
            self.begin(first, np.zeros((1, 0)))
            self.slack = _SLACK * self.sizes(first)

    def to_first_order(self, pieces: Pieces) -> Bounds:
        """The least of what is proved of each piece and of the piece that it is part of."""
        with proving():
            sweep = self.sweep(pieces, RowLines()).run(needs_bound=False)
            values = np.fmin(self.found(sweep), pieces.ceiling)
        values[sweep.empty] = self.least
        blank = np.zeros((len(pieces), 0))
        return Bounds(values, *ends(sweep), blank, blank, np.zeros(len(pieces), dtype=bool))

    @abstractmethod
    def found(self, sweep: Sweep) -> Array:
        """The values of the pieces of a sweep, (count, rows); NaN proves nothing."""

    @abstractmethod
    def sizes(self, sweep: Sweep) -> Array:
        """About how large the numbers are that are added up, (rows,)."""


class OutputRows(RowBounds):
    """Outputs: row i is at least v_i, row outputs + i at least -v_i, all over a piece."""

    least = -np.inf

    def __init__(self, network: Network, region: Region, sweeps: Sequence[Hints] = ()) -> None:
        super().__init__(network, region, sweeps, 2 * network.outputs)

    def to_second_order(self, second: Second) -> Array:
        return second.outputs

    def found(self, sweep: Sweep) -> Array:
        eye = np.eye(self.network.outputs)
        above = sweep.traces[0].above_outputs(np.concatenate([eye, -eye]))
        lower, upper = affine(self.network.layers[-1], self._before(sweep))
        return np.fmin(above, np.concatenate([upper, -lower], axis=-1))

    def sizes(self, sweep: Sweep) -> Array:
        lower, upper = affine(self.network.layers[-1], self._before(sweep))
        return np.tile(np.maximum(np.abs(lower), np.abs(upper))[0], 2)

    def _before(self, sweep: Sweep) -> Interval:
        """Where the values lie that enter the last layer."""
        assert sweep.domain is not None
        if not sweep.intervals:
            assert sweep.domain.lower is not None
            assert sweep.domain.upper is not None
            return sweep.domain.lower, sweep.domain.upper
        neurons = self.network.layers[-2].neurons
        assert neurons is not None
        return activated(neurons, sweep.intervals[-1])


class JacobianEntries(RowBounds):
    """Sizes of the entries of W_N D_{N-1} … D_1 W_1 for all slopes of a piece, (outputs · inputs), row by row."""

    def __init__(self, network: Network, region: Region, sweeps: Sequence[Hints] = ()) -> None:
        super().__init__(network, region, sweeps, network.outputs * network.inputs)

    def to_second_order(self, second: Second) -> Array:
        return second.entries.reshape(len(second.entries), -1)

    def found(self, sweep: Sweep) -> Array:
        sizes = derivatives(self.network, sweep.slopes)
        return np.array(np.broadcast_to(sizes.reshape(len(sizes), -1), (sweep.count, self.rows)))

    def sizes(self, sweep: Sweep) -> Array:
        return np.asarray(self.found(sweep)[0])


@dataclass(frozen=True, eq=False)
class RowLines(Guide):
    """Lines of least area where the activation has kinks, else two parallel ones, which take less time to find."""

    enclosures = (Linear(depth=None),)

    def multipliers(self, view: View) -> Array:
        return np.zeros(view.alpha.shape)

    def lines(self, which: int, index: int, neurons: Neurons, numbers: Array, interval: Interval) -> Interval:
        if any(row.row.kinks or np.isfinite(row.row.period) for row, _ in neurons.groups):
            return suggested_lines(neurons, interval)
        width = interval[1] - interval[0]
        rise = neurons.value(interval[1]) - neurons.value(interval[0])
        chord = np.divide(rise, width, out=np.zeros(width.shape), where=width > 0.0)
        return chord, chord
