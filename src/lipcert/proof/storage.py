"""Certificates on disk: one JSON document, self-describing, versioned, with no code in it.

The document holds a SHA-256 of its own content, so that accidents are noticed when it is read. Deliberate changes are
noticed when it is verified: the bound is derived again, and nothing in the file is believed. Reading is strict: every
field must be there, once, with the type it is written with, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lipcert.errors import InvalidInput, UnreadableCertificate
from lipcert.model.arrays import Array
from lipcert.model.files import is_file, write_whole
from lipcert.model.regions import Ball, Box, Everywhere, Region
from lipcert.proof.hints import Enclosure, Hints, Linear, Lipschitz, Part
from lipcert.proof.tree import Tree

FORMAT = "lipcert certificate"
VERSION = 3
"""Version 1 had other digests of networks, and proofs that were not always right; in version 2 pieces of a region were
proved in another way, so that bounds over pieces are not found again."""
_PROOF = ("sweeps", "part_sweeps", "tree", "witness", "seconds", "verified")
_CUTS, _VOIDS = ("layer", "index", "value", "child"), ("void", "neuron", "weight")
_WHOLE = ("layer", "index", "child", "void", "neuron")
_LARGEST = 2**31 - 1
"""No whole number of a certificate is larger."""
_DEEPEST = 2**20
"""No exponent is larger."""


def save(certificate: Any, path: str | os.PathLike[str]) -> None:
    """Write a Certificate (whose class uses this module); the file appears whole or not at all."""
    content = _content(certificate)
    document = {"format": FORMAT, "version": VERSION, "sha256": _checksum(content), "content": content}
    write_whole(path, json.dumps(document, indent=1, allow_nan=False))


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields of a Certificate that :func:`save` wrote; raise UnreadableCertificate for anything else."""
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
    _right_version(path, document.get("version"))
    try:
        _, _, claimed, content = _fields(document, "format", "version", "sha256", "content")
        if claimed != _checksum(_mapping(content)):
            raise ValueError("its content does not match its checksum")
        fields = _read(_mapping(content))
    except (ValueError, OverflowError, RecursionError) as error:  # an InvalidInput is a ValueError
        raise UnreadableCertificate(f"{path} is damaged: {error}") from None
    if document["version"] < VERSION and fields["tree"] is not None:
        raise UnreadableCertificate(
            f"{path} is of version 2, whose proofs over pieces of a region cannot be repeated; certify again"
        )
    return fields


def _right_version(path: str | os.PathLike[str], version: Any) -> None:
    if type(version) is int and version == 1:
        raise UnreadableCertificate(
            f"{path} was written by version 0.1, whose digests and proofs were different; certify again"
        )
    if type(version) is not int or version not in (2, VERSION):
        came = type(version).__name__ if isinstance(version, (list, dict)) else ascii(version)[:20]
        raise UnreadableCertificate(
            f"{path} is of version {came}; this program reads version {VERSION}: certify again, or use"
            " the program that wrote it"
        )


def _checksum(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field is there twice")
    return fields


def _no_constant(name: str) -> Any:
    raise ValueError(f"it contains {name}, which is no number")


def _content(certificate: Any) -> dict[str, Any]:
    bound, part = float(certificate.bound), certificate.part
    if not 0.0 <= bound < np.inf:
        raise InvalidInput(f"a certificate without a finite bound cannot be saved; this one has {bound}")
    return {
        "bound": bound.hex(),
        "bound_decimal": repr(bound),
        "method": str(certificate.method),
        "network": certificate.network,
        "region": _region_out(certificate.region),
        "layers": [int(end) for end in part.layers],
        "inputs": None if part.inputs is None else [int(k) for k in part.inputs],
        "outputs": None if part.outputs is None else [int(k) for k in part.outputs],
        "sweeps": [_sweep_out(sweep) for sweep in certificate.sweeps],
        "part_sweeps": [_sweep_out(sweep) for sweep in certificate.part_sweeps],
        "tree": _tree_out(certificate.tree),
        "witness": None if certificate.witness is None else _array_out(certificate.witness),
        "seconds": float(certificate.seconds),
        "verified": bool(certificate.verified),
    }


def _read(content: Mapping[str, Any]) -> dict[str, Any]:
    claim, decimal, method, digest, region, layers, inputs, outputs = _fields(
        {name: field for name, field in content.items() if name not in _PROOF},
        *("bound", "bound_decimal", "method", "network", "region", "layers", "inputs", "outputs"),
    )
    sweeps, part_sweeps, tree, witness, seconds, verified = _fields(
        {name: field for name, field in content.items() if name in _PROOF}, *_PROOF
    )
    bound = _hexadecimal(claim)
    if repr(bound) != decimal:
        raise ValueError("its two statements of the bound differ")
    if not re.fullmatch("[0-9a-f]{64}", _text(digest)):
        raise ValueError("its digest of the network is none")
    start, stop = (_whole(end) for end in _list(layers, 2))
    ends = [None if end is None else tuple(_whole(k) for k in _list(end)) for end in (inputs, outputs)]
    if not isinstance(verified, bool):
        raise ValueError("its field 'verified' is neither true nor false")
    return {
        "bound": bound,
        "method": _shown(method),
        "region": _region_in(_mapping(region)),
        "network": digest,
        "part": Part((start, stop), *ends),
        "layers": (),
        "sweeps": tuple(_sweep_in(_mapping(sweep)) for sweep in _list(sweeps)),
        "part_sweeps": tuple(_sweep_in(_mapping(sweep)) for sweep in _list(part_sweeps)),
        "seconds": _real(seconds),
        "verified": False,  # what a file says of itself is no proof
        "tree": None if tree is None else _tree_in(_mapping(tree)),
        "witness": None if witness is None else _array_in(witness, 1),
    }


def _region_out(region: Region) -> dict[str, Any]:
    if isinstance(region, Everywhere):
        return {"kind": "everywhere"}
    if isinstance(region, Box):
        return {"kind": "box", "lower": _array_out(region.lower), "upper": _array_out(region.upper)}
    if isinstance(region, Ball):
        clip = None if region.clip is None else _region_out(region.clip)
        return {"kind": "ball", "center": _array_out(region.center), "radius": _array_out(region.radius), "clip": clip}
    raise InvalidInput(f"a region of type {type(region).__name__} cannot be saved")


def _region_in(value: Mapping[str, Any]) -> Region:
    kind = value.get("kind")
    if kind == "everywhere":
        _fields(value, "kind")
        return Everywhere()
    if kind == "box":
        _, lower, upper = _fields(value, "kind", "lower", "upper")
        return Box(_array_in(lower, 1), _array_in(upper, 1))
    if kind != "ball":
        raise ValueError("it names an unknown kind of region")
    _, center, radius, clip = _fields(value, "kind", "center", "radius", "clip")
    box = None if clip is None else _region_in(_mapping(clip))
    return Ball(_array_in(center, 1), _array_in(radius, 0), box)


def _sweep_out(sweep: Hints) -> dict[str, Any]:
    return {
        "enclosures": [_enclosure_out(enclosure) for enclosure in sweep.enclosures],
        "exponents": [int(exponent) for exponent in sweep.exponents],
        "multipliers": [_array_out(multiplier) for multiplier in sweep.multipliers],
        "lines": [[_array_out(lower), _array_out(upper)] for lower, upper in sweep.lines],
    }


def _sweep_in(value: Mapping[str, Any]) -> Hints:

    enclosures, exponents, multipliers, lines = _fields(value, "enclosures", "exponents", "multipliers", "lines")
    pairs = [_list(pair, 2) for pair in _list(lines)]
    return Hints(
        enclosures=tuple(_enclosure_in(_mapping(enclosure)) for enclosure in _list(enclosures)),
        multipliers=tuple(_array_in(multiplier, 1) for multiplier in _list(multipliers)),
        exponents=tuple(_whole(exponent, -_DEEPEST, _DEEPEST) for exponent in _list(exponents)),
        lines=tuple((_array_in(lower, 1), _array_in(upper, 1)) for lower, upper in pairs),
    )


def _enclosure_out(enclosure: Enclosure) -> dict[str, Any]:
    if isinstance(enclosure, Lipschitz):
        return {"kind": "lipschitz"}
    if isinstance(enclosure, Linear):
        return {"kind": "linear", "depth": enclosure.depth, "tilt": float(enclosure.tilt)}
    raise InvalidInput(f"an enclosure of type {type(enclosure).__name__} cannot be saved")


def _enclosure_in(value: Mapping[str, Any]) -> Enclosure:
    if value.get("kind") == "lipschitz":
        _fields(value, "kind")
        return Lipschitz()
    if value.get("kind") != "linear":
        raise ValueError("it names an unknown enclosure")
    _, depth, tilt = _fields(value, "kind", "depth", "tilt")
    return Linear(None if depth is None else _whole(depth), _real(tilt))


def _tree_out(tree: Tree | None) -> dict[str, Any] | None:
    if tree is None:
        return None
    columns = {name: _array_out(getattr(tree, name)) for name in (*_CUTS, *_VOIDS)}
    return {"bound": float(tree.bound).hex()} | columns


def _tree_in(value: Mapping[str, Any]) -> Tree:

    bound, *fields = _fields(value, "bound", *_CUTS, *_VOIDS)
    columns = {name: _array_in(column, 1) for name, column in zip((*_CUTS, *_VOIDS), fields, strict=True)}
    if any(len({columns[name].size for name in group}) != 1 for group in (_CUTS, _VOIDS)):
        raise ValueError("the columns of its tree differ in length")
    for name in _WHOLE:
        column = columns[name]
        if (column != np.round(column)).any() or (np.abs(column) > _LARGEST).any():
            raise ValueError("a column of its tree has entries that are no whole numbers")
        columns[name] = column.astype(np.int64)
    return Tree(bound=_hexadecimal(bound), **columns)


def _array_out(array: Array) -> dict[str, Any]:
    data = np.asarray(array, dtype="<f8", order="C")
    return {"shape": list(data.shape), "float64": base64.b64encode(data.tobytes()).decode("ascii")}


def _array_in(value: Any, axes: int) -> Array:
    """A finite array with that many axes."""
    shape, text = _fields(_mapping(value), "shape", "float64")
    sizes = [_whole(size) for size in _list(shape, axes)]
    data = np.frombuffer(base64.b64decode(_text(text), validate=True), dtype="<f8")
    if data.size != math.prod(sizes):
        raise ValueError("an array does not have the shape that it says it has")
    array = np.array(data.reshape(sizes), dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError("an array has entries that are not finite")
    return array


def _fields(value: Mapping[str, Any], *names: str) -> list[Any]:
    """The values of exactly these fields."""
    if set(value) != set(names):
        odd = sorted(set(value) ^ set(names))[0]
        raise ValueError(f"the field {odd[:40]!a} is {'missing' if odd in names else 'unknown'}")
    return [value[name] for name in names]


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("it has something else where a group of fields should be")
    return value


def _list(value: Any, length: int | None = None) -> list[Any]:
    if not isinstance(value, list) or length not in (None, len(value)):
        raise ValueError(f"it lacks a list{'' if length is None else f' of length {length}'}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("it lacks a text")
    return value


def _shown(value: Any) -> str:
    """A text that can be printed: no control characters, which a terminal obeys, and no halves of characters."""
    text = _text(value)
    if not text.isprintable():
        raise ValueError("a text has characters that cannot be printed")
    return text


def _whole(value: Any, least: int = 0, most: int = _LARGEST) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"it lacks a whole number from {least} to {most}")
    return value


def _real(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError("it lacks a finite number")
    return float(value)


def _hexadecimal(value: Any) -> float:
    """A number that is finite and not negative, in Python's hexadecimal notation."""
    if not re.fullmatch(r"0x[01]\.[0-9a-f]{1,13}p[+-][0-9]{1,4}", _text(value)):
        raise ValueError("a bound is not in hexadecimal notation")
    return float.fromhex(value)
