"""MATLAB's .mat files of version 5 to 7.2: the numbers, texts, cells and sparse matrices that networks are made of.

Lengths and indices are compared with what is there before anything is made from them, so a damaged or malicious file
is refused with a ValueError and nothing else happens. The format: elements of a tag (type and size) and data, padded to
eight bytes; a variable is an element of elements (flags, dimensions, name, content), maybe compressed.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy import sparse

from lipcert.importers.untrusted import room
from lipcert.model.arrays import Array

_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_CELL, _CHAR, _SPARSE = 1, 4, 5
_COMPLEX = 0x0800
_STORED: Final = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""Type of an element → how its numbers are stored."""
_CLASSES: Final = dict(zip(range(6, 16), ("f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"), strict=True))
"""Class of a matrix → what its numbers are; they may be stored in a smaller type."""
_TEXTS: Final = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
_DEEPEST = 4
"""Cells in cells; a network has one level."""
_TALLEST = 2**24
"""Rows of a sparse matrix, which the size of the file does not limit."""


class NewerFormat(ValueError):
    """The file is of MATLAB 7.3, which is another format."""


def variables(data: bytes, wanted: Collection[str]) -> dict[str, Any]:
    """The variables of a file by name: those that are wanted as arrays, None for the others."""
    if len(data) < _HEADER or data[126:128] not in (b"IM", b"MI"):
        raise ValueError("it does not begin as files of version 5 to 7.2 do")
    order = "<" if data[126:128] == b"IM" else ">"
    (version,) = struct.unpack_from(order + "H", data, 124)
    if version == 0x0200:
        raise NewerFormat("it is of version 7.3")
    found: dict[str, Any] = {}
    left = room(len(data))
    for kind, content in _elements(memoryview(data)[_HEADER:], order):
        if kind == _COMPRESSED:
            inner = _unpacked(content, left)
            left -= len(inner)
            parts = list(_elements(memoryview(inner), order))
            if len(parts) != 1:
                raise ValueError(f"a compressed part holds {len(parts)} variables instead of one")
            ((kind, content),) = parts
        if kind != _MATRIX:
            raise ValueError(f"it has an element of type {kind} where a variable should be")
        matrix = _Matrix.of(content, order)
        if matrix.name in found:
            raise ValueError(f"it has the variable {matrix.name[:40]!a} twice")
        found[matrix.name] = matrix.value(0) if matrix.name in wanted else None
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


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Type and content of each element."""
    place = 0
    while place < len(data):
        if len(data) - place < 8:
            raise ValueError("it ends in the middle of an element")
        kind, size = struct.unpack_from(order + "II", data, place)
        if kind >> 16:  # a short one: size and type share four bytes, the content has the other four
            kind, size, start, stop = kind & 0xFFFF, kind >> 16, place + 4, place + 8
        else:
            start = place + 8
            stop = start + size + (0 if kind == _COMPRESSED else -size % 8)
        if start + size > min(stop, len(data)):
            raise ValueError("it ends in the middle of an element")
        yield kind, data[start : start + size]
        place = stop


@dataclass(frozen=True, eq=False)
class _Matrix:
    """A variable or a cell: its class, flags, dimensions and name, and the elements of its content."""

    kind: int
    flags: int
    shape: tuple[int, ...]
    name: str
    content: list[tuple[int, memoryview]]
    order: str

    @staticmethod
    def of(data: memoryview, order: str) -> _Matrix:
        parts = list(_elements(data, order))
        if len(parts) < 3 or parts[0][0] != 6 or len(parts[0][1]) != 8 or parts[1][0] != 5:
            raise ValueError("a variable lacks its flags, dimensions or name")
        flags = struct.unpack_from(order + "I", parts[0][1])[0]
        shape = tuple(int(size) for size in _numbers(parts[1], order))
        if not 2 <= len(shape) <= 16 or min(shape) < 0:
            raise ValueError("the dimensions of a variable make no sense")
        name = bytes(parts[2][1]).decode("utf-8", "replace")
        return _Matrix(flags & 0xFF, flags, shape, name, parts[3:], order)

    def value(self, depth: int) -> Any:
        """An array: of objects for cells, of one text a row for characters, sparse for a sparse matrix."""
        if self.kind == _CELL:
            return self._cells(depth)
        if self.kind == _CHAR:
            return self._texts()
        if self.kind == _SPARSE:
            return self._sparse()
        if self.kind not in _CLASSES:
            raise ValueError(f"{self._called} is neither numbers nor text nor cells, but of MATLAB's class {self.kind}")
        values = self._parts(1)
        wanted = np.dtype(_CLASSES[self.kind])
        with np.errstate(invalid="ignore", over="ignore"):  # what that changes is noticed next
            result = [value.astype(wanted) for value in values]
        if not all(np.array_equal(a, b, equal_nan=b.dtype.kind == "f") for a, b in zip(result, values)):
            raise ValueError(f"{self._called} has numbers that are not of its class")
        if any(value.size != math.prod(self.shape) for value in values):
            raise ValueError(f"{self._called} has {values[0].size} numbers and dimensions {self.shape}")
        return (result[0] if len(result) == 1 else result[0] + 1j * result[1]).reshape(self.shape, order="F")

    @property
    def _called(self) -> str:
        return f"variable {self.name[:40]!a}" if self.name else "a cell"

    def _parts(self, count: int) -> list[Array]:
        """The given number of parts, and one more where the numbers are complex."""
        count += bool(self.flags & _COMPLEX)
        if len(self.content) != count:
            raise ValueError(f"{self._called} has {len(self.content)} parts instead of {count}")
        return [_numbers(part, self.order) for part in self.content]

    def _cells(self, depth: int) -> Array:
        if depth == _DEEPEST:
            raise ValueError("it has cells in cells in cells")
        if len(self.content) != math.prod(self.shape) or any(kind != _MATRIX for kind, _ in self.content):
            raise ValueError(f"{self._called} has {len(self.content)} cells and dimensions {self.shape}")
        cells = np.empty(len(self.content), dtype=object)
        for place, (_, content) in enumerate(self.content):
            cells[place] = _Matrix.of(content, self.order).value(depth + 1) if len(content) else np.zeros((0, 0))
        return cells.reshape(self.shape, order="F")

    def _texts(self) -> Array:
        if len(self.content) != 1 or self.content[0][0] not in _TEXTS:
            raise ValueError(f"{self._called} is no text that can be read")
        kind, raw = self.content[0]
        suffix = {"<": "-le", ">": "-be"}[self.order] if _TEXTS[kind].startswith(("utf-16", "utf-32")) else ""
        letters = bytes(raw).decode(_TEXTS[kind] + suffix)  # UnicodeDecodeError is a ValueError
        if len(letters) != math.prod(self.shape):
            raise ValueError(f"{self._called} has {len(letters)} characters and dimensions {self.shape}")
        rows = self.shape[0] if letters else 0
        return np.array(["".join(letters[row::rows]) for row in range(rows)], dtype=str)

    def _sparse(self) -> sparse.csc_array:
        """The matrix, once every index is known to lie inside it."""
        rows, starts, *values = self._parts(3)
        height, width = self.shape if len(self.shape) == 2 else (0, 0)
        if not height or height > _TALLEST or starts.size != width + 1:
            raise ValueError(
                f"{self._called} is a sparse matrix of dimensions {self.shape} that do not fit its columns"
            )
        if any(part.dtype.kind not in "iu" for part in (rows, starts)):
            raise ValueError(f"{self._called} is a sparse matrix whose indices are no whole numbers")
        count = int(starts[-1])
        if starts[0] != 0 or (starts[1:] < starts[:-1]).any() or any(count > part.size for part in (rows, *values)):
            raise ValueError(f"{self._called} is a sparse matrix whose columns do not follow each other")
        rows = rows[:count]
        if (rows < 0).any() or (rows >= height).any():
            raise ValueError(f"{self._called} is a sparse matrix with a row that is not from 0 to {height - 1}")
        lengths = starts[1:].astype(np.int64) - starts[:-1].astype(np.int64)
        places = np.repeat(np.arange(width), lengths) * height + rows
        if np.unique(places).size != count:
            raise ValueError(f"{self._called} is a sparse matrix with an entry that is there twice")
        entries = values[0][:count] if len(values) == 1 else values[0][:count] + 1j * values[1][:count]
        return sparse.csc_array((entries, rows.astype(np.int64), starts.astype(np.int64)), shape=(height, width))


def _numbers(part: tuple[int, memoryview], order: str) -> Array:
    kind, raw = part
    if kind not in _STORED:
        raise ValueError(f"it has an element of type {kind} where numbers should be")
    dtype = np.dtype(order + _STORED[kind])
    if len(raw) % dtype.itemsize:
        raise ValueError("it ends in the middle of a number")
    return np.frombuffer(raw, dtype=dtype).astype(dtype.newbyteorder("="))
