"""Numbers, networks, regions and claims in words for people."""

from __future__ import annotations

import itertools
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

from lipcert.model.network import Network
from lipcert.model.norms import L2, LInf, Norm, Norms  # noqa: F401 - for the example
from lipcert.model.regions import Ball, Box, Region
from lipcert.proof.certificate import Certificate
from lipcert.proof.hints import Part


def upward(value: float, digits: int = 6) -> str:
    """A decimal number that is not below the value, so that the printed bound still holds.

    Examples
    --------
    >>> upward(1.0000001), upward(2.0)
    ('1.00001', '2')
    """
    return _rounded(value, digits, ROUND_CEILING)


def downward(value: float, digits: int = 6) -> str:
    """A decimal number that is not above the value."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, rounding: str) -> str:
    return f"{float(Context(prec=digits, rounding=rounding).create_decimal_from_float(value)):.{digits}g}"


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
        kind = "" if region.plain else f"{region.norm.symbol} "
        size = f"{float(region.radius):g}{_units(region.norm)}"
        return f"{kind}ball of radius {size} around {_point(region.center.tolist())}{clip}"
    return "all inputs"


def brief_region(region: Region) -> str:
    """A region in fewer words still, for tables: where it lies is left out."""
    if isinstance(region, Ball):
        kind = "" if region.plain else f"{region.norm.symbol} "
        size = f"{float(region.radius):g}{_units(region.norm)}"
        return f"{kind}ball, radius {size}{'' if region.clip is None else ', clipped'}"
    return "box" if isinstance(region, Box) else "all inputs"


def _units(norm: Norm) -> str:
    """The units of a norm, where it has any."""
    return "" if norm.scale == 1.0 else str(norm).removeprefix(norm.symbol)


def measured(norms: Norms) -> str:
    """In which norms a bound is, in a few words; nothing where both are plain ℓ2."""
    return "" if norms.plain else f"from {norms.input} to {norms.output}"


def formula(norms: Norms, bound: str = "bound") -> str:
    """The inequality that a bound states.

    Examples
    --------
    >>> formula(Norms(LInf(), L2()), "3")
    '‖f(x) − f(y)‖₂ ≤ 3 · ‖x − y‖∞'
    """
    left, right = (_BAR[norm.name] for norm in (norms.output, norms.input))
    return f"‖f(x) − f(y)‖{left} ≤ {bound} · ‖x − y‖{right}"


_BAR = {"l1": "₁", "l2": "₂", "linf": "∞"}


def unit_notes(norms: Norms) -> list[str]:
    """What the norms of a bound are measured in, a sentence each."""
    ends = ("x − y", norms.input), ("f(x) − f(y)", norms.output)
    notes = [f"{what} in units of {_units(norm).removeprefix(' in units of ')}" for what, norm in ends if _units(norm)]
    return notes + [f"{what} by the inverse of a matrix of shape" for what, norm in ends if norm.matrix is not None]


def _point(values: list[float]) -> str:
    if len(set(values)) == 1 and len(values) > 1:
        return f"[{values[0]:g}, …]"
    shown = [f"{value:g}" for value in values[:6]] + ["…"] * (len(values) > 6)
    return f"[{', '.join(shown)}]"


def whom(claim: Certificate) -> str:
    """The pairs of points that a certificate speaks of."""
    start = claim.part.layers[0]
    who = "any two inputs x, y" if start == 0 else f"the values x, y that layer {start} puts out for any two inputs"
    return f"{who} in the {describe_region(claim.region)}" if claim.region.bounded else who


def restrictions(part: Part, depth: int | None) -> list[str]:
    """What a certificate leaves out of a network with so many layers; None where that is not known."""
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
