"""Certificates on disk: one JSON document, self-describing, versioned, with no code in it.

The document holds a SHA-256 of its own content, so that accidents are noticed when it is read. Deliberate changes are
noticed when it is verified: the bound is derived again, and nothing in the file is believed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lipcert.enclosures import Enclosure, Linear, Lipschitz
from lipcert.errors import InvalidInput, UnreadableCertificate
from lipcert.regions import Ball, Box, Everywhere, Region
from lipcert.typing import Array

if TYPE_CHECKING:
    from lipcert.certificate import Certificate, Sweep
    from lipcert.verify.tree import Tree

FORMAT = "lipcert certificate"
VERSION = 1


def save(certificate: Certificate, path: str | os.PathLike[str]) -> None:
    """Write a certificate; the file appears whole or not at all."""
    target = Path(path)
    content = _content(certificate)
    document = {"format": FORMAT, "version": VERSION, "sha256": _checksum(content), "content": content}
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with draft.open("w", encoding="utf-8") as stream:
            json.dump(document, stream, indent=1, allow_nan=False)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def load(path: str | os.PathLike[str]) -> Certificate:
    """Read a certificate that :func:`save` wrote; raise UnreadableCertificate for anything else."""
    try:
        document = json.loads(Path(path).read_bytes())
    except FileNotFoundError:
        raise UnreadableCertificate(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableCertificate(f"{path} is not a certificate file: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UnreadableCertificate(f"{path} is not a certificate file: it does not say so in its field 'format'")
    if document.get("version") != VERSION:
        raise UnreadableCertificate(
            f"{path} is of version {document.get('version')!r}; this program reads version {VERSION}"
        )
    content = document.get("content")
    if not isinstance(content, dict) or document.get("sha256") != _checksum(content):
        raise UnreadableCertificate(f"{path} is damaged: its content does not match its checksum")
    try:
        return _certificate(content)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, InvalidInput, binascii.Error) as error:
        raise UnreadableCertificate(f"{path} is damaged: {error}") from None


def _checksum(content: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        return "none"
    return hashlib.sha256(text.encode()).hexdigest()


def _content(certificate: Certificate) -> dict[str, Any]:
    part = certificate.part
    return {
        "bound": float(certificate.bound).hex(),
        "bound_decimal": repr(float(certificate.bound)),
        "method": str(certificate.method),
        "network": certificate.network,
        "region": _region_out(certificate.region),
        "layers": list(part.layers),
        "inputs": None if part.inputs is None else list(part.inputs),
        "outputs": None if part.outputs is None else list(part.outputs),
        "sweeps": [_sweep_out(sweep) for sweep in certificate.sweeps],
        "part_sweeps": [_sweep_out(sweep) for sweep in certificate.part_sweeps],
        "tree": _tree_out(certificate.tree),
        "seconds": certificate.seconds,
        "verified": certificate.verified,
    }


def _certificate(content: Mapping[str, Any]) -> Certificate:
    from lipcert.certificate import Certificate, Part

    ends = [None if content[end] is None else tuple(int(k) for k in content[end]) for end in ("inputs", "outputs")]
    start, stop = content["layers"]
    bound = float.fromhex(content["bound"])
    if not 0.0 <= bound < np.inf or repr(bound) != content["bound_decimal"]:
        raise ValueError("its two statements of the bound differ or are no finite number")
    return Certificate(
        bound=bound,
        method=str(content["method"]),
        region=_region_in(content["region"]),
        network=str(content["network"]),
        part=Part((int(start), int(stop)), *ends),
        layers=(),
        sweeps=tuple(_sweep_in(sweep) for sweep in content["sweeps"]),
        part_sweeps=tuple(_sweep_in(sweep) for sweep in content["part_sweeps"]),
        seconds=float(content["seconds"]),
        verified=bool(content["verified"]),
        tree=_tree_in(content["tree"]),
    )


def _array_out(array: Array) -> dict[str, Any]:
    data = np.asarray(array, dtype="<f8", order="C")
    return {"shape": list(data.shape), "float64": base64.b64encode(data.tobytes()).decode("ascii")}


def _array_in(value: Mapping[str, Any]) -> Array:
    shape = tuple(int(k) for k in value["shape"])
    data = np.frombuffer(base64.b64decode(value["float64"], validate=True), dtype="<f8")
    array = np.array(data.reshape(shape), dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError("an array has entries that are not finite")
    return array


def _region_out(region: Region) -> dict[str, Any]:
    if isinstance(region, Everywhere):
        return {"kind": "everywhere"}
    if isinstance(region, Box):
        return {"kind": "box", "lower": _array_out(region.lower), "upper": _array_out(region.upper)}
    if isinstance(region, Ball):
        clip = None if region.clip is None else _region_out(region.clip)
        return {
            "kind": "ball",
            "center": _array_out(region.center),
            "radius": _array_out(region.radius),
            "clip": clip,
        }
    raise InvalidInput(f"a region of type {type(region).__name__} cannot be saved")


def _region_in(value: Mapping[str, Any]) -> Region:
    if value["kind"] == "everywhere":
        return Everywhere()
    if value["kind"] == "box":
        return Box(_array_in(value["lower"]), _array_in(value["upper"]))
    if value["kind"] != "ball":
        raise ValueError(f"it names an unknown kind of region, {value['kind']!r}")
    clip = None if value["clip"] is None else _region_in(value["clip"])
    return Ball(_array_in(value["center"]), _array_in(value["radius"]), clip)


def _sweep_out(sweep: Sweep) -> dict[str, Any]:
    return {
        "enclosures": [_enclosure_out(enclosure) for enclosure in sweep.enclosures],
        "exponents": list(sweep.exponents),
        "multipliers": [_array_out(multiplier) for multiplier in sweep.multipliers],
        "lines": [[_array_out(lower), _array_out(upper)] for lower, upper in sweep.lines],
    }


def _sweep_in(value: Mapping[str, Any]) -> Sweep:
    from lipcert.certificate import Sweep

    lines = [(_array_in(lower), _array_in(upper)) for lower, upper in value["lines"]]
    return Sweep(
        enclosures=tuple(_enclosure_in(enclosure) for enclosure in value["enclosures"]),
        multipliers=tuple(_array_in(multiplier) for multiplier in value["multipliers"]),
        exponents=tuple(int(exponent) for exponent in value["exponents"]),
        lines=tuple(lines),
    )


def _tree_out(tree: Tree | None) -> dict[str, Any] | None:
    if tree is None:
        return None
    columns = {"layer": tree.layer, "index": tree.index, "value": tree.value, "child": tree.child}
    return {"bound": float(tree.bound).hex()} | {name: _array_out(column) for name, column in columns.items()}


def _tree_in(value: Mapping[str, Any] | None) -> Tree | None:
    if value is None:
        return None
    from lipcert.verify.tree import Tree

    layer, index, child = (_integers_in(value[name]) for name in ("layer", "index", "child"))
    cuts = _array_in(value["value"])
    if len({column.shape for column in (layer, index, child, cuts)}) != 1 or layer.ndim != 1:
        raise ValueError("the columns of its tree differ in length")
    return Tree(layer, index, cuts, child, float.fromhex(value["bound"]))


def _integers_in(value: Mapping[str, Any]) -> Array:
    array = _array_in(value)
    if (array != np.round(array)).any() or (np.abs(array) > 2**52).any():
        raise ValueError("a column of its tree has entries that are no whole numbers")
    return array.astype(np.int64)


def _enclosure_out(enclosure: Enclosure) -> dict[str, Any]:
    if isinstance(enclosure, Lipschitz):
        return {"kind": "lipschitz"}
    if isinstance(enclosure, Linear):
        return {"kind": "linear", "depth": enclosure.depth, "tilt": enclosure.tilt}
    raise InvalidInput(f"an enclosure of type {type(enclosure).__name__} cannot be saved")


def _enclosure_in(value: Mapping[str, Any]) -> Enclosure:
    if value["kind"] == "lipschitz":
        return Lipschitz()
    if value["kind"] != "linear":
        raise ValueError(f"it names an unknown enclosure, {value['kind']!r}")
    depth = value["depth"]
    return Linear(None if depth is None else int(depth), float(value["tilt"]))
