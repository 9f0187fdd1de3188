"""MATLAB's .mat files of version 5 to 7.2: the real numbers, texts, cells and structs that networks are made of.

Lengths are compared with what is there before anything is made of it, so that a damaged or malicious file ends in an
exception and nothing else happens; ``scipy.io.loadmat`` crashes on some. The format: elements of a tag (type and size)
and data, padded to eight bytes; a variable is an element of elements (flags, dimensions, name, content), maybe
compressed.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Collection, Iterator
from typing import Any, Final

import numpy as np

from lipcert.importers.untrusted import room
from lipcert.model.arrays import Array

_HEADER, _MATRIX, _COMPRESSED, _CELL, _STRUCT, _CHAR, _COMPLEX = 128, 14, 15, 1, 2, 4, 8
_STORED: Final = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""Type of an element → how its numbers are stored."""
_CLASSES: Final = dict(zip(range(6, 16), ("f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"), strict=True))
"""Class of a matrix → what its numbers are; they may be stored in a smaller type."""
_TEXTS: Final = {1: "latin-1", 2: "latin-1", 4: "utf-16-le", 16: "utf-8", 17: "utf-16-le"}


class NewerFormat(ValueError):
    """The file is of MATLAB 7.3, which is another format."""


def variables(data: bytes, wanted: Collection[str] | None = None) -> dict[str, Any]:
    """The variables of a file by name: those that are wanted, or all; None for the others."""
    if len(data) < _HEADER or data[126:128] != b"IM":
        raise ValueError("it does not begin as files of version 5 to 7.2 do")
    if struct.unpack_from("<H", data, 124) == (0x0200,):
        raise NewerFormat("it is of version 7.3")
    found: dict[str, Any] = {}
    left = room(len(data))
    for kind, content in _elements(memoryview(data)[_HEADER:]):
        if kind == _COMPRESSED:
            inner = zlib.decompressobj().decompress(content, left + 1)
            left -= len(inner)
            if left < 0:
                raise ValueError("it would unpack to far more than its size")
            ((kind, content),) = _elements(memoryview(inner))
        if kind != _MATRIX:
            raise ValueError(f"it has an element of type {kind} where a variable should be")
        parts = list(_elements(content))
        name = bytes(parts[2][1]).decode("utf-8", "replace")
        if name in found:
            raise ValueError(f"it has the variable {name[:40]!a} twice")
        found[name] = _value(parts, f"variable {name[:40]!a}") if wanted is None or name in wanted else None
    return found


def _elements(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Type and content of each element."""
    place = 0
    while place < len(data):
        kind, size = struct.unpack_from("<II", data, place)
        if kind >> 16:  # a short one: size and type share four bytes, the content has the other four
            kind, size, start, stop = kind & 0xFFFF, kind >> 16, place + 4, place + 8
        else:
            start = place + 8
            stop = start + size + (0 if kind == _COMPRESSED else -size % 8)
        if start + size > min(stop, len(data)):
            raise ValueError("it ends in the middle of an element")
        yield kind, data[start : start + size]
        place = stop


def _value(parts: list[tuple[int, memoryview]], called: str, deep: int = 0) -> Any:
    """Numbers as an array, texts one a row, cells an array of objects, a struct of one entry a dictionary."""
    (_, flags), dimensions, _, *content = parts
    kind, shape = flags[0], tuple(_numbers(*dimensions).tolist())
    if not 2 <= len(shape) <= 16 or min(shape) < 0:
        raise ValueError("the dimensions of a variable make no sense")
    if kind in (_CELL, _STRUCT):
        if deep > 2:
            raise ValueError("it has cells in cells")
        if kind == _STRUCT:  # first the length of a name, and the names
            long, raw, content = int.from_bytes(content[0][1], "little"), bytes(content[1][1]), content[2:]
            names = [raw[k : k + long].split(b"\0")[0].decode("utf-8", "replace") for k in range(0, len(raw), long)]
        if any(inner != _MATRIX for inner, _ in content):
            raise ValueError(f"{called} holds something else than variables")
        inside = [list(_elements(raw)) for _, raw in content]
        values = [_value(each, "a cell", deep + 1) if each else np.zeros((0, 0)) for each in inside]
        if kind == _STRUCT:
            return dict(zip(names, values, strict=True)) if math.prod(shape) == 1 else None
        cells = np.empty(len(values), dtype=object)
        for place, value in enumerate(values):
            cells[place] = value
        return cells.reshape(shape, order="F")
    if kind not in (_CHAR, *_CLASSES) or flags[1] & _COMPLEX or len(content) != 1:
        raise ValueError(f"{called} is neither real numbers nor text nor cells; a sparse W is saved as full(W)")
    if kind == _CHAR:
        letters = bytes(content[0][1]).decode(_TEXTS[content[0][0]])
        if len(letters) != math.prod(shape):
            raise ValueError(f"{called} has {len(letters)} characters and dimensions {shape}")
        rows = shape[0] if letters else 0
        return np.array(["".join(letters[row::rows]) for row in range(rows)], dtype=str)
    numbers = _numbers(*content[0])
    with np.errstate(invalid="ignore", over="ignore"):  # what that changes is noticed next
        result = numbers.astype(_CLASSES[kind])
    if not np.array_equal(result, numbers, equal_nan=numbers.dtype.kind == "f"):
        raise ValueError(f"{called} has numbers that are not of its class")
    return result.reshape(shape, order="F")


def _numbers(kind: int, raw: memoryview) -> Array:
    return np.frombuffer(raw, np.dtype("<" + _STORED[kind])).astype(_STORED[kind])
