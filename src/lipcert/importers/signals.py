"""Products of signals, softmax, normalisation, attention and recurrent cells, as verbs over a builder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lipcert.importers import graph as ops
from lipcert.importers.builder import Builder, Tensor, Unsupported, Value
from lipcert.importers.windows import positions
from lipcert.model.arrays import Array


def softmax(b: Builder, x: Tensor, axis: int = -1, log: bool = False) -> Tensor:
    """exp(x)/Σexp(x) along an axis, or its logarithm."""
    last = b.view(x, lambda index: np.moveaxis(index, axis, -1))
    found = b.add_node(ops.Softmax(last.shape[-1]), (last.node,), last.shape)
    found = b.activate(found, "log") if log else found
    return b.view(found, lambda index: np.moveaxis(index, -1, axis))


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


def attention(
    b: Builder, q: Value, k: Value, v: Value, mask: Any = None, causal: bool = False, scale: float | None = None
) -> Tensor:
    """softmax(q kᵀ·scale + mask)v over the last two axes; a mask is added, or says what is seen."""
    rows, columns = q.shape[-2], k.shape[-2]
    if isinstance(mask, Tensor):
        raise Unsupported("its mask depends on the input")
    seen = np.tril(np.ones((rows, columns), dtype=bool)) if causal else np.ones((rows, columns), dtype=bool)
    offset = np.zeros(())
    if mask is not None:
        given = np.asarray(mask)
        seen = seen & (given if given.dtype == bool else given > -1e9)
        offset = np.zeros(()) if given.dtype == bool else np.where(given > -1e9, given, 0.0)
    factor = float(scale) if scale is not None else q.shape[-1] ** -0.5
    scores = b.matmul(b.multiply(q, np.asarray(factor)), _turned(b, k))
    scores = b.add(scores, offset) if offset.ndim else scores
    return b.matmul(masked_softmax(b, scores, seen), v)


def masked_softmax(b: Builder, scores: Tensor, seen: Array) -> Tensor:
    """Softmax over what is seen of the last axis; the rest is zero."""
    seen = np.broadcast_to(seen, scores.shape)
    if seen.all():
        return softmax(b, scores)
    counts = seen.reshape(-1, scores.shape[-1]).sum(axis=-1)
    if not counts.all():
        raise Unsupported("a row of its mask sees nothing")
    flat, index = positions(scores.shape).reshape(len(counts), -1), np.full(scores.size, -1)
    parts: list[Value] = []
    start = 0
    for count in np.unique(counts):
        rows = flat[counts == count][seen.reshape(len(counts), -1)[counts == count]].reshape(-1, count)
        parts.append(softmax(b, b.pick(scores, rows)))
        index[rows.ravel()] = start + np.arange(rows.size)
        start += rows.size
    return b.taken(parts, index.reshape(scores.shape))


def _turned(b: Builder, x: Value) -> Value:
    if isinstance(x, Tensor):
        return b.view(x, lambda index: np.swapaxes(index, -1, -2))
    return np.swapaxes(x, -1, -2)


def recurrent(
    b: Builder, kind: str, x: Tensor, start: Sequence[Value], weights: Sequence[Any], biased: bool, reverse: bool
) -> tuple[Tensor, list[Value]]:
    """One layer over a sequence (time, batch, features): what it gives at each step, and its last state."""
    state, outputs = list(start), []
    steps = range(x.shape[0])
    for t in reversed(steps) if reverse else steps:
        now = b.view(x, lambda index, t=t: index[t])
        state = CELLS[kind](b, now, state, weights, biased)
        outputs.append(state[0])
    outputs = outputs[::-1] if reverse else outputs
    rows = [b.view(b.tensor(one), lambda index: index[None]) for one in outputs]
    return b.concat(rows, 0), state


def _gates(b: Builder, x: Value, h: Value, weights: Sequence[Any], biased: bool) -> tuple[Tensor, Tensor]:
    """W x + b and U h + c."""
    into, back = b.matmul(x, np.asarray(weights[0]).T), b.matmul(h, np.asarray(weights[1]).T)
    return (b.add(into, weights[2]), b.add(back, weights[3])) if biased else (into, back)


def _cut(b: Builder, x: Tensor, parts: int) -> list[Tensor]:
    size = x.shape[-1] // parts
    return [b.view(x, lambda index, k=k: index[..., k * size : (k + 1) * size]) for k in range(parts)]


def _lstm(b: Builder, x: Value, state: Sequence[Value], weights: Sequence[Any], biased: bool) -> list[Value]:
    h, c = state
    i, f, g, o = _cut(b, b.add(*_gates(b, x, h, weights, biased)), 4)
    i, f, o = (b.activate(part, "sigmoid") for part in (i, f, o))
    cell = b.add(b.multiply(f, c), b.multiply(i, b.activate(g, "tanh")))
    return [b.multiply(o, b.activate(cell, "tanh")), cell]


def _gru(b: Builder, x: Value, state: Sequence[Value], weights: Sequence[Any], biased: bool) -> list[Value]:
    (h,) = state
    into, back = (_cut(b, part, 3) for part in _gates(b, x, h, weights, biased))
    r, z = (b.activate(b.add(one, two), "sigmoid") for one, two in zip(into[:2], back[:2], strict=True))
    new = b.activate(b.add(into[2], b.multiply(r, back[2])), "tanh")
    return [b.add(new, b.multiply(z, b.add(h, new, -1.0)))]


def _plain_cell(name: str) -> Any:
    def cell(b: Builder, x: Value, state: Sequence[Value], weights: Sequence[Any], biased: bool) -> list[Value]:
        return [b.activate(b.add(*_gates(b, x, state[0], weights, biased)), name)]

    return cell


CELLS = {"lstm": _lstm, "gru": _gru, "rnn_tanh": _plain_cell("tanh"), "rnn_relu": _plain_cell("relu")}
"""One step of each kind of cell: the new state, what it gives first."""
