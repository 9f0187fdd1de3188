"""An ONNX model as a function of one tensor: other inputs held fixed, one of several outputs chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from lipcert.errors import InvalidInput, UnreadableModel
from lipcert.importers.wording import few
from lipcert.model.arrays import Array


def fix_inputs(graph: onnx.GraphProto, fixed: Mapping[str, Any]) -> None:
    """Store the given values in the model, in the place of the inputs of that name."""
    stored = {tensor.name for tensor in graph.initializer}
    inputs = {entry.name: entry for entry in graph.input if entry.name not in stored}
    strange = [name for name in fixed if name not in inputs]
    if strange:
        raise InvalidInput(f"fixed names {few(strange)}; the model's inputs are {few(inputs)}")
    for name, value in fixed.items():
        entry = inputs[name]
        kind = onnx.helper.tensor_dtype_to_np_dtype(entry.type.tensor_type.elem_type)
        sizes = [d.dim_value or None for d in entry.type.tensor_type.shape.dim]
        array = np.asarray(value)
        if not hasattr(value, "dtype"):  # plain numbers have neither type nor shape of their own
            array = _filled(array, kind, sizes)
        if array.dtype.kind not in "fiub":
            raise InvalidInput(f"fixed[{name!r}] must be numbers of type {kind}, got {array.dtype}")
        exact = array.astype(kind)
        if not np.array_equal(exact.astype(float), array.astype(float)):
            raise InvalidInput(f"fixed[{name!r}] must be numbers of type {kind}, got others, of type {array.dtype}")
        if len(sizes) != array.ndim or any(s not in (None, n) for s, n in zip(sizes, array.shape, strict=True)):
            raise InvalidInput(f"fixed[{name!r}] must be of shape {sizes}, got {array.shape}")
        graph.initializer.append(numpy_helper.from_array(exact, name))
        graph.input.remove(entry)


def _filled(array: Array, kind: Any, sizes: list[int | None]) -> Array:
    """Plain numbers in the type of an input, and one after the other in its shape, with a batch of one."""
    shape = [size or 1 for size in sizes]
    array = array.astype(kind) if array.dtype.kind in "fiub" and np.dtype(kind).kind == "f" else array
    return array.reshape(shape) if array.ndim < 2 and array.size == math.prod(shape) else array


def widen_bfloat16(graph: onnx.GraphProto) -> None:
    """Numbers of type bfloat16 as those of single precision, which hold them exactly; no library computes with them."""
    narrow, single = onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT
    stored = [*graph.initializer, *(a.t for node in graph.node for a in node.attribute if a.HasField("t"))]
    for tensor in stored:
        if tensor.data_type == narrow and tensor.data_location != onnx.TensorProto.EXTERNAL:
            array = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == narrow:
            value.type.tensor_type.elem_type = single
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == narrow:
                raise UnreadableModel(f"{node.name or node.op_type} rounds to bfloat16; export in one type of numbers")


def choose_output(graph: onnx.GraphProto, chosen: str | int | None) -> None:
    """Leave one output of the model."""
    if chosen is None:
        return
    names = [entry.name for entry in graph.output]
    if isinstance(chosen, int) and not isinstance(chosen, bool) and -len(names) <= chosen < len(names):
        chosen = names[chosen]
    if isinstance(chosen, str) and chosen not in names and chosen.isdigit() and int(chosen) < len(names):
        chosen = names[int(chosen)]
    if chosen not in names:
        raise InvalidInput(f"output must be one of {few(names)}, or its number, got {chosen!r}")
    kept = graph.output[names.index(chosen)]
    entry = onnx.ValueInfoProto()
    entry.CopyFrom(kept)
    del graph.output[:]
    graph.output.append(entry)
