"""Softmax, normalisation and attention, as verbs over a builder."""

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
