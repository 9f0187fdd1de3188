"""ONNX's operators that arrange elements anew: reshape, slice, gather, pad, split and their like."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lipcert.importers import windows as win
from lipcert.importers.builder import Builder, Tensor, Unsupported
from lipcert.importers.onnx_call import Call, axis_of
from lipcert.model.arrays import Array


def flatten(b: Builder, call: Call) -> Tensor:
    axis, rank = int(call.attribute("axis", 1)), len(call.x.shape)
    axis = rank if axis == rank else axis_of(axis, rank)
    return b.reshape(call.x, (math.prod(call.x.shape[:axis]), -1))


def reshape(b: Builder, call: Call) -> Tensor:
    shape = call.whole(1, "shape") or []
    if not call.attribute("allowzero", 0):
        shape = [call.x.shape[a] if s == 0 else s for a, s in enumerate(shape)]
    return b.reshape(call.x, shape)


def transpose(b: Builder, call: Call) -> Tensor:
    order = call.attribute("perm", list(range(len(call.x.shape)))[::-1])
    return b.view(call.x, lambda index: index.transpose(order))


def squeeze(b: Builder, call: Call) -> Tensor:
    axes = call.axes(1, len(call.x.shape))
    return b.view(call.x, lambda index: np.squeeze(index, None if axes is None else tuple(axes)))


def unsqueeze(b: Builder, call: Call) -> Tensor:
    axes = call.whole(1, "axes") or []
    return b.view(call.x, lambda index: np.expand_dims(index, tuple(axes)))


def cut(b: Builder, call: Call) -> Tensor:
    starts, stops = call.whole(1, "starts") or [], call.whole(2, "ends") or []
    rank = len(call.x.shape)
    axes = [axis_of(a, rank) for a in call.whole(3, "axes", list(range(len(starts)))) or []]
    if len(set(axes)) != len(axes):
        raise Unsupported("it names an axis twice")
    steps = call.whole(4, "steps", [1] * len(starts)) or []
    wanted = [slice(None)] * rank
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
        before_first = step < 0 and stop < -call.x.shape[axis]
        wanted[axis] = slice(start, None if before_first else stop, step)
    return b.view(call.x, lambda index: index[tuple(wanted)])


def gather(b: Builder, call: Call) -> Tensor:
    chosen = np.asarray(call.constant(1, "indices"))
    axis = axis_of(int(call.attribute("axis", 0)), len(call.x.shape))
    if chosen.dtype.kind not in "iu":
        raise Unsupported("its indices must be whole numbers")
    call.room.tensor(call.x.size // call.x.shape[axis], chosen.size)
    return b.view(call.x, lambda index: np.take(index, chosen.astype(int), axis=axis))


def pad(b: Builder, call: Call) -> Tensor:
    rank = len(call.x.shape)
    flat = call.whole(1, "pads") or []
    fill = call.constant(2, "value", 0.0)
    axes = call.axes(3, rank) or list(range(rank))
    pads = [(0, 0)] * rank
    for axis, low, high in zip(axes, flat[: len(axes)], flat[len(axes) :], strict=True):
        pads[axis] = (low, high)
    call.room.tensor(*(max(n + max(low, 0) + max(high, 0), 1) for n, (low, high) in zip(call.x.shape, pads)))
    modes: Mapping[str, win.PadMode] = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}
    return b.pad(call.x, pads, modes[call.attribute("mode", "constant")], float(np.ravel(fill)[0]))


def split(b: Builder, call: Call) -> Any:
    axis = axis_of(int(call.attribute("axis", 0)), len(call.x.shape))
    sizes = call.whole(1, "split")
    length = call.x.shape[axis]
    part = -(-length // call.outputs)
    if sizes is not None and (sum(sizes) != length or min(sizes, default=0) < 0):
        raise Unsupported(f"its parts {sizes} are not {length} together")
    cuts = np.arange(part, length, part) if sizes is None else np.cumsum(sizes)[:-1]
    return tuple(b.pick(call.x, p) for p in np.split(win.positions(call.x.shape), cuts, axis=axis))


def expand(b: Builder, call: Call) -> Tensor:
    shape = np.broadcast_shapes(call.x.shape, tuple(call.whole(1, "shape") or []))
    call.room.tensor(*shape)
    return b.spread(call.x, shape)


def shape(b: Builder, call: Call) -> Array:
    whole = np.array(call.x.shape, dtype=np.int64)
    return whole[int(call.attribute("start", 0)) : call.attribute("end", None)]


def concat(b: Builder, call: Call) -> Tensor:
    call.room.tensor(sum(math.prod(operand.shape) for operand in call.operands))
    return b.concat(call.operands, int(call.attribute("axis")))
