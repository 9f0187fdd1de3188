"""Proved bounds for many pieces of one region at once.

A piece is a part of the input region (its intersection with a box) on which some neurons may be confined to
intervals. The bound of a piece holds for ‖W_N D_{N-1} … D_1 W_1‖ with every slope matrix that its intervals allow,
hence for the Jacobian at every input of the piece. The largest over pieces that cover a convex region bounds the
Lipschitz constant there. Pieces go through the sweep as a stack of regions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from lipcert.model.arrays import Array, frozen
from lipcert.model.network import Network, Neurons
from lipcert.model.regions import Ball, Region
from lipcert.proof.domain import Domain, corners
from lipcert.proof.guide import Guide, View, suggested_lines
from lipcert.proof.hints import Hints, Interval, Linear
from lipcert.proof.pieces import Bounds, Pieces
from lipcert.proof.rounding import TINY, UP, gamma
from lipcert.proof.suggest.multipliers import advice, closed_form, directions, matters
from lipcert.proof.sweep import Sweep, intervals, proving

_STUCK = 1.05
"""Hints that make a piece so much worse than the one it is part of were made for other slopes."""
_HALVINGS = 12
"""Of the search that makes a support function sharp; it is good to a thousandth then."""


class Bounding(ABC):
    """Proves values of pieces of one region, for one network: each is at least what it bounds, all over the piece.

    What ``sweeps`` prove of the whole region serves its parts.

    Attributes
    ----------
    rows : how many values each piece has.
    least : the value of a piece without inputs.
    slack : (rows,), what another order of sums may change of a value, at least about.
    """

    least: ClassVar[float] = 0.0

    def __init__(self, network: Network, region: Region, sweeps: Sequence[Hints], rows: int) -> None:
        self.network, self.region, self.sweeps, self.rows = network, region, tuple(sweeps), rows
        sizes = network.sizes[1:-1]
        self.starts = frozen(np.cumsum([0, *sizes]))
        self.slices = [slice(start, stop) for start, stop in pairwise(self.starts)]
        self.slopes: list[Interval] = []
        self.slack = np.zeros(rows)
        known = intervals(network, region, sweeps)
        unknown = np.full((1, sum(sizes)), np.inf)
        low, high = -unknown, unknown
        if known:
            low, high = (np.concatenate(side, axis=-1) for side in zip(*known, strict=True))
        lower, upper = corners(region)
        self.root = Pieces(lower[None], upper[None], low, high, np.zeros((1, 0)), np.full((1, rows), np.inf))

    @abstractmethod
    def bound(self, pieces: Pieces) -> Bounds:
        """Prove the values of each piece."""

    def is_void(self, piece: Pieces, weights: Array) -> bool:
        """Whether weights (neurons,) prove that no input of one piece has its neurons inside their intervals."""
        return False

    def begin(self, first: Sweep, hints: Array) -> None:
        """Take what a sweep proves of the whole region for granted from now on."""
        low, high = ends(first)
        self.slopes = first.slopes
        self.root = Pieces(self.root.lower, self.root.upper, low, high, hints, self.root.ceiling).copy()

    def sweep(self, pieces: Pieces, guide: Guide, enclose: bool = True) -> Sweep:
        """A sweep over pieces, that has not been run."""
        known = list(zip(self.layers(pieces.low), self.layers(pieces.high), strict=True))
        if self.slopes:  # then the root is known
            all_of_it = zip(known, self.layers(self.root.low), self.layers(self.root.high), strict=True)
            known = [(np.maximum(low, least), np.minimum(high, most)) for (low, high), least, most in all_of_it]
        count = len(pieces.lower)
        if isinstance(self.region, Ball):
            center = np.broadcast_to(self.region.center, pieces.lower.shape)
            radius = np.full(count, float(self.region.radius))
        else:
            center, radius = 0.5 * pieces.lower + 0.5 * pieces.upper, None
        domain = Domain(center, radius, pieces.lower, pieces.upper, _HALVINGS)
        return Sweep(self.network, domain, guide, known, self.slopes, pieces=True, enclose=enclose)

    def layers(self, values: Array) -> list[Array]:
        """Values of all hidden neurons in a row (count, neurons), per layer."""
        return [values[:, part] for part in self.slices]


class PieceBounds(Bounding):
    """Lipschitz bounds of pieces, one row; the multipliers of the last of the sweeps serve them too."""

    def __init__(self, network: Network, region: Region, sweeps: Sequence[Hints] = ()) -> None:
        super().__init__(network, region, sweeps, 1)
        with proving():
            first = self.sweep(self.root, _Absolute(self.sweeps[-1] if self.sweeps else None)).run()
            self.begin(first, self._found(first)[2])

    def bound(self, pieces: Pieces) -> Bounds:
        """At least ‖W_N D_{N-1} … D_1 W_1‖ for all slopes that the intervals of each piece allow."""
        ceiling = pieces.ceiling[:, 0]
        with proving():
            sweep = self.sweep(pieces, _Relative(self.layers(pieces.hints))).run()
            bound = _usable(sweep.bounds)
            low, high, hints, shares = self._found(sweep, advise=True)
            stuck = np.flatnonzero((bound > _STUCK * ceiling) & ~sweep.empty)
            if stuck.size:  # hints that were made for other slopes: ask without them
                blank = np.full(pieces.hints[stuck].shape, -np.inf)
                some = Pieces(
                    pieces.lower[stuck], pieces.upper[stuck], low[stuck], high[stuck], blank, pieces.ceiling[stuck]
                )
                again = self.sweep(some, _Relative(self.layers(blank)), enclose=False).run()
                other = _usable(again.bounds)
                better = other < bound[stuck]
                _, _, more, blame = self._found(again, advise=True)
                for old, new in ((bound, other), (hints, more), (shares, blame)):
                    old[stuck[better]] = new[better]
        bound = np.where(sweep.empty, self.least, np.minimum(bound, ceiling))
        return Bounds(bound[:, None], low, high, hints, shares)

    def is_void(self, piece: Pieces, weights: Array) -> bool:
        """Prove that no input of one piece has its neurons inside their intervals, by weights λ (neurons,).

        The intervals ask for λ·v ≥ Σ λ_j (low_j where λ_j > 0, else high_j); back-substitution bounds λ·v from above.
        """
        with proving():
            sweep = self.sweep(piece, _Relative(self.layers(piece.hints))).run(needs_bound=False)
            if sweep.empty[0]:
                return True
            low, high = piece.low[0], piece.high[0]
            asked = np.where(weights > 0.0, weights * low, np.where(weights < 0.0, weights * high, 0.0))
            least = asked.sum() - gamma(len(weights) + 2) * UP * np.abs(asked).sum() - TINY
            extra = [weights[None, part] for part in self.slices]
            rows = np.zeros((1, self.network.sizes[-2]))
            above = sweep.traces[0].above(len(extra), np.zeros(1, dtype=int), rows, extra)
            return bool(above[0] < least)

    def _found(self, sweep: Sweep, advise: bool = False) -> tuple[Array, Array, Array, Array]:
        """Intervals that were proved, hints for the parts of each piece, and the shares of the neurons.

        A share estimates T_j a_j² over the squared bound, a the direction in which the bound is attained.
        """
        blank, (low, high) = np.zeros((sweep.count, 0)), ends(sweep)
        hints: list[Array] = []
        shares: list[Array] = []
        square = np.maximum(sweep.bounds, TINY)[:, None]
        back = directions(sweep.S) if advise else np.zeros((sweep.count, 0, self.network.outputs))
        for view, step, (alpha, beta) in zip(sweep.views[::-1], sweep.steps[::-1], sweep.slopes[::-1], strict=True):
            a = view.weight.pull(back)
            open_ = step.h > 0.0
            r = np.take_along_axis(view.narrow(0.5 * (beta - alpha)), step.active, -1)
            scale = view.scale
            T = step.lifted / (step.g * step.g)
            current = np.log2(T / r) - np.log2(scale)[:, None]
            change, arrived, pushed, back = advice(a, step.m, step.active, step.h, step.L, step.X, current, scale)
            unit = np.exp2(view.exponent)[:, None] / square
            blame = np.nan_to_num(T * arrived * unit * unit, posinf=0.0) + TINY
            change = np.where(matters(blame + pushed * unit * unit), change, 0.0)
            for found, values, empty in ((hints, current + change, -np.inf), (shares, blame, 0.0)):
                full = np.full(step.m.shape, empty)
                np.put_along_axis(full, step.active, np.where(open_ & ~np.isnan(values), values, empty), -1)
                found.append(_wide(view, full, empty))
            back = _wide(view, back, 0.0)
        hint, share = (np.concatenate([blank, *found[::-1]], axis=-1) for found in (hints, shares))
        return low, high, hint, share


def ends(sweep: Sweep) -> Interval:
    """The intervals of all hidden neurons in a row, (count, neurons)."""
    blank = np.zeros((sweep.count, 0))
    low, high = (np.concatenate([blank, *(pair[k] for pair in sweep.intervals)], axis=-1) for k in (0, 1))
    return low, high


def _wide(view: View, values: Array, empty: float) -> Array:
    """Values (count, ..., k) of what is kept, as values of the layer's neurons."""
    if view.neurons is None:
        return values
    full = np.full((*values.shape[:-1], view.size), empty)
    where = view.neurons if values.ndim == 2 else np.broadcast_to(view.neurons[:, None, :], values.shape)
    np.put_along_axis(full, where, values, -1)
    return full


def _usable(bounds: Array) -> Array:
    return np.where(np.isnan(bounds), np.inf, bounds)


@dataclass(frozen=True, eq=False)
class _Relative(Guide):
    """Hints log2(T/(r·scale)) per layer, (count, neurons), so that they also serve a part whose S is far smaller.

    Where there is none, a closed form.
    """

    layers: list[Array]
    enclosures = (Linear(depth=None),)

    def multipliers(self, view: View) -> Array:
        r, m = 0.5 * (view.beta - view.alpha), 0.5 * (view.alpha + view.beta)
        hint = view.narrow(np.where(np.isfinite(self.layers[view.index]), self.layers[view.index], -2000.0))
        T = np.exp2(hint) * view.scale[:, None] * r
        missing = (T <= 0.0) & (r > 0.0)
        return np.where(missing, closed_form(view.S, m, r, view.ahead, view.neurons), T) if missing.any() else T

    def lines(self, which: int, index: int, neurons: Neurons, numbers: Array, interval: Interval) -> Interval:
        return suggested_lines(neurons, interval)


@dataclass(frozen=True, eq=False)
class _Absolute(Guide):
    """The multipliers of a sweep over the whole region, where there are such."""

    hints: Hints | None
    enclosures = (Linear(depth=None),)

    def multipliers(self, view: View) -> Array:
        r, m = 0.5 * (view.beta - view.alpha), 0.5 * (view.alpha + view.beta)
        T = np.zeros((1, view.size))
        if self.hints is not None and view.index < len(self.hints.multipliers):
            power = 2 * (self.hints.exponents[view.index] - view.exponent[0])
            T[0] = np.ldexp(self.hints.multipliers[view.index], power)
        T = view.narrow(T)
        return np.where((T <= 0.0) & (r > 0.0), closed_form(view.S, m, r, view.ahead, view.neurons), T)

    def lines(self, which: int, index: int, neurons: Neurons, numbers: Array, interval: Interval) -> Interval:
        return suggested_lines(neurons, interval)
