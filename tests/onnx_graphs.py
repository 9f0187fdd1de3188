"""Small ONNX models, written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

FLOAT, DOUBLE = 1, 11
"""Types of elements, by onnx's numbers."""


def node(kind: str, inputs: str, outputs: str = "y", **attributes: Any) -> Any:
    from onnx import helper

    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def single(constants: dict[str, Any]) -> dict[str, Any]:
    """The constants as arrays, floats in single precision."""
    arrays = {name: np.asarray(value) for name, value in constants.items()}
    return {name: array.astype(np.float32) if array.dtype.kind == "f" else array for name, array in arrays.items()}


def model_of(
    nodes: Sequence[Any],
    constants: dict[str, Any] | None = None,
    *,
    kind: int = FLOAT,
    shape: Sequence[int | str | None] = (1, 3),
    opset: int = 17,
    output: str = "y",
) -> Any:
    """A model from ``x`` to ``output``; constants are stored as they come."""
    from onnx import helper, numpy_helper

    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    ends = [helper.make_tensor_value_info(name, kind, sizes) for name, sizes in (("x", shape), (output, None))]
    graph = helper.make_graph(list(nodes), "g", ends[:1], ends[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
