"""Norms, ℓ1, ℓ2 and ℓ∞ with units, and sets of inputs: a ball of some norm, a box, a clipped ball, everything."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from lipcert.arguments.numbers import clip_of, corners, radii, scaled
from lipcert.arguments.values import BallPoints, BoxPoints, EverywherePoints, RegionPoints
from lipcert.arguments.words import NormWords, named_norm, scale_in_words
from lipcert.errors import InvalidInput
from lipcert.model.arrays import Array, frozen

Self = TypeVar("Self", bound="Norm")


class Norm(NormWords, ABC):
    """A norm ‖x‖ of vectors: that of the vector x/scale, coordinate by coordinate.

    ``scale`` says what one unit of each coordinate is: with ``scale=(0.1, 100)`` a change by 0.1 in the first
    coordinate counts as much as one by 100 in the second. It is one positive number, or one per coordinate.
    """

    scale: Any
    name: ClassVar[str]
    dual: ClassVar[str]
    """The name of the norm with which it makes Hölder's inequality."""

    def __post_init__(self) -> None:
        """Check the scale and keep it as a number or a tuple."""
        try:
            scale = np.asarray(1.0 if self.scale is None else self.scale, dtype=float)
        except (TypeError, ValueError, RuntimeError):
            scale = np.zeros(0)
        if scale.ndim > 1 or not scale.size or not ((scale > 0.0) & (scale < np.inf)).all():
            words = scale_in_words(self.scale)
            raise InvalidInput(f"scale must be a positive number, or one per coordinate, all finite; got {words}")
        object.__setattr__(self, "scale", tuple(scale.tolist()) if scale.ndim else float(scale))

    def check(self, size: int, what: str) -> None:
        """An error unless it is a norm of vectors of that size; ``what`` says what they are, as in 'input_norm'."""
        if isinstance(self.scale, tuple) and len(self.scale) != size:
            raise InvalidInput(
                f"{what} has a scale of {len(self.scale)} numbers for {size} coordinates; give one number per"
                " coordinate, or a single one"
            )

    def units(self, size: int) -> Array | None:
        """The scale of each coordinate, (size,); None where all are 1."""
        if self.scale == 1.0:
            return None
        self.check(size, "a norm")
        return np.array(np.broadcast_to(np.asarray(self.scale, dtype=float), (size,)))

    @property
    def bare(self: Self) -> Self:
        """The same norm without units."""
        return self if self.scale == 1.0 else type(self)()


@dataclass(frozen=True, repr=False)
class L1(Norm):
    """Σ |x_i|/scale_i.

    Examples
    --------
    >>> float(L1(scale=(1.0, 2.0)).of(np.array([1.0, 4.0])))
    3.0
    """

    scale: Any = 1.0
    name: ClassVar[str] = "l1"
    dual: ClassVar[str] = "linf"


@dataclass(frozen=True, repr=False)
class LInf(Norm):
    """The largest |x_i|/scale_i."""

    scale: Any = 1.0
    name: ClassVar[str] = "linf"
    dual: ClassVar[str] = "l1"


@dataclass(frozen=True, repr=False)
class L2(Norm):
    """sqrt Σ (x_i/scale_i)²."""

    scale: Any = 1.0
    name: ClassVar[str] = "l2"
    dual: ClassVar[str] = "l2"


NORMS: dict[str, type[Norm]] = {kind.name: kind for kind in (L1, L2, LInf)}
"""The norms by name, as on the command line and in files."""


@dataclass(frozen=True)
class Norms:
    """The norms at the two ends of a bound: ‖Δy‖_output ≤ bound·‖Δx‖_input."""

    input: Norm = L2()
    output: Norm = L2()

    @property
    def plain(self) -> bool:
        """Whether both are ℓ2 without units."""
        return self == PLAIN

    @property
    def bare(self) -> Norms:
        """The same without units."""
        return Norms(self.input.bare, self.output.bare)

    @property
    def has_units(self) -> bool:
        return self.bare != self

    @property
    def pair(self) -> tuple[str, str]:
        """The names, as in ('linf', 'l2')."""
        return self.input.name, self.output.name

    def __str__(self) -> str:
        return f"{self.input} → {self.output}"


PLAIN = Norms()


def norm_in(name: str, value: Any) -> Norm:
    """A norm that a user gave, or an error that names the argument; None is ℓ2, a name such as 'linf' that norm."""
    found: Norm = named_norm(name, "l2" if value is None else value, NORMS, Norm)
    return found


class Region(RegionPoints, ABC):
    """A convex set Z of inputs.

    Leading axes of the arrays that define a region make it a stack of regions; every method then works on
    the stack at once. Bounded regions have a ``center``, a point of the region, (..., inputs), and a ``radius`` δ with
    ‖z - center‖₂ ≤ δ for every z of the region, up to rounding, or for a ball its radius in its own norm.
    """

    center: Array
    radius: Array
    bounded: ClassVar[bool] = True
    """Whether a centre and a radius exist."""


@dataclass(frozen=True, eq=False, repr=False)
class Everywhere(EverywherePoints, Region):
    """All inputs: the bound is then the global Lipschitz constant."""

    center = frozen(np.zeros(0))
    radius = frozen(np.asarray(np.inf))
    bounded: ClassVar[bool] = False


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Box(BoxPoints, Region):
    """All inputs between two corners, lower ≤ z ≤ upper.

    Corners may keep the shape of the network's inputs, such as (1, 28, 28). Two numbers, as in ``Box(-1, 1)``, stand
    for as many coordinates as the network has inputs.

    Examples
    --------
    >>> Box([0, 0], [1, 2]).center
    array([0.5, 1. ])
    """

    lower: Array
    upper: Array
    center: Array
    radius: Array

    def __init__(self, lower: Any, upper: Any) -> None:
        self._between(*corners(lower, upper))

    @staticmethod
    def of(lower: Array, upper: Array) -> Box:
        """From corners lower ≤ upper that are finite arrays already."""
        found: Box = object.__new__(Box)
        found._between(lower, upper)
        return found

    def _between(self, low: Array, high: Array) -> None:
        uniform, low, high = low.ndim == 0, np.atleast_1d(low), np.atleast_1d(high)
        center = np.clip(0.5 * low + 0.5 * high, low, high)
        reach = np.maximum(high - center, center - low)
        size = max(1.0, float(reach.max(initial=0.0)) * 2.0**-500)  # squares of larger numbers would overflow
        with np.errstate(over="ignore"):
            radius = size * np.linalg.norm(reach / size, axis=-1)
        _set(self, lower=np.array(low), upper=np.array(high), center=center, radius=np.asarray(radius), uniform=uniform)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Ball(BallPoints, Region):
    """All inputs within ``radius`` of ``center`` in a norm, the ℓ2 norm by default, optionally clipped to a box.

    Parameters
    ----------
    center
        A point, (inputs,), or in the shape of the network's inputs, such as (1, 28, 28). One number stands for all
        coordinates.
    radius
        δ ≥ 0.
    clip
        A pair (lower, upper) of numbers or arrays: only inputs between them count, as in ``clip=(0, 1)`` for
        images. The centre must lie inside.
    norm
        ``L1()``, ``L2()`` or ``LInf()``, each with a ``scale`` if units differ; an ℓ∞ ball is a box.

    Examples
    --------
    >>> Ball([0.2, 0.8], 0.1, clip=(0, 1)).contains([0.25, 0.8]).item()
    True
    >>> Ball([0.0, 0.0], 1.0, norm=LInf(scale=[0.1, 100.0])).contains([0.1, -90.0]).item()
    True
    """

    center: Array
    radius: Array
    clip: Box | None
    norm: Norm

    def __init__(self, center: Any, radius: Any, clip: Any = None, norm: Any = None) -> None:
        middle = scaled("center", center)
        uniform, middle = middle.ndim == 0, np.atleast_1d(middle)
        box = None if clip is None else Box(*clip_of(clip, middle))
        norm = norm_in("norm", norm)
        if not uniform:
            norm.check(middle.shape[-1], "norm")
        self._around(middle, radii(radius, middle), box, norm, uniform)

    @staticmethod
    def of(center: Array, radius: Array, clip: Box | None, norm: Norm) -> Ball:
        """From a centre and a radius that are finite arrays already."""
        found: Ball = object.__new__(Ball)
        found._around(center, radius, clip, norm, False)
        return found

    def _around(self, center: Array, radius: Array, clip: Box | None, norm: Norm, uniform: bool) -> None:
        _set(self, center=center, radius=np.asarray(radius), clip=clip, norm=norm, uniform=uniform)

    @property
    def plain(self) -> bool:
        """Whether it is a ball of the ℓ2 norm without units."""
        return self.norm == PLAIN.input

    @property
    def units(self) -> Array:
        """What one unit of each coordinate is, (inputs,)."""
        size = self.center.shape[-1]
        units = self.norm.units(size)
        return np.ones(size) if units is None else units


def _set(region: Region, **parts: Any) -> None:
    for name, part in parts.items():
        object.__setattr__(region, name, frozen(part) if isinstance(part, np.ndarray) else part)
