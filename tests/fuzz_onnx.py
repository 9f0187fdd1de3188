"""Mutants of ONNX models."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from attack.importers import PIECES, onnx_model
from fuzz_bytes import NUMBERS, TEXTS, mangled
from onnx_graphs import model_of, node, single

Row = tuple[str, str, str, dict[str, Any]]

IMAGE: tuple[Row, ...] = (
    *(("Sub", "x c", "a", {}), ("Conv", "a w b", "d", {"pads": [1, 1, 1, 1]})),
    *(("BatchNormalization", "d s t m v", "e", {}), ("Relu", "e", "f", {})),
    ("MaxPool", "f", "p", {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("AveragePool", "p", "q", {"kernel_shape": [2, 2]}),
    *(("Flatten", "q", "r", {}), ("Gemm", "r g h", "o", {"transB": 1}), ("Clip", "o low high", "y", {})),
)
SHAPES: tuple[Row, ...] = (
    *(("Shape", "x", "a", {}), ("Gather", "a zero", "n", {}), ("Constant", "", "k", {"value_ints": [-1]})),
    *(("Concat", "n k", "s", {"axis": 0}), ("Reshape", "x s", "r", {}), ("Slice", "r i j", "t", {})),
    *(("Pad", "t p", "u", {}), ("Split", "u q", "v w", {"axis": 1}), ("Max", "v w", "z", {})),
    *(("Transpose", "z", "e", {"perm": [1, 0]}), ("Unsqueeze", "e i", "f", {})),
    *(("ReduceMean", "f", "h", {"axes": [1]}), ("Expand", "h m", "o", {}), ("Sigmoid", "o", "y", {})),
)
MADE: tuple[Row, ...] = (
    *(("Range", "zero three one", "a", {}), ("Cast", "a", "c", {"to": 1}), ("ConstantOfShape", "size", "d", {})),
    *(("Add", "c d", "e", {}), ("Tile", "e two", "f", {}), ("Reshape", "f square", "g", {})),
    *(("Where", "yes g g", "h", {}), ("Trilu", "h", "t", {}), ("MatMul", "x t", "i", {})),
    *(("Unsqueeze", "i two", "j", {}), ("Squeeze", "j two", "k", {}), ("Relu", "k", "y", {})),
)
STEPS: tuple[Row, ...] = (
    ("Transpose", "x", "t", {"perm": [1, 0, 2]}),
    ("LSTM", "t w r b", "a h c", {"hidden_size": 2}),
    ("GRU", "h g q", "e y", {"hidden_size": 1, "direction": "reverse"}),
)


def onnx_seeds() -> list[bytes]:
    from onnx import helper

    rng = np.random.default_rng(0)
    image = {name: np.abs(rng.standard_normal(2)) for name in "bstmv"} | {"low": -1.0, "high": 2.0, "c": 0.5}
    image |= {"w": rng.standard_normal((2, 1, 3, 3)), "g": rng.standard_normal((3, 2)), "h": np.ones(3)}
    shapes = {"zero": [0], "i": [0], "j": [9], "p": [0, 1, 0, 1], "q": [4, 4], "m": [1, 1, 2]}
    made = {"zero": 0, "three": 3, "one": 1, "size": [3], "two": [2], "square": [3, 2], "yes": np.ones((3, 2), bool)}
    sizes = {"w": (1, 8, 3), "r": (1, 8, 2), "b": (1, 16), "g": (1, 3, 2), "q": (1, 3, 1)}
    steps = {name: rng.standard_normal(size) for name, size in sizes.items()}
    cases = (IMAGE, image, [1, 1, 4, 4]), (SHAPES, shapes, [1, 2, 3]), (MADE, made, [1, 3]), (STEPS, steps, [1, 2, 3])
    models = [
        model_of([node(kind, into, out, **given) for kind, into, out, given in rows], single(constants), shape=shape)
        for rows, constants, shape in cases
    ]
    function = model_of([node("F", "x", "y", domain="local")])
    body = [node("Relu", "a", "t"), node("Elu", "t", "b")]
    function.functions.append(helper.make_function("local", "F", ["a"], ["b"], body, [helper.make_opsetid("", 17)]))
    function.opset_import.append(helper.make_opsetid("local", 1))
    models += [function, *(onnx_model(piece, 0) for piece in PIECES)]
    return [bytes(model.SerializeToString()) for model in models]


def change_onnx(rng: random.Random, data: bytes) -> bytes:
    """Fields of the message changed, swapped, removed or repeated."""
    import onnx

    model = onnx.ModelProto.FromString(data)
    for _ in range(rng.choice([1, 1, 2, 3])):
        places = list(_fields(model))
        message, field = rng.choice(places)
        value = getattr(message, field.name)
        if field.is_repeated:
            _change_list(rng, field, value, places)
        elif field.type != field.TYPE_MESSAGE:
            setattr(message, field.name, _scalar(rng, field, value, places))
        elif rng.random() < 0.3:
            message.ClearField(field.name)
    return bytes(model.SerializeToString())


def _fields(message: Any) -> Iterator[Any]:
    """Every field that is set, anywhere inside."""
    for field, value in message.ListFields():
        yield message, field
        if field.type == field.TYPE_MESSAGE:
            for part in value if field.is_repeated else [value]:
                yield from _fields(part)


def _change_list(rng: random.Random, field: Any, values: Any, places: Any) -> None:
    """One entry of a repeated field removed, repeated at the end, or made equal to another."""
    place, action = rng.randrange(len(values)), rng.randrange(3)
    if action == 0:
        del values[place]
    elif action == 1:
        values.append(values[rng.randrange(len(values))])
    elif field.type == field.TYPE_MESSAGE:
        values[place].CopyFrom(values[rng.randrange(len(values))])
    else:
        values[place] = _scalar(rng, field, values[place], places)


def _scalar(rng: random.Random, field: Any, value: Any, places: Any) -> Any:
    """Another value that the field can hold."""
    if isinstance(value, str):
        others = [getattr(m, f.name) for m, f in places if f.name in ("name", "op_type")]
        names = ["Clip", "Add", "Mul", "MatMul", "Cast", "Tile", "ConstantOfShape", "Range", "If", "Loop", "Erf"]
        return rng.choice([*others, *names, *(text for text in TEXTS if "\0" not in text)])
    if isinstance(value, bytes):
        return mangled(rng, value)
    if isinstance(value, float):
        return rng.choice([0.0, 1.0, -1.0, 1e30, 3.4e38, float("nan"), float("inf"), 1e-40])
    if field.enum_type is not None:
        return rng.choice([v.number for v in field.enum_type.values])
    bits = 31 if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_ENUM) else 63
    return rng.choice([n for n in NUMBERS if -(2**bits) <= n < 2**bits])
