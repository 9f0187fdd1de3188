"""Cells of all of space: the half-spaces that cuts of neurons are, points inside, multipliers where there are none.

For half-spaces g·x ≥ h let λ ≥ 0 make r = (Σ λ g, Σ λ h - 1) as small as possible. If r is zero, no point is in all of
them; else r is a multiple of (x, -1), and x is the point of them all that is nearest to zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from lipcert.model.arrays import Array, Interval, dense
from lipcert.model.network import Network

_FAINT = 1e-9
"""Multipliers below this share of the largest, and what is left of an equation below it, are taken for zero."""
_MARGINS = (1e-1, 1e-2, 1e-4, 1e-6, 1e-8)
"""How deep inside a cell a point is looked for, relative to how far its planes are from zero."""
_STARTS, _ROUNDS, _ROOM = 8, 3, 1.1
"""Slopes from which the largest norm is looked for, and rounds; a proved bound is larger by about the last."""


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
        self.last = len(parts) == self.network.depth - 1
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
            _, rest = _nearest(self._table(self.h / self.scale + margin))
            if rest[-1] < 0.0:
                x = rest[:-1] * (self.scale / -rest[-1])
                if self.holds(x):
                    return np.asarray(x)
        return None

    def _table(self, h: Array) -> Array:
        """The half-spaces as columns, and last one more that is not there yet."""
        return np.column_stack([np.vstack([self.g.T, h]), np.zeros(self.g.shape[1] + 1)])

    def void(self) -> Array | None:
        """Multipliers of the hidden neurons that show, if floats do not err, that nothing is inside."""
        return self._void(self._table(self.h / self.scale), 0)

    def _void(self, table: Array, last: int) -> Array | None:
        """The same for half-spaces as columns, the last one of a neuron's lower end, or of ~neuron's upper one."""
        told, rest = _nearest(table)
        if np.abs(rest).max() > _FAINT:
            return None
        told[told < _FAINT * told.max()] = 0.0
        weights = np.zeros(sum(self.network.sizes[1:-1]))
        used = np.flatnonzero(told)
        for name, value in zip(np.append(self.names, last)[used].tolist(), told[used].tolist(), strict=True):
            j = max(name, ~name)
            weights[j] += (value if name >= 0 else -value) / self.length[j]
        return weights

    def implied(self, x: Array, enough: float) -> list[tuple[int, float, bool, Array]]:
        """Cuts of open neurons of which only the side of x has points: neuron, value, whether it is above, multipliers.

        The multipliers show that the other side has none. They are looked for where no line from x meets the kink
        before it leaves the cell; in the last hidden layer, for the neurons that make norms of Jacobians largest, until
        about ``enough`` is left.
        """
        v, found = self.A @ x + self.c, []
        at, ends = np.array([j for j, _ in self.marks], dtype=int), np.array([mark for _, mark in self.marks])
        ways = np.concatenate([self.A[at] * np.sign(ends - v[at])[:, None], -self.g, self.g])
        with np.errstate(divide="ignore", invalid="ignore"):
            leaves = (self.h - self.g @ x) / (ways @ self.g.T)  # how far along each way a side of the cell is
            leaves = np.where(leaves > 0.0, leaves, np.inf).min(axis=1, initial=np.inf)
            meets = (ends - v[at]) / (ways @ self.A[at].T)
        todo = ~((meets > 0.0) & (meets < leaves[:, None] * (1.0 - _FAINT))).any(axis=0)
        above = v[at] > ends
        names = np.where(above, ~at, at)
        g, h = self._sides(names, ends)
        size = max(self.scale, float(np.abs(h).max(initial=0.0)))
        table, low, high = self._table(self.h / size), self.low.copy(), self.high.copy()
        norms = self._norms(v, low, high) if self.last else None
        while todo.any():
            falls = np.ones(len(v))
            if norms is not None:
                norm, falls = next(norms)
                if norm < enough / _ROOM:
                    break
            k = int(np.argmax(np.where(todo, falls[at], -1.0)))
            todo[k] = False
            if falls[at[k]] <= 0.0:
                break
            table[:-1, -1], table[-1, -1] = g[k], h[k] / size
            if (weights := self._void(table, names[k])) is not None:
                side, tighter = (low, max) if above[k] else (high, min)
                side[at[k]] = tighter(side[at[k]], ends[k])
                found.append((*self.marks[k], bool(above[k]), weights))
        return found

    def _norms(self, v: Array, low: Array, high: Array) -> Iterator[tuple[float, Array]]:
        """About the largest norm of B D_s A for slopes s in the last hidden layer that its intervals allow, ever again.

        And how much it falls if a neuron has the slope that it has at v. From random slopes, with rows u and d: the s
        that makes uᵀB D_s A d largest, then a step of the power method.
        """
        *_, layer, after = self.network.layers
        assert layer.neurons is not None
        B, A, own = dense(after.weight), self.A[-layer.size :], slice(-layer.size, None)
        there = layer.neurons.slope(v[own])
        alpha, beta = layer.neurons.slope_range(low[own], high[own])
        s = alpha + (beta - alpha) * np.random.default_rng(0).random((_STARTS, layer.size))
        d = np.ones((_STARTS, A.shape[1], 1))
        rounds = _ROUNDS
        while True:
            for _ in range(rounds):
                J = (B * s[:, None, :]) @ A
                u = J @ d
                d = _unit(np.swapaxes(J, 1, 2) @ u)
                part = ((B.T @ _unit(J @ d)) * (A @ d))[:, :, 0]
                s = np.where(part > 0.0, beta, alpha)
            sizes = (part * s).sum(axis=1)
            best = int(np.argmax(sizes))
            falls = np.zeros(len(v))
            falls[own] = part[best] * (s[best] - there)
            yield float(sizes[best]), falls
            alpha, beta = layer.neurons.slope_range(low[own], high[own])
            s, rounds = np.clip(s, alpha, beta), 1


def _unit(vectors: Array) -> Array:
    """Columns (count, n, 1) of length one."""
    return np.asarray(vectors / np.maximum(np.sqrt((vectors * vectors).sum(axis=1, keepdims=True)), 1e-300))


def _nearest(table: Array) -> tuple[Array, Array]:
    """The λ and r above; the half-spaces are columns."""
    from scipy import optimize  # takes a fifth of the time to import this package

    goal = np.zeros(len(table))
    goal[-1] = 1.0
    try:
        told, _ = optimize.nnls(table, goal)
    except RuntimeError:  # it did not converge
        told = np.zeros(table.shape[1])
    return told, table @ told - goal
