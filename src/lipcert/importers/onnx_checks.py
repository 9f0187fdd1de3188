"""What must be true of an ONNX model before it is read: names that mean one thing, in order, and no bomb."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import inliner, numpy_helper

from lipcert.errors import UnreadableModel
from lipcert.importers.registry import of_function
from lipcert.importers.wording import few, line, shown
from lipcert.model.arrays import Array

OLDEST_OPSET = 7
"""Before it, broadcasting followed other rules."""

MOST_OPERATORS = 20_000
"""How many operators the functions of a model may add to those of its graph; a thousand bytes count as one more."""

_DEEPEST = 100
"""Functions in functions."""


def opset_of(model: onnx.ModelProto) -> int:
    """The operator set that the model's operators mean."""
    if not 1 <= model.ir_version <= onnx.IR_VERSION:
        raise UnreadableModel(
            f"the model is of version {model.ir_version} of the ONNX format; this onnx knows 1 to {onnx.IR_VERSION}"
        )
    versions = {o.version for o in model.opset_import if o.domain in ("", "ai.onnx")}
    if len(versions) > 1:
        raise UnreadableModel(f"the model names several operator sets ({', '.join(map(str, sorted(versions)))})")
    version = next(iter(versions), 1)
    if version < OLDEST_OPSET:
        raise UnreadableModel(
            f"the model uses operator set {version}, the oldest that is read is {OLDEST_OPSET};"
            " convert it with onnx.version_converter"
        )
    if version > onnx.defs.onnx_opset_version():
        raise UnreadableModel(
            f"the model uses operator set {version}, which this onnx does not know; install a newer one"
        )
    return int(version)


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its functions written out, if that is not more than a model can be."""
    if not model.functions:
        return model
    bodies = {_key(f): f for f in model.functions}
    if len(bodies) != len(model.functions):
        raise UnreadableModel("the model defines a function twice")
    costs: dict[Any, int] = {}
    whole = _cost(model.graph.node, bodies, costs, 0)
    if whole > MOST_OPERATORS + _cost(model.graph.node, {}, {}, 0):
        raise UnreadableModel(
            f"the functions of the model would add more than {MOST_OPERATORS} operators to it; write it without them"
        )
    kept = [(f.domain, f.name) for f in model.functions if of_function(f.domain, f.name) is not None]
    try:
        if kept:
            return inliner.inline_selected_functions(model, kept, exclude=True)
        return inliner.inline_local_functions(model)
    except Exception as error:  # the inliner says in its own classes what it dislikes
        raise UnreadableModel(f"the functions of the model cannot be written out: {line(error)}") from error


def _key(call: Any) -> tuple[str, str, str]:
    name = call.op_type if isinstance(call, onnx.NodeProto) else call.name
    return "" if call.domain == "ai.onnx" else call.domain, name, call.overload


def _cost(nodes: Iterable[Any], bodies: Mapping[Any, Any], costs: dict[Any, int], depth: int) -> int:
    """Operators after writing out functions; each body is counted once and remembered."""
    if depth > _DEEPEST:
        raise UnreadableModel(f"functions of the model call each other more than {_DEEPEST} deep, or themselves")
    total = 0
    for node in nodes:
        total += 1 + node.ByteSize() // 1000
        total += sum(_cost(graph.node, bodies, costs, depth + 1) for graph in _graphs(node))
        key = _key(node)
        if key in bodies:
            if key not in costs:
                costs[key] = _cost(bodies[key].node, bodies, costs, depth + 1)
            total += costs[key]
    return total


def _graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def check_names(graph: onnx.GraphProto) -> None:
    """Raise unless each name is given once, and before it is used."""
    stored = [t.name for t in graph.initializer]
    entries = [i.name for i in graph.input if i.name not in set(stored)]
    made = [name for node in graph.node for name in node.output if name]
    twice = _twice([*stored, *entries, *made])
    if twice:
        raise UnreadableModel(f"the model gives several values the name {few(twice)}; names must differ")
    known, all_names, wrong = {*stored, *entries}, {*stored, *entries, *made}, []
    for node in graph.node:
        called = node.name or next((name for name in node.output if name), "without a name")
        for name in node.input:
            if name and name not in known:
                why = "a later operator gives it" if name in all_names else "nothing in the model gives it"
                wrong.append(f"{called} ({node.op_type}) uses {name}: {why}")
        known.update(name for name in node.output if name)
    wrong += [f"the output is {o.name}: nothing in the model gives it" for o in graph.output if o.name not in known]
    if wrong:
        raise UnreadableModel(
            f"the model uses names before they are given: {few(wrong, between='; ')}. Operators must stand in the"
            " order of their use; onnx.checker.check_model finds such faults"
        )


def stored_arrays(graph: onnx.GraphProto) -> dict[str, Array]:
    """The initializers as arrays; those in attributes can be read as well.

    Do this first: onnx's inference of shapes believes a tensor's size, and counts to it.
    """
    if graph.sparse_initializer:
        raise UnreadableModel("the model has sparse initializers; store them dense")
    for node in graph.node:
        for attribute in node.attribute:
            for tensor in (*attribute.tensors, *([attribute.t] if attribute.HasField("t") else ())):
                tensor_array(tensor)
        for part in _graphs(node):
            stored_arrays(part)
    arrays = {tensor.name: tensor_array(tensor) for tensor in graph.initializer}
    for name, array in arrays.items():
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise UnreadableModel(f"{shown(name)} holds {int(np.isnan(array).sum())} NaN; train or export it again")
    return arrays


def tensor_array(tensor: onnx.TensorProto) -> Array:
    """A stored tensor as an array; its numbers must be in the model."""
    try:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise ValueError("they are in another file, which onnx.load(path) reads")
        array = numpy_helper.to_array(tensor)
        if array.shape != tuple(tensor.dims):  # a negative size would be guessed
            raise ValueError(f"its shape is {list(tensor.dims)}")
    except Exception as error:  # whatever a damaged tensor makes of the decoder
        raise UnreadableModel(f"the numbers of {shown(tensor.name)} cannot be read: {line(error)}") from None
    return np.asarray(array)


def _twice(names: list[str]) -> list[str]:
    seen: set[str] = set()
    return [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
