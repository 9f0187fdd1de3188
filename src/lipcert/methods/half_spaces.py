"""Cells of all of space: the half-spaces that cuts of neurons are, points inside, multipliers where there are none.

For half-spaces g·x ≥ h let λ ≥ 0 make r = (Σ λ g, Σ λ h - 1) as small as possible. If r is zero, no point is in all of
them; else r is a multiple of (x, -1), and x is the point of them all that is nearest to zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lipcert.model.arrays import Array, Interval, dense
from lipcert.model.network import Network

_FAINT = 1e-9
"""Multipliers below this share of the largest, and what is left of an equation below it, are taken for zero."""
_MARGINS = (1e-1, 1e-2, 1e-4, 1e-6, 1e-8)
"""How deep inside a cell a point is looked for, relative to how far its planes are from zero."""


@dataclass(eq=False)
class Cell:
    """Where hidden neurons keep to intervals: those of the layers up to the first with open slopes, in a row (k,).

    Their pre-activations are A x + c. The half-spaces g·x ≥ h, |g| = 1, are of neurons j by their lower ends, and of ~j
    by their upper ends; a constant neuron has g = 0.
    """

    network: Network
    intervals: list[Interval]
    marks: list[tuple[int, float]] = field(default_factory=list)
    """The open neurons, with their kinks inside their intervals."""

    def __post_init__(self) -> None:
        A, c, begin = np.eye(self.network.inputs), np.zeros(self.network.inputs), 0
        parts = []
        for layer, (low, high) in zip(self.network.layers, self.intervals, strict=False):
            assert layer.neurons is not None
            weight = dense(layer.weight)
            A, c = weight @ A, weight @ c + layer.bias
            alpha, beta = layer.neurons.slope_range(low, high)
            parts.append((A, c, low, high))
            if (alpha < beta).any():
                for row, index in layer.neurons.groups:
                    for mark, inside in row.knots_inside(low[index], high[index]):
                        some = np.flatnonzero(inside & (alpha < beta)[index])
                        self.marks += [(begin + int(index[k]), float(mark[k])) for k in some]
                break
            at = np.clip(0.0, low, high)
            A, c = alpha[:, None] * A, alpha * c + (layer.neurons.value(at) - alpha * at)
            begin += layer.size
        self.A, self.c, self.low, self.high = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        length = np.linalg.norm(self.A, axis=1)
        self.length = np.where(length > 0.0, length, 1.0)
        below, above = np.flatnonzero(np.isfinite(self.low)), np.flatnonzero(np.isfinite(self.high))
        self.names = np.concatenate([below, ~above])
        self.g, self.h = self._sides(self.names, np.concatenate([self.low[below], self.high[above]]))
        self.scale = float(np.abs(self.h).max(initial=0.0)) or 1.0

    def _sides(self, names: Array, ends: Array) -> tuple[Array, Array]:
        """The half-spaces v_j ≥ end, or v_j ≤ end for ~j."""
        j = np.maximum(names, ~names)
        sign = np.where(names >= 0, 1.0, -1.0) / self.length[j]
        return sign[:, None] * self.A[j], sign * (ends - self.c[j])

    def holds(self, x: Array) -> bool:
        """Whether a point is inside."""
        v = self.A @ x + self.c
        return bool(((self.low < v) & (v < self.high)).all())

    def inside(self) -> Array | None:
        """A point that is inside, as deep as can be found."""
        for margin in _MARGINS:
            _, rest = _nearest(self.g, self.h / self.scale + margin)
            if rest[-1] < 0.0:
                x = rest[:-1] * (self.scale / -rest[-1])
                if self.holds(x):
                    return np.asarray(x)
        return None

    def void(self, *extra: tuple[int, float]) -> Array | None:
        """Multipliers of the hidden neurons that show, if floats do not err, that nothing is inside and on more sides.

        A side is a neuron and a lower end, or ~neuron and an upper end.
        """
        more, ends = np.array([name for name, _ in extra], dtype=int), np.array([end for _, end in extra])
        (g, h), names = self._sides(more, ends), np.concatenate([self.names, more])
        g, h = np.concatenate([self.g, g]), np.concatenate([self.h, h])
        told, rest = _nearest(g, h / max(self.scale, float(np.abs(h).max(initial=0.0))))
        if np.abs(rest).max() > _FAINT:
            return None
        told[told < _FAINT * told.max()] = 0.0
        weights = np.zeros(sum(self.network.sizes[1:-1]))
        j = np.maximum(names, ~names)
        np.add.at(weights, j, np.where(names >= 0, told, -told) / self.length[j])
        return weights

    def implied(self, x: Array) -> list[tuple[int, float, bool, Array]]:
        """Cuts of open neurons of which only the side of x has points: neuron, value, whether it is above, multipliers.

        The multipliers show that the other side has none.
        """
        v, found = self.A @ x + self.c, []
        for j, mark in self.marks:
            above = bool(v[j] > mark)
            weights = self.void((~j if above else j, mark))
            if weights is not None:
                found.append((j, mark, above, weights))
        return found


def _nearest(g: Array, h: Array) -> tuple[Array, Array]:
    """The λ and r above."""
    from scipy import optimize  # takes a fifth of the time to import this package

    goal = np.append(np.zeros(g.shape[1]), 1.0)
    if not len(g):
        return np.zeros(0), -goal
    table = np.ascontiguousarray(np.column_stack([g, h]).T)
    try:
        told, _ = optimize.nnls(table, goal)
    except RuntimeError:  # it did not converge
        told = np.zeros(len(g))
    return told, table @ told - goal
