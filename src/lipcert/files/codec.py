"""Values as JSON and back, driven by the types of their fields.

A dataclass becomes an object with one entry per field, a tuple or an array becomes a list, and a number is written with
as many digits as give back the same float64. A class of a family, such as a kind of region, has its name in an entry
"kind". What is read is built from entries of the expected types only; there is no code in it.

What a field may hold is its type annotation, or what ``FIELDS`` says where the annotation says too little.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from functools import cache
from types import NoneType
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin, get_type_hints

import numpy as np

from lipcert.errors import InvalidInput
from lipcert.model.arrays import Array
from lipcert.model.regions import L1, L2, Ball, Box, Everywhere, LInf, Norm, Region
from lipcert.suggest.hints import DualHints, Enclosure, Linear, Lipschitz, QuadraticHints, RowHints

Kind: TypeAlias = Any
"""What is expected: a type annotation, or one of the following.

``[kind]`` is a tuple of any length, ``(kind, kind)`` one of that length, a set the values that are allowed, a ``range``
a whole number in it, a pattern a text that matches it.
"""


@dataclass(frozen=True)
class Numbers:
    """An array of finite numbers with so many axes; with None, a number or a list of numbers."""

    axes: int | None = 1
    whole: bool = False


@dataclass(frozen=True)
class Maybe:
    """What may be missing; null stands for the value ``missing``."""

    kind: Kind
    missing: float | None = None


LARGEST: Final = 2**31 - 1
"""No whole number is larger."""
_COUNT, _EXPONENT = range(LARGEST + 1), range(-(2**20), 2**20 + 1)
_INDICES, _MATRIX, _SCALE = Numbers(whole=True), Numbers(2), Numbers(None)
_DIGEST = re.compile("(declared:)?[0-9a-f]{64}")
_ABOUT = ("Certificate", "Reach", "Sensitivity", "Tube", "Contraction", "Discrepancy")

FIELDS: dict[str, Kind] = {
    **{f"Tree.{name}": _INDICES for name in ("layer", "index", "child", "void", "neuron", "second", "passed")},
    **{f"{name}.network": _DIGEST for name in _ABOUT},
    "Discrepancy.other": re.compile(f"({_DIGEST.pattern})?"),
    "Discrepancy.precision": {"", "float64", "float32", "float16"},
    "CertifiedRadius.subject": _DIGEST,
    "CertifiedRadius.bound": Maybe(float, math.inf),
    "SweepRow.trivial": Maybe(float, math.inf),
    "Hints.exponents": [_EXPONENT],
    "Curved.slopes": _MATRIX,
    "Curved.mix": _MATRIX,
    "Reach.shape": _MATRIX,
    "Reach.hull": (_MATRIX, _MATRIX),
    "Sensitivity.matrix": _MATRIX,
    "Contraction.shape": _MATRIX,
}
"""Fields whose annotations say too little."""
LEFT_OUT: dict[str, dict[str, Any]] = {
    "Certificate": {"layers": (), "facts": (), "note": ""},  # what a file says of itself is no proof
    **{name: {"facts": ()} for name in (*_ABOUT[1:], "InvariantEllipsoid")},
    "CertifiedRadius": {"broken": None, "facts": ()},
}
"""Fields that are not written, and what they are after reading."""
FAMILIES: dict[type, tuple[type, ...]] = {
    Region: (Everywhere, Box, Ball),
    Norm: (L1, L2, LInf),
    Enclosure: (Lipschitz, Linear),
    RowHints: (DualHints, QuadraticHints),
}
"""The classes that a field of an abstract type may hold."""
_NAMED = {member for members in FAMILIES.values() for member in members}
_PARAMETERS: dict[type, dict[str, Kind]] = {
    Everywhere: {},
    Box: {"lower": Numbers(), "upper": Numbers()},
    Ball: {"center": Numbers(), "radius": Numbers(0), "clip": Maybe(Box), "norm": Norm},
    L1: {"scale": _SCALE},
    L2: {"scale": _SCALE},
    LInf: {"scale": _SCALE},
}
"""What a class is made from, where its fields say something else."""


def encode(kind: Kind, value: Any) -> Any:
    """A value of that kind in JSON's types; InvalidInput if there is no way to write it."""
    if isinstance(kind, Maybe):
        missing = value is None or (kind.missing is not None and value == kind.missing)
        return None if missing else encode(kind.kind, value)
    if isinstance(kind, Numbers):
        return np.asarray(value, dtype=np.int64 if kind.whole else np.float64).tolist()
    if isinstance(kind, list):
        return [encode(kind[0], item) for item in value]
    if isinstance(kind, tuple):
        return [encode(part, item) for part, item in zip(kind, value, strict=True)]
    if kind in (float, bool):
        return kind(value)
    if isinstance(kind, (range, set)):
        return value if isinstance(value, str) else int(value)
    if kind in (str, object) or isinstance(kind, re.Pattern):
        return str(value)
    if type(value) not in FAMILIES.get(kind, (kind,)):
        raise InvalidInput(f"a {kind.__name__} of type {type(value).__name__} cannot be saved")
    made: type = type(value)
    found = {name: encode(part, getattr(value, name)) for name, part in _entries(made).items()}
    return {"kind": made.__name__, **found} if made in _NAMED else found


def decode(kind: Kind, value: Any, where: str) -> Any:
    """The value that :func:`encode` wrote; ValueError says what is wrong at the place ``where`` of a document."""
    if isinstance(kind, Maybe):
        return kind.missing if value is None else decode(kind.kind, value, where)
    if isinstance(kind, Numbers):
        return _array(kind, value, where)
    if isinstance(kind, (list, tuple)):
        _expect(isinstance(value, list), where, "a list")
        _expect(isinstance(kind, list) or len(value) == len(kind), where, f"a list of length {len(kind)}")
        parts = kind * len(value) if isinstance(kind, list) else kind
        return tuple(decode(part, value[k], f"{where}[{k}]") for k, part in enumerate(parts))
    if kind is float:
        _expect(_is_number(value), where, "a finite number")
        return float(value)
    if kind is bool:
        _expect(isinstance(value, bool), where, "true or false")
        return value
    if isinstance(kind, range):
        _expect(type(value) is int and value in kind, where, f"a whole number from {kind[0]} to {kind[-1]}")
        return value
    if isinstance(kind, set):
        _expect(type(value) in (int, str) and value in kind, where, f"one of {sorted(kind)}")
        return value
    if kind in (str, object) or isinstance(kind, re.Pattern):
        # no control characters, which a terminal obeys, and no halves of characters
        _expect(isinstance(value, str) and value.isprintable(), where, "a text that can be printed")
        _expect(not isinstance(kind, re.Pattern) or kind.fullmatch(value) is not None, where, "a digest")
        return value
    return _record(kind, value, where)


def _record(kind: type, value: Any, where: str) -> Any:
    """A dataclass from exactly the entries that it is written with."""
    _expect(isinstance(value, dict), where, "a group of fields")
    members = FAMILIES.get(kind, (kind,))
    if members[0] in _NAMED:
        names = {member.__name__: member for member in members}
        _expect(type(value.get("kind")) is str and value["kind"] in names, f"{where}.kind", f"one of {sorted(names)}")
        kind, value = names[value["kind"]], {name: item for name, item in value.items() if name != "kind"}
    entries = _entries(kind)
    if value.keys() != entries.keys():
        odd = min(value.keys() ^ entries.keys())
        state = "missing" if odd in entries else "unknown"
        raise ValueError(
            f"the field {odd[:40]!a} of {where} is {state}; answers of earlier versions must be made again"
        )
    found = {name: decode(part, value[name], f"{where}.{name}") for name, part in entries.items()}
    return kind(**found, **LEFT_OUT.get(kind.__name__, {}))


@cache
def _entries(kind: type) -> dict[str, Kind]:
    """What a class is written as: name → kind."""
    if kind in _PARAMETERS:
        return _PARAMETERS[kind]
    hints, hidden = get_type_hints(kind), LEFT_OUT.get(kind.__name__, {})
    names = [field.name for field in fields(kind) if field.name not in hidden]
    return {name: FIELDS.get(f"{kind.__name__}.{name}", _resolved(hints[name])) for name in names}


def _resolved(hint: Any) -> Kind:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is np.ndarray:
        return Numbers()
    if origin is list or inner[-1:] == (Ellipsis,):
        return [_resolved(inner[0])]
    if origin is tuple:
        return tuple(map(_resolved, inner))
    if origin is Literal:
        return set(inner)
    if NoneType in inner:
        return Maybe(_resolved(inner[0]))
    return _COUNT if hint is int else hint


def _array(kind: Numbers, value: Any, where: str) -> Array:
    axes = int(isinstance(value, list)) if kind.axes is None else kind.axes
    sort = "whole" if kind.whole else "finite"
    what = (f"a {sort} number", f"a list of {sort} numbers", f"a matrix of {sort} numbers")[axes]
    entries = [value]
    for _ in range(axes):
        _expect(all(isinstance(row, list) for row in entries), where, what)
        entries = [entry for row in entries for entry in row]
    _expect(all(map(_is_whole if kind.whole else _is_number, entries)), where, what)
    array = np.array(value, dtype=np.int64 if kind.whole else np.float64)
    _expect(array.ndim == axes, where, what)
    return array


def _is_whole(value: Any) -> bool:
    return type(value) is int and abs(value) <= LARGEST


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _expect(holds: bool, where: str, what: str) -> None:
    if not holds:
        raise ValueError(f"{where} must be {what}")
