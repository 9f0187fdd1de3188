"""Proved bounds for many pieces of one region at once.

A piece is a part of the input region (its intersection with a box) on which some neurons may be confined to
intervals. The bound of a piece holds for ‖W_N D_{N-1} … D_1 W_1‖ with every slope matrix that its intervals allow,
hence for the Jacobian at every input of the piece. The largest over pieces that cover a convex region bounds the
Lipschitz constant there. Pieces go through the sweep as a stack of regions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np

from lipcert.kernel.domain import Domain, corners
from lipcert.kernel.guide import Guide, View
from lipcert.kernel.hints import Hints, Interval, Linear
from lipcert.kernel.induced import induced_above, spectral_factor
from lipcert.kernel.interval_arithmetic import activated, affine, derivatives
from lipcert.kernel.near import Near
from lipcert.kernel.norm_bounds import interval_bounds
from lipcert.kernel.passes import intervals
from lipcert.kernel.pieces import Bounds, Pieces
from lipcert.kernel.rays import along_rays, hints_along, only_at_infinity
from lipcert.kernel.rounding import inflate
from lipcert.kernel.sweep import Sweep, proving
from lipcert.kernel.taylor import Second, SecondOrder, curved, deep
from lipcert.kernel.tree import children
from lipcert.model.arrays import Array, frozen
from lipcert.model.network import Network, Neurons
from lipcert.model.norms import PLAIN, LInf, Norms
from lipcert.model.regions import Ball, Region
from lipcert.suggest.lines import suggested_lines
from lipcert.suggest.multipliers import advised, closed_form, from_relative
from lipcert.suggest.orders import kinked, mostly_below, patience

_STUCK = 0.9
"""A piece whose bound is above this share of the bound of the one it is part of is swept again, with its own hints."""
_SLACK = 2.0**-40
"""Share of the sizes that are added up, by which sums in another order may differ."""
_NONE = np.zeros(1, dtype=bool)
_WATCHED = 8
"""Layers of a deep network whose neurons tell where to cut; those that follow hardly move."""
_HALVINGS = 12
"""Of the search that makes a support function sharp; it is good to a thousandth then."""


class Bounding(ABC):
    """Proves values of pieces of one region, for one network: each is at least what it bounds, all over the piece.

    What ``sweeps`` prove of the whole region serves its parts; it is not proved again if it is ``remembered``.

    Attributes
    ----------
    asked : the digest of the network, and the region, that the values are about.
    norms, start : in which Lipschitz bounds are, and what their sweeps begin with.
    moving : how many inputs move, the first ones; None is all.
    rows : how many values each piece has.
    least : the value of a piece without inputs.
    slack : (rows,), what another order of sums may change of a value, at least about.
    """

    least: ClassVar[float] = 0.0
    moving: int | None = None
    norms: Norms = PLAIN
    start: Array | None = None

    def __init__(
        self, network: Network, region: Region, sweeps: Sequence[Hints], rows: int, remembered: bool = False
    ) -> None:
        self.network, self.region, self.sweeps, self.rows = network, region, tuple(sweeps), rows
        self.asked = network.digest, region
        sizes = network.sizes[1:-1]
        self.starts = frozen(np.cumsum([0, *sizes]))
        self.slices = [slice(start, stop) for start, stop in pairwise(self.starts)]
        self.slopes: list[Interval] = []
        self.slack = np.zeros(rows)
        known = intervals(network, region, sweeps, remembered)
        unknown = np.full((1, sum(sizes)), np.inf)
        low, high = -unknown, unknown
        if known:
            low, high = (np.concatenate(side, axis=-1) for side in zip(*known, strict=True))
        lower, upper = corners(region)
        self.deep = deep(network)
        self.watched = int(self.starts[min(_WATCHED, len(sizes)) if self.deep else len(sizes)])
        self.curved: SecondOrder | None = None
        if curved(network):
            self.curved = SecondOrder(network, region.center)
        self.root = Pieces(lower[None], upper[None], low, high, np.zeros((1, 0)), np.full((1, rows), np.inf), _NONE)

    def bound(self, pieces: Pieces) -> Bounds:
        """Prove the values of each piece, to second order where slopes are curved, and to first order.

        Intervals of a deep network would take much memory; to second order they are soon found again.
        """
        if self.curved is None:
            return self.to_first_order(pieces)
        found = self.passed(pieces, np.zeros((len(pieces), min(self.watched, pieces.hints.shape[-1]))))
        inside = np.flatnonzero((found.values > self.least).any(axis=-1))
        if inside.size:
            _put(found, inside, self._curved(self.curved, pieces.take(inside)))
        return found

    def passed(self, pieces: Pieces, shares: Array) -> Bounds:
        """What is known of pieces without a bound of their own: it was proved of those that they are part of."""
        columns = pieces.ceiling, pieces.low, pieces.high, pieces.hints, shares, pieces.second
        found = Bounds(*(np.array(column) for column in columns))
        with proving():
            found.values[self.domain(pieces).outside()] = self.least
        return found

    def _curved(self, curved: SecondOrder, pieces: Pieces) -> Bounds:
        """The values of pieces that may have an input, to second order and, where that pays, to first order."""
        with proving():
            second = curved.bound(pieces.lower, pieces.upper, self.layers(pieces.low), self.layers(pieces.high))
        values = np.fmin(self.to_second_order(second), pieces.ceiling)
        values[second.empty] = self.least
        shares = second.shares if pieces.hints.shape[-1] else np.zeros(pieces.hints.shape)
        low, high = (np.array(pieces.low), np.array(pieces.high)) if self.deep else (second.low, second.high)
        shares = shares[:, : self.watched]
        found = Bounds(values, low, high, np.array(pieces.hints), shares, np.array(pieces.second))
        rest = np.flatnonzero(~pieces.second & ~second.empty)
        if rest.size:
            first = self.to_first_order(replace(pieces, low=second.low, high=second.high).take(rest))
            soon = self.soon(second.take(rest), first.values)
            soon = soon & ~kinked(self.network, self.layers(first.low), self.layers(first.high))
            better = np.asarray((values[rest] < first.values).any(axis=-1))
            shares = np.where(better[:, None], shares[rest], first.open[:, : self.watched])
            _put(found, rest, replace(first, values=np.fmin(first.values, values[rest]), open=shares, second=soon))
        return found

    @abstractmethod
    def to_first_order(self, pieces: Pieces) -> Bounds:
        """Prove the values of each piece from the slopes that its intervals allow."""

    @abstractmethod
    def to_second_order(self, second: Second) -> Array:
        """The values of pieces that are known to second order, (count, rows)."""

    def soon(self, second: Second, first: Array) -> Array:
        """Whether values of smaller pieces will be better to second order, seeing what it costs; advice only."""
        return mostly_below(self.to_second_order(second), first)

    def is_void(self, piece: Pieces, weights: Array) -> bool:
        """Whether weights (neurons,) prove that no input of one piece has its neurons inside their intervals."""
        return False

    def begin(self, first: Sweep, hints: Array) -> None:
        """Take what a sweep proves of the whole region for granted from now on."""
        low, high = ends(first)
        self.slopes = first.slopes
        self.root = Pieces(self.root.lower, self.root.upper, low, high, hints, self.root.ceiling, _NONE).copy()

    def sweep(self, pieces: Pieces, guide: Guide, enclose: bool = True) -> Sweep:
        """A sweep over pieces, that has not been run."""
        known = list(zip(self.layers(pieces.low), self.layers(pieces.high), strict=True))
        if self.slopes:  # then the root is known
            all_of_it = zip(known, self.layers(self.root.low), self.layers(self.root.high), strict=True)
            known = [(np.maximum(low, least), np.minimum(high, most)) for (low, high), least, most in all_of_it]
        domain, given = self.domain(pieces), (guide, known, self.slopes, True, enclose)
        return Sweep(self.network, domain, *given, inputs=self.moving, norms=self.norms, start=self.start)

    def domain(self, pieces: Pieces) -> Domain:
        """Where the inputs of pieces lie."""
        if isinstance(self.region, Ball) and not isinstance(self.region.norm, LInf):
            center = np.broadcast_to(self.region.center, pieces.lower.shape)
            radius = np.full(len(pieces), float(self.region.radius))
        else:
            center, radius = 0.5 * pieces.lower + 0.5 * pieces.upper, None
        found = Domain(center, radius, pieces.lower, pieces.upper, _HALVINGS, rays=self.moving is not None)
        return found if radius is None or not isinstance(self.region, Ball) else found.measured([self.region])

    def halves(self, pieces: Pieces, layer: Array, index: Array, value: Array) -> Pieces:
        """The two halves of each piece, one after the other, no larger than what they have of the region."""
        found = children(pieces, self.starts, layer, index, value)
        lower, upper = self.domain(found).inner_box()
        return replace(found, lower=lower, upper=upper)

    def layers(self, values: Array) -> list[Array]:
        """Values of all hidden neurons in a row (count, neurons), per layer."""
        return [values[:, part] for part in self.slices]


class PieceBounds(Bounding):
    """Lipschitz bounds of pieces, one row; the multipliers of the last of the sweeps serve them too.

    Pieces of all of space are pieces of a box of rays: see :mod:`lipcert.kernel.rays`.
    """

    def __init__(
        self,
        network: Network,
        region: Region,
        sweeps: Sequence[Hints] = (),
        norms: Norms = PLAIN,
        remembered: bool = False,
    ) -> None:
        self.norms = norms
        if norms.input.name == "linf":
            start = sweeps[-1].start if sweeps else None
            self.start = np.ones(network.inputs) if start is None else start
        if region.bounded:
            super().__init__(network, region, sweeps, 1, remembered)
        else:
            self.moving = network.inputs
            super().__init__(*along_rays(network), (), 1)
            self.asked, self.sweeps = (network.digest, region), hints_along(sweeps)
        with proving():
            first = self.sweep(self.root, _absolute(self.sweeps[-1] if self.sweeps else None)).run()
            self.begin(first, self._found(first)[2])
        self.patience = 1.0
        if self.curved is not None and not self.deep:
            self.patience = patience(self.network, self.region, float(self._values(first)[0]))

    def to_second_order(self, second: Second) -> Array:
        if self.norms.plain:
            return second.bounds[:, None]
        rows, columns = self.network.outputs, self.moving or self.network.inputs
        sizes = second.entries[..., :columns]
        found = induced_above(Near(np.zeros(sizes.shape), sizes), self.norms)
        factor = spectral_factor(self.norms, rows, columns)
        return np.fmin(_usable(found), inflate(second.bounds * factor, 1))[:, None]

    def soon(self, second: Second, first: Array) -> Array:
        if not self.norms.plain:
            return super().soon(second, first)
        late = second.bounds - second.near > self.patience * (first[:, 0] - second.near)
        return np.asarray(~late | self.deep)

    def to_first_order(self, pieces: Pieces) -> Bounds:
        """At least ‖W_N D_{N-1} … D_1 W_1‖ for all slopes that the intervals of each piece allow."""
        ceiling = pieces.ceiling[:, 0]
        with proving():
            sweep = self.sweep(pieces, _relative(self.layers(pieces.hints))).run()
            bound = self._values(sweep)
            low, high, hints, shares = self._found(sweep, advise=True)
            stuck = np.flatnonzero((bound > _STUCK * ceiling) & ~sweep.empty)
            if stuck.size:
                some = replace(pieces, low=low, high=high, hints=hints).take(stuck)
                again = self.sweep(some, _relative(self.layers(some.hints)), enclose=False).run()
                other = self._values(again)
                better = other < bound[stuck]
                _, _, more, blame = self._found(again, advise=True)
                for old, new in ((bound, other), (hints, more), (shares, blame)):
                    old[stuck[better]] = new[better]
        bound = np.where(sweep.empty, self.least, np.minimum(bound, ceiling))
        return Bounds(bound[:, None], low, high, hints, shares, np.zeros(len(pieces), dtype=bool))

    def is_void(self, piece: Pieces, weights: Array) -> bool:
        """Prove that no input of one piece has its neurons inside their intervals, by weights λ (neurons,).

        The intervals ask for λ·v ≥ Σ λ_j (low_j where λ_j > 0, else high_j); back-substitution bounds λ·v from above.
        """
        with proving():
            sweep = self.sweep(piece, _relative(self.layers(piece.hints))).run(needs_bound=False)
            if sweep.empty[0]:
                return True
            low, high = piece.low[0], piece.high[0]
            asked = np.where(weights > 0.0, weights * low, np.where(weights < 0.0, weights * high, 0.0))
            least = Near.rounded(asked.sum(), np.abs(asked).sum(), len(asked) + 1).below
            extra = [weights[None, part] for part in self.slices]
            rows = np.zeros((1, self.network.sizes[-2]))
            above = sweep.traces[0].above(len(extra), np.zeros(1, dtype=int), rows, extra)
            if above[0] < least or self.moving is None:
                return bool(above[0] < least)
            return only_at_infinity(
                self.network, [(low[part], high[part]) for part in self.slices], [row[0] for row in extra]
            )

    def _values(self, sweep: Sweep) -> Array:
        """The bounds that a sweep proves, (count,)."""
        found = _usable(sweep.bounds)
        return found if self.norms.plain else np.fmin(found, _usable(interval_bounds(sweep)))

    def _found(self, sweep: Sweep, advise: bool = False) -> tuple[Array, Array, Array, Array]:
        """Intervals that were proved, hints for the parts of each piece, and the shares of the neurons."""
        low, high = ends(sweep)
        return low, high, *advised(sweep, advise)


def _put(found: Bounds, where: Array, some: Bounds) -> None:
    """Write the rows of some pieces where they belong."""
    for column in fields(Bounds):
        getattr(found, column.name)[where] = getattr(some, column.name)


def ends(sweep: Sweep) -> Interval:
    """The intervals of all hidden neurons in a row, (count, neurons)."""
    blank = np.zeros((sweep.count, 0))
    low, high = (np.concatenate([blank, *(pair[k] for pair in sweep.intervals)], axis=-1) for k in (0, 1))
    return low, high


def _usable(bounds: Array) -> Array:
    return np.where(np.isnan(bounds), np.inf, bounds)


class _Hinted(Guide):
    """Multipliers as they are hinted for a view, (count, k), a closed form where there is none; lines of least area."""

    enclosures = (Linear(depth=None),)

    def __init__(self, hint: Callable[[View], Array]) -> None:
        self.hint = hint

    def multipliers(self, view: View) -> Array:
        r, m, T = 0.5 * (view.beta - view.alpha), 0.5 * (view.alpha + view.beta), self.hint(view)
        missing = (T <= 0.0) & (r > 0.0)
        return np.where(missing, closed_form(view.S, m, r, view.ahead, view.neurons), T) if missing.any() else T

    def lines(self, which: int, index: int, neurons: Neurons, numbers: Array, interval: Interval) -> Interval:
        return suggested_lines(neurons, interval)


def _relative(layers: list[Array]) -> _Hinted:
    """By log2(T/(r² S_jj)) per layer, (count, neurons), which also serves a part whose S is far smaller."""
    return _Hinted(
        lambda view: from_relative(layers[view.index], 0.5 * (view.beta - view.alpha), view.variance, view.narrow)
    )


def _absolute(hints: Hints | None) -> _Hinted:
    """By the multipliers of a sweep over the whole region, where there are such."""

    def hint(view: View) -> Array:
        T = np.zeros((1, view.size))
        if hints is not None and view.index < len(hints.multipliers):
            T[0] = np.ldexp(hints.multipliers[view.index], 2 * (hints.exponents[view.index] - view.exponent[0]))
        return view.narrow(T)

    return _Hinted(hint)


class RowBounds(Bounding):
    """Values of pieces that follow from their intervals: how large outputs, or entries of the Jacobian, are there.

    Intervals come from linear relaxation, whose error shrinks with the square of a piece where activations are smooth;
    no ellipsoid is carried.
    """

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
