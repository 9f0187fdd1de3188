"""Documents on disk: one JSON object, self-describing, versioned, with no code in it.

A document says what kind of answer it holds, and has a SHA-256 of its content, so that accidents are noticed when it is
read. Deliberate changes are noticed when it is verified: the answer is derived again, and nothing in the file is
believed. Reading is strict: every field must be there, once, with the type it is written with, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lipcert.errors import InvalidInput, UnreadableCertificate
from lipcert.model.arrays import Array
from lipcert.model.files import is_file, write_whole
from lipcert.model.norms import L2, NORMS, Norm
from lipcert.model.regions import Ball, Box, Everywhere, Region
from lipcert.proof.hints import Curved, Enclosure, Hints, Linear, Lipschitz
from lipcert.proof.tree import Tree

FORMAT = "lipcert certificate"
VERSION = 4
KINDS = ("bound", "reach", "sensitivity", "radius", "sweep")
"""The answers that can be stored."""
_CUTS, _VOIDS = ("layer", "index", "value", "child"), ("void", "neuron", "weight")
_CURVED = {"slopes": 2, "balance": 1, "mix": 2, "weights": 1}
_MARKS = ("second", "passed")
_WHOLE = ("layer", "index", "child", "void", "neuron", *_MARKS)
_DECIMAL = "decimal"
_LARGEST = 2**31 - 1
"""No whole number of a document is larger."""
_DEEPEST = 2**20
"""No exponent is larger."""


def write(path: str | os.PathLike[str], kind: str, content: Mapping[str, Any]) -> None:
    """Write an answer of that kind; the file appears whole or not at all."""
    document = {"format": FORMAT, "version": VERSION, "kind": kind, "sha256": checksum(content), "content": content}
    write_whole(path, json.dumps(document, indent=1, allow_nan=False))


def read(path: str | os.PathLike[str], kind: str) -> Mapping[str, Any]:
    """The content of a document of that kind; raise UnreadableCertificate for anything else."""
    found, content = _opened(path)
    if found != kind:
        raise UnreadableCertificate(f"{path} holds a {found}, not a {kind}")
    return content


def kind_of(path: str | os.PathLike[str]) -> str:
    """Which kind of answer a document holds; raise UnreadableCertificate if it is none."""
    return _opened(path)[0]


@contextmanager
def damages(path: str | os.PathLike[str]) -> Iterator[None]:
    """Within the block, a value that is not what it should be means that the document is damaged."""
    try:
        yield
    except (ValueError, OverflowError, RecursionError) as error:  # an InvalidInput is a ValueError
        raise UnreadableCertificate(f"{path} is damaged: {error}") from None


def checksum(content: Mapping[str, Any]) -> str:
    """SHA-256 of a document's content."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _opened(path: str | os.PathLike[str]) -> tuple[str, Mapping[str, Any]]:
    try:
        if os.path.exists(path) and not is_file(Path(path)):
            raise UnreadableCertificate(f"{path} is not a certificate file: it is no regular file")
        document = json.loads(Path(path).read_bytes(), object_pairs_hook=_once, parse_constant=_no_constant)
    except FileNotFoundError:
        raise UnreadableCertificate(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableCertificate(f"{path} is not a certificate file: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UnreadableCertificate(f"{path} is not a certificate file: it does not say so in its field 'format'")
    version = document.get("version")
    if type(version) is not int or version != VERSION:
        came = type(version).__name__ if isinstance(version, (list, dict)) else ascii(version)[:20]
        raise UnreadableCertificate(f"{path} is of version {came}; this program reads version {VERSION}: certify again")
    with damages(path):
        _, _, claimed, content, kind = fields(document, "format", "version", "sha256", "content", "kind")
        if kind not in KINDS:
            raise ValueError("it names an unknown kind of answer")
        if claimed != checksum(mapping(content)):
            raise ValueError("its content does not match its checksum")
    return kind, content


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field is there twice")
    return fields


def _no_constant(name: str) -> Any:
    raise ValueError(f"it contains {name}, which is no number")


def region_out(region: Region) -> dict[str, Any]:
    """A region in JSON's types."""
    if isinstance(region, Everywhere):
        return {"kind": "everywhere"}
    if isinstance(region, Box):
        return {"kind": "box", "lower": _readable(region.lower), "upper": _readable(region.upper)}
    if isinstance(region, Ball):
        clip = None if region.clip is None else region_out(region.clip)
        ends = {"center": _readable(region.center), "radius": _readable(region.radius)}
        found = {"kind": "ball", **ends, "clip": clip}
        return found if region.plain else found | {"norm": norm_out(region.norm)}
    raise InvalidInput(f"a region of type {type(region).__name__} cannot be saved")


def region_in(value: Any) -> Region:
    """What region_out wrote."""
    kind = mapping(value).get("kind")
    if kind == "everywhere":
        fields(value, "kind")
        return Everywhere()
    if kind == "box":
        _, lower, upper = fields(value, "kind", "lower", "upper")
        return Box(_read(lower, 1), _read(upper, 1))
    if kind != "ball":
        raise ValueError("it names an unknown kind of region")
    names = "kind", "center", "radius", "clip"
    _, center, radius, clip, *norm = fields(value, *names, *_present(value, "norm"))
    box = None if clip is None else region_in(clip)
    return Ball(_read(center, 1), _read(radius, 0), box, *map(norm_in, norm))


def norm_out(norm: Norm) -> dict[str, Any]:
    """A norm in JSON's types."""
    shape = norm.matrix
    scale, matrix = array_out(np.asarray(norm.scale)), None if shape is None else array_out(shape)
    return {"name": norm.name, "scale": scale, "shape": matrix}


def norm_in(value: Any) -> Norm:
    """What norm_out wrote."""
    name, scale, shape = fields(mapping(value), "name", "scale", "shape")
    if text(name) not in NORMS:
        raise ValueError("it names an unknown norm")
    if shape is None:
        return NORMS[name](array_in(scale, None))  # type: ignore[call-arg]
    if name != L2.name:
        raise ValueError("a norm has a shape that is not ℓ2")
    return L2(array_in(scale, None), array_in(shape, 2))


def _present(value: Mapping[str, Any], *names: str) -> list[str]:
    """Those of the names that are there: fields that are written only where they say something."""
    return [name for name in names if name in value]


def _readable(array: Array) -> dict[str, Any]:
    """As array_out, and the same numbers in decimal notation for people."""
    return array_out(array) | {_DECIMAL: _decimal(array)}


def _read(value: Any, axes: int) -> Array:
    """What _readable wrote, or array_out in earlier files; a file whose two notations differ is refused."""
    stored = dict(mapping(value))
    told = stored.pop(_DECIMAL, None)
    array = array_in(stored, axes)
    if told not in (None, _decimal(array)):
        raise ValueError("its two statements of the region differ")
    return array


def _decimal(array: Array) -> str:
    return ", ".join(map(repr, np.ravel(array).tolist()))


def hints_out(sweep: Hints) -> dict[str, Any]:
    """The hints of a sweep in JSON's types."""
    found: dict[str, Any] = {
        "enclosures": [_enclosure_out(enclosure) for enclosure in sweep.enclosures],
        "exponents": [int(exponent) for exponent in sweep.exponents],
        "multipliers": [array_out(multiplier) for multiplier in sweep.multipliers],
        "lines": [[array_out(lower), array_out(upper)] for lower, upper in sweep.lines],
    }
    return found if sweep.start is None else found | {"start": array_out(sweep.start)}


def hints_in(value: Any) -> Hints:
    """What hints_out wrote."""
    names = "enclosures", "exponents", "multipliers", "lines"
    enclosures, exponents, multipliers, lines, *start = fields(mapping(value), *names, *_present(value, "start"))
    pairs = [items(pair, 2) for pair in items(lines)]
    return Hints(
        enclosures=tuple(_enclosure_in(enclosure) for enclosure in items(enclosures)),
        multipliers=tuple(array_in(multiplier, 1) for multiplier in items(multipliers)),
        exponents=tuple(whole(exponent, -_DEEPEST, _DEEPEST) for exponent in items(exponents)),
        lines=tuple((array_in(lower, 1), array_in(upper, 1)) for lower, upper in pairs),
        start=array_in(start[0], 1) if start else None,
    )


def curved_out(hints: Curved) -> dict[str, Any]:
    """Hints to second order in JSON's types."""
    return {name: array_out(getattr(hints, name)) for name in _CURVED}


def curved_in(value: Any) -> Curved:
    """What curved_out wrote."""
    found = fields(mapping(value), *_CURVED)
    return Curved(*(array_in(array, axes) for array, axes in zip(found, _CURVED.values(), strict=True)))


def _enclosure_out(enclosure: Enclosure) -> dict[str, Any]:
    if isinstance(enclosure, Lipschitz):
        return {"kind": "lipschitz"}
    if isinstance(enclosure, Linear):
        return {"kind": "linear", "depth": enclosure.depth, "tilt": float(enclosure.tilt)}
    raise InvalidInput(f"an enclosure of type {type(enclosure).__name__} cannot be saved")


def _enclosure_in(value: Any) -> Enclosure:
    if mapping(value).get("kind") == "lipschitz":
        fields(value, "kind")
        return Lipschitz()
    if value.get("kind") != "linear":
        raise ValueError("it names an unknown enclosure")
    _, depth, tilt = fields(value, "kind", "depth", "tilt")
    return Linear(None if depth is None else whole(depth), real(tilt))


def tree_out(tree: Tree | None) -> dict[str, Any] | None:
    """The cuts of a region in JSON's types."""
    if tree is None:
        return None
    columns = {name: array_out(getattr(tree, name)) for name in (*_CUTS, *_VOIDS, *_MARKS)}
    return {"bound": float(tree.bound).hex()} | columns


def tree_in(value: Any) -> Tree | None:
    """What tree_out wrote."""
    if value is None:
        return None
    none = {name: array_out(np.zeros(0)) for name in _MARKS}  # older versions have no such columns
    value = {**none, **mapping(value)}
    bound, *found = fields(value, "bound", *_CUTS, *_VOIDS, *_MARKS)
    columns = {name: array_in(column, 1) for name, column in zip((*_CUTS, *_VOIDS, *_MARKS), found, strict=True)}
    if any(len({columns[name].size for name in group}) != 1 for group in (_CUTS, _VOIDS)):
        raise ValueError("the columns of its tree differ in length")
    for name in _WHOLE:
        column = columns[name]
        if (column != np.round(column)).any() or (np.abs(column) > _LARGEST).any():
            raise ValueError("a column of its tree has entries that are no whole numbers")
        columns[name] = column.astype(np.int64)
    return Tree(bound=hexadecimal(bound), **columns)


def array_out(array: Array) -> dict[str, Any]:
    """An array of float64 in JSON's types, bit for bit."""
    data = np.asarray(array, dtype="<f8", order="C")
    return {"shape": list(data.shape), "float64": base64.b64encode(data.tobytes()).decode("ascii")}


def array_in(value: Any, axes: int | None) -> Array:
    """A finite array with that many axes; None is any number."""
    shape, encoded = fields(mapping(value), "shape", "float64")
    sizes = [whole(size) for size in items(shape, axes)]
    data = np.frombuffer(base64.b64decode(text(encoded), validate=True), dtype="<f8")
    if data.size != math.prod(sizes):
        raise ValueError("an array does not have the shape that it says it has")
    array = np.array(data.reshape(sizes), dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError("an array has entries that are not finite")
    return array


def fields(value: Mapping[str, Any], *names: str) -> list[Any]:
    """The values of exactly these fields."""
    if set(value) != set(names):
        odd = sorted(set(value) ^ set(names))[0]
        raise ValueError(f"the field {odd[:40]!a} is {'missing' if odd in names else 'unknown'}")
    return [value[name] for name in names]


def mapping(value: Any) -> Mapping[str, Any]:
    """A group of fields."""
    if not isinstance(value, dict):
        raise ValueError("it has something else where a group of fields should be")
    return value


def items(value: Any, length: int | None = None) -> list[Any]:
    """A list, of that length if one is given."""
    if not isinstance(value, list) or length not in (None, len(value)):
        raise ValueError(f"it lacks a list{'' if length is None else f' of length {length}'}")
    return value


def text(value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise ValueError("it lacks a text")
    return value


def shown(value: Any) -> str:
    """A text that can be printed: no control characters, which a terminal obeys, and no halves of characters."""
    if not text(value).isprintable():
        raise ValueError("a text has characters that cannot be printed")
    return str(value)


def whole(value: Any, least: int = 0, most: int = _LARGEST) -> int:
    """A whole number between these."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"it lacks a whole number from {least} to {most}")
    return value


def real(value: Any) -> float:
    """A finite number."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError("it lacks a finite number")
    return float(value)


def hexadecimal(value: Any) -> float:
    """A number that is finite and not negative, in Python's hexadecimal notation."""
    if not re.fullmatch(r"0x[01]\.[0-9a-f]{1,13}p[+-][0-9]{1,4}", text(value)):
        raise ValueError("a bound is not in hexadecimal notation")
    return float.fromhex(value)


def digest(value: Any) -> str:
    """The digest of a network."""
    if not re.fullmatch("(declared:)?[0-9a-f]{64}", text(value)):
        raise ValueError("its digest of the network is none")
    return str(value)


def truth(value: Any, name: str) -> bool:
    """A truth value, in the field of that name."""
    if not isinstance(value, bool):
        raise ValueError(f"its field {name!r} is neither true nor false")
    return value
