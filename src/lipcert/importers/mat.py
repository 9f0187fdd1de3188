"""MATLAB's .mat files of version 5 to 7.2: the real numbers, texts, cells and structs that networks are made of.

Lengths are compared with what is there before anything is made from them, so a damaged or malicious file is refused
with a ValueError and nothing else happens. The format: elements of a tag (type and size) and data, padded to eight
bytes; a variable is an element of elements (flags, dimensions, name, content), maybe compressed.
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

_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_CELL, _STRUCT, _CHAR = 1, 2, 4
_COMPLEX = 0x0800
_STORED: Final = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""Type of an element → how its numbers are stored."""
_CLASSES: Final = dict(zip(range(6, 16), ("f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"), strict=True))
"""Class of a matrix → what its numbers are; they may be stored in a smaller type."""
_TEXTS: Final = {1: "latin-1", 2: "latin-1", 4: "utf-16-le", 16: "utf-8", 17: "utf-16-le"}


class NewerFormat(ValueError):
    """The file is of MATLAB 7.3, which is another format."""


def variables(data: bytes, wanted: Collection[str]) -> dict[str, Any]:
    """The variables of a file by name: those that are wanted as arrays, None for the others."""
    if len(data) < _HEADER or data[126:128] != b"IM":
        raise ValueError("it does not begin as files of version 5 to 7.2 do")
    if struct.unpack_from("<H", data, 124) == (0x0200,):
        raise NewerFormat("it is of version 7.3")
    found: dict[str, Any] = {}
    left = room(len(data))
    for kind, content in _elements(memoryview(data)[_HEADER:]):
        if kind == _COMPRESSED:
            inner = _unpacked(content, left)
            left -= len(inner)
            parts = list(_elements(memoryview(inner)))
            if len(parts) != 1:
                raise ValueError(f"a compressed part holds {len(parts)} variables instead of one")
            ((kind, content),) = parts
        if kind != _MATRIX:
            raise ValueError(f"it has an element of type {kind} where a variable should be")
        name, value = _variable(content, wanted)
        if name in found:
            raise ValueError(f"it has the variable {name[:40]!a} twice")
        found[name] = value
    return found


def _unpacked(content: memoryview, most: int) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(content, most + 1)
    except zlib.error as error:
        raise ValueError(f"a compressed variable is damaged: {error}") from None
    if len(data) > most:
        raise ValueError(f"it would unpack to more than {most} bytes")
    if not unpacker.eof:
        raise ValueError("a compressed variable is cut short, or more follows it")
    return data


def _elements(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    place = 0
    while place < len(data):
        if len(data) - place < 8:
            raise ValueError("it ends in the middle of an element")
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


def _variable(data: memoryview, wanted: Collection[str] | None, deep: int = 0) -> tuple[str, Any]:
    """Name and value; ``deep`` is 1 in a struct and 2 in a cell, where ``wanted`` is None.

    Structs are dictionaries of the fields that are wanted, cells an array of objects, characters one text a row.
    """
    parts = list(_elements(data))
    if len(parts) < 3 or parts[0][0] != 6 or len(parts[0][1]) != 8 or parts[1][0] != 5:
        raise ValueError("a variable lacks its flags, dimensions or name")
    (flags,) = struct.unpack_from("<I", parts[0][1])
    shape = tuple(int(size) for size in _numbers(parts[1]))
    if not 2 <= len(shape) <= 16 or min(shape) < 0:
        raise ValueError("the dimensions of a variable make no sense")
    name, content, kind = bytes(parts[2][1]).decode("utf-8", "replace"), parts[3:], flags & 0xFF
    if wanted is not None and name not in wanted and kind != _STRUCT:
        return name, None
    called = f"variable {name[:40]!a}" if name else "a cell"
    if kind == _STRUCT and deep == 0 and wanted is not None:
        return name, _fields(content, wanted) if math.prod(shape) == 1 else None
    if kind == _CELL:
        if deep == 2:
            raise ValueError("it has cells in cells")
        if len(content) != math.prod(shape) or any(part[0] != _MATRIX for part in content):
            raise ValueError(f"{called} has {len(content)} cells and dimensions {shape}")
        cells = np.empty(len(content), dtype=object)
        for place, (_, inner) in enumerate(content):
            cells[place] = _variable(inner, None, 2)[1] if len(inner) else np.zeros((0, 0))
        return name, cells.reshape(shape, order="F")
    if kind not in (_CHAR, *_CLASSES) or flags & _COMPLEX or len(content) != 1:
        raise ValueError(f"{called} is neither real numbers nor text nor cells; a sparse W is saved as full(W)")
    if kind == _CHAR:
        return name, _texts(called, shape, *content[0])
    values = _numbers(content[0])
    with np.errstate(invalid="ignore", over="ignore"):  # what that changes is noticed next
        result = values.astype(_CLASSES[kind])
    if not np.array_equal(result, values, equal_nan=values.dtype.kind == "f"):
        raise ValueError(f"{called} has numbers that are not of its class")
    if values.size != math.prod(shape):
        raise ValueError(f"{called} has {values.size} numbers and dimensions {shape}")
    return name, result.reshape(shape, order="F")


def _fields(content: list[tuple[int, memoryview]], wanted: Collection[str]) -> dict[str, Any]:
    """The fields of a struct of one entry: the length of names, the names, then a value for each."""
    if len(content) < 2 or len(content[0][1]) != 4:
        raise ValueError("a struct lacks the names of its fields")
    (length,) = struct.unpack("<i", content[0][1])
    raw, values = bytes(content[1][1]), content[2:]
    if length < 1 or len(raw) != length * len(values) or any(kind != _MATRIX for kind, _ in values):
        raise ValueError("a struct has more names than fields, or fewer")
    names = [raw[k : k + length].split(b"\0")[0].decode("utf-8", "replace") for k in range(0, len(raw), length)]
    return {
        name: _variable(inner, None, 1)[1] if name in wanted and len(inner) else None
        for name, (_, inner) in zip(names, values, strict=True)
    }


def _texts(called: str, shape: tuple[int, ...], kind: int, raw: memoryview) -> Array:
    if kind not in _TEXTS:
        raise ValueError(f"{called} is no text that can be read")
    letters = bytes(raw).decode(_TEXTS[kind])  # UnicodeDecodeError is a ValueError
    if len(letters) != math.prod(shape):
        raise ValueError(f"{called} has {len(letters)} characters and dimensions {shape}")
    rows = shape[0] if letters else 0
    return np.array(["".join(letters[row::rows]) for row in range(rows)], dtype=str)


def _numbers(part: tuple[int, memoryview]) -> Array:
    kind, raw = part
    if kind not in _STORED:
        raise ValueError(f"it has an element of type {kind} where numbers should be")
    dtype = np.dtype("<" + _STORED[kind])
    if len(raw) % dtype.itemsize:
        raise ValueError("it ends in the middle of a number")
    return np.frombuffer(raw, dtype=dtype).astype(dtype.newbyteorder("="))
