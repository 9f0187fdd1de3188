"""Results as one JSON object, or as text for people."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from typing import Any

from lipcert.certificate import Certificate
from lipcert.decimals import downward as downward
from lipcert.decimals import upward as upward
from lipcert.lower import LowerBound
from lipcert.multipliers import Method
from lipcert.network import Network
from lipcert.regions import Ball, Box, Region


def as_json(record: dict[str, Any]) -> str:
    """One JSON object; there is no NaN or infinity in it."""
    return json.dumps(record, ensure_ascii=False, allow_nan=False)


def certificate_record(network: Network, certificate: Certificate, lower: LowerBound | None) -> dict[str, Any]:
    """Everything there is to say of a certificate, in JSON's types."""
    return {
        "bound": certificate.bound,
        "lower": None if lower is None else lower.value,
        "lower_point": None if lower is None else lower.point.tolist(),
        "ratio": ratio(certificate.bound, lower),
        "method": method_record(certificate.method),
        "region": region_record(certificate.region),
        "network": {"digest": certificate.network, "sizes": list(network.sizes), "activations": activations(network)},
        "part": dataclasses.asdict(certificate.part),
        "seconds": certificate.seconds,
        "verified": certificate.verified,
    }


def method_record(method: Method | str) -> dict[str, Any]:
    """Name and options of a method; of a certificate that was read from a file, what it says of its method."""
    if isinstance(method, str):
        return {"name": method}
    options: dict[str, Any] = dataclasses.asdict(method) if dataclasses.is_dataclass(method) else {}
    return {"name": type(method).__name__, **options}


def region_record(region: Region) -> dict[str, Any]:
    """What defines a region."""
    if isinstance(region, Box):
        return {"kind": "box", "lower": region.lower.tolist(), "upper": region.upper.tolist()}
    if isinstance(region, Ball):
        clip = None if region.clip is None else region_record(region.clip)
        return {"kind": "ball", "center": region.center.tolist(), "radius": float(region.radius), "clip": clip}
    return {"kind": type(region).__name__.lower()}


def ratio(bound: float, lower: LowerBound | None) -> float | None:
    """How far apart bound and lower bound are; None where that has no meaning."""
    if lower is None or lower.value == 0.0 or not math.isfinite(bound / lower.value):
        return None
    return bound / lower.value


def activations(network: Network) -> list[str]:
    """Names of the hidden layers' activations."""
    return [layer.neurons.describe() for layer in network.layers if layer.neurons]


def describe_network(network: Network) -> str:
    """Sizes and activations in a few words.

    Examples
    --------
    >>> describe_network(Network.from_weights([[[1.0], [1.0]], [[1.0, 1.0], [0.0, 1.0]], [[1.0, 2.0]]]))
    '1 → 2 ×2 → 1, relu'
    """
    runs = [(size, len(list(group))) for size, group in itertools.groupby(network.sizes)]
    sizes = " → ".join(f"{size} ×{count}" if count > 1 else f"{size}" for size, count in runs)
    return ", ".join([sizes, *dict.fromkeys(activations(network))])


def describe_region(region: Region) -> str:
    """A region in a few words."""
    if isinstance(region, Box):
        return f"box from {_point(region.lower.tolist())} to {_point(region.upper.tolist())}"
    if isinstance(region, Ball):
        clip = "" if region.clip is None else f", within the {describe_region(region.clip)}"
        return f"ball of radius {float(region.radius):g} around {_point(region.center.tolist())}{clip}"
    return "all inputs"


def _point(values: list[float]) -> str:
    if len(set(values)) == 1 and len(values) > 1:
        return f"[{values[0]:g}, …]"
    shown = [f"{value:g}" for value in values[:6]] + ["…"] * (len(values) > 6)
    return f"[{', '.join(shown)}]"
