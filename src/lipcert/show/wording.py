"""Numbers, networks, regions and claims in words."""

from __future__ import annotations

from lipcert.arguments.words import downward, point_in_words, sizes_in_words, upward
from lipcert.kernel.certificate import Certificate
from lipcert.kernel.hints import Part
from lipcert.model.network import Network
from lipcert.model.norms import Norm, Norms
from lipcert.model.regions import Ball, Box, Region

__all__ = [
    "WHOLE",
    "activations",
    "brief_region",
    "describe_network",
    "describe_region",
    "downward",
    "restrictions",
    "upward",
    "whom",
]


WHOLE = 64
"""Coordinates of a point that a theorem spells out; beyond that the file has them."""


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
    sizes = sizes_in_words(network.sizes)
    return ", ".join([sizes, *dict.fromkeys(activations(network))])


def describe_region(region: Region, shown: int = 6) -> str:
    """A region in a few words; points with more than so many coordinates are cut."""
    if isinstance(region, Box):
        lower, upper = (point_in_words(end.tolist(), shown) for end in (region.lower, region.upper))
        return f"box from {lower} to {upper}"
    if isinstance(region, Ball):
        clip = "" if region.clip is None else f", within the {describe_region(region.clip, shown)}"
        kind = "" if region.plain else f"{region.norm.symbol} "
        size = f"{float(region.radius):g}{_units(region.norm)}"
        return f"{kind}ball of radius {size} around {point_in_words(region.center.tolist(), shown)}{clip}"
    return "all inputs"


def brief_region(region: Region) -> str:
    """A region in few words for tables, without its place."""
    if isinstance(region, Ball):
        kind = "" if region.plain else f"{region.norm.symbol} "
        size = f"{float(region.radius):g}{_units(region.norm)}"
        return f"{kind}ball, radius {size}{'' if region.clip is None else ', clipped'}"
    return "box" if isinstance(region, Box) else describe_region(region)


def _units(norm: Norm) -> str:
    """The units of a norm, if it has any."""
    return "" if norm.scale == 1.0 else str(norm).removeprefix(norm.symbol)


def measured(norms: Norms) -> str:
    """The norms of a bound in a few words; empty if both are plain ℓ2."""
    return "" if norms.plain else f"from {norms.input} to {norms.output}"


def unit_notes(norms: Norms) -> list[str]:
    """The units of the norms of a bound."""
    ends = ("x − y", norms.input), ("f(x) − f(y)", norms.output)
    notes = [f"{what} in units of {_units(norm).removeprefix(' in units of ')}" for what, norm in ends if _units(norm)]
    return notes + [f"{what} by the inverse of a matrix of shape" for what, norm in ends if norm.matrix is not None]


def whom(claim: Certificate) -> str:
    """The pairs of points that a certificate is about."""
    start = claim.part.layers[0]
    who = "any two inputs x, y" if start == 0 else f"the values x, y that layer {start} puts out for any two inputs"
    return f"{who} in the {describe_region(claim.region, WHOLE)}" if claim.region.bounded else who


def restrictions(part: Part, depth: int | None) -> list[str]:
    """What a certificate leaves out of a network of that depth; None if the depth is unknown."""
    start, stop = part.layers
    notes = []
    if part.inputs is not None:
        notes.append(f"x and y differing in {_numbered('coordinate', part.inputs)} only")
    if depth is not None and (start, stop) != (0, depth):
        notes.append(f"up to what layer {stop} computes before its activation")
    if part.outputs is not None:
        notes.append(f"{_numbered('output', part.outputs)} only")
    return notes + unit_notes(part.norms)


def _numbered(what: str, which: tuple[int, ...]) -> str:
    return f"{what}{'s' if len(which) > 1 else ''} {', '.join(map(str, which))}"
