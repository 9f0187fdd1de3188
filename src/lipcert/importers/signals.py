"""Softmax, normalisation and attention, as verbs over a builder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from lipcert.importers import graph as ops
from lipcert.importers.builder import Builder, Tensor, Unsupported, Value
from lipcert.importers.windows import positions
from lipcert.model.arrays import Array


def softmax(b: Builder, x: Tensor, axis: int = -1, log: bool = False) -> Tensor:
    """exp(x)/Σexp(x) along an axis, or its logarithm; where -∞ was added to x or put in its place, zero."""
    op, at = b.nodes[x.node].op, np.moveaxis(positions(x.shape), axis, -1)
    hidden = np.isneginf(op.shift.high)[at] if isinstance(op, ops.Linear) else np.zeros(at.shape, dtype=bool)
    rows, seen, index = at.reshape(-1, at.shape[-1]), ~hidden.reshape(-1, at.shape[-1]), np.full(x.size, -1)
    parts: list[Value] = []
    start = 0
    if not seen.any(axis=1).all() or (log and hidden.any()):
        raise Unsupported("its mask hides all of a row, or the logarithm of zero is asked for")
    for count in np.unique(seen.sum(axis=1)):  # rows of one width together
        chosen = rows[seen.sum(axis=1) == count]
        chosen = chosen[seen[seen.sum(axis=1) == count]].reshape(-1, count)
        part = b.pick(x, chosen)
        part = b.add_node(ops.Softmax(int(count)), (part.node,), part.shape)
        parts.append(b.activate(part, "log") if log else part)
        index[chosen.ravel()] = start + np.arange(chosen.size)
        start += chosen.size
    return b.taken(parts, index.reshape(x.shape))


def normalised(b: Builder, x: Tensor, axes: Sequence[int], epsilon: float, center: bool = True) -> Tensor:
    """(x - mean)/√(mean of squares + epsilon) over some axes; without ``center`` no mean is taken."""
    moved = b.add(x, b.mean(x, axes, True), -1.0) if center else x
    spread = b.scale(b.mean(b.power(moved, 2), axes, True), 1.0, epsilon)
    return b.multiply(moved, b.activate(spread, "rsqrt"))


def layer_norm(b: Builder, x: Tensor, rank: int, weight: Any, bias: Any, epsilon: float, center: bool = True) -> Tensor:
    """Normalisation over the last axes, then an affine map of each element."""
    found = normalised(b, x, range(len(x.shape) - rank, len(x.shape)), epsilon, center)
    return _affine(b, found, weight, bias)


def group_norm(b: Builder, x: Tensor, groups: int, weight: Any, bias: Any, epsilon: float) -> Tensor:
    """Normalisation over groups of channels (axis 1) and all places; as many groups as channels: each by itself."""
    parts = b.view(x, lambda index: index.reshape(x.shape[0], groups, -1))
    found = b.view(normalised(b, parts, [2], epsilon), lambda index: index.reshape(x.shape))
    along = (-1, *(1 for _ in x.shape[2:]))
    return _affine(b, found, *(None if part is None else np.reshape(part, along) for part in (weight, bias)))


def _affine(b: Builder, x: Tensor, weight: Any, bias: Any) -> Tensor:
    return b.scale(x, 1.0 if weight is None else weight, 0.0 if bias is None else bias)


def recurrent(
    b: Builder, x: Tensor, weights: Sequence[Array], start: Sequence[Value], names: Sequence[str], late: bool
) -> tuple[list[Value], Value]:
    """What a recurrent layer gives after each step of x (steps, batch, inputs), and the last state of its cells.

    The weights are W, R and the two biases, with one block (RNN), three (GRU: z, r, h) or four (LSTM: i, o, f, c); a
    GRU may reset ``late``, behind the product with R.
    """
    (W, R, *biases), (h, c), size = weights, start, weights[1].shape[-1]
    found: list[Value] = []
    act = [partial(b.activate, name=name) for name in names]
    blocks = [slice(k, k + size) for k in range(0, len(W), size)]
    for step in positions(x.shape):
        both = [b.add(b.matmul(v, m.T), bias) for v, m, bias in zip((b.pick(x, step), h), (W, R), biases, strict=True)]
        new, old = ([b.view(value, lambda i, at=at: i[:, at]) for at in blocks] for value in both)
        gates = [b.add(*pair) for pair in zip(new, old, strict=True)]
        if len(blocks) == 1:
            h = act[0](gates[0])
        elif len(blocks) == 3:
            z, reset = act[0](gates[0]), act[0](gates[1])
            again = b.matmul(b.multiply(reset, h), R[blocks[2]].T)
            kept = b.multiply(reset, old[2]) if late else b.add(again, biases[1][blocks[2]])
            fresh = act[1](b.add(new[2], kept))
            h = b.add(fresh, b.multiply(z, b.add(h, fresh, -1.0)))
        else:
            i, o, f = (act[0](gate) for gate in gates[:3])
            c = b.add(b.multiply(f, c), b.multiply(i, act[1](gates[3])))
            h = b.multiply(o, act[2](c))
        found.append(h)
    return found, c
