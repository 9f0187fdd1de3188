"""Norms of inputs and outputs: ℓ1, ℓ2 and ℓ∞, with units, as values."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from lipcert.arguments.words import NormWords, scale_in_words
from lipcert.errors import InvalidInput
from lipcert.model.arrays import Array

Self = TypeVar("Self", bound="Norm")


class Norm(NormWords, ABC):
    """A norm ‖x‖ of vectors: that of the vector x/scale, coordinate by coordinate.

    ``scale`` says what one unit of each coordinate is: with ``scale=(0.1, 100)`` a change by 0.1 in the first
    coordinate counts as much as one by 100 in the second. It is one positive number, or one per coordinate.
    """

    scale: Any
    name: ClassVar[str]
    symbol: ClassVar[str]
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
        return np.array(np.broadcast_to(np.asarray(self.scale, dtype=float), (size,)))

    @property
    def bare(self: Self) -> Self:
        """The same norm without units."""
        return self if self.scale == 1.0 else type(self)()

    @property
    def has_units(self) -> bool:
        return self.bare is not self

    def of(self, vectors: Array) -> Array:
        """The norm of each vector (..., n), rounded as it comes."""
        units = self.units(vectors.shape[-1])
        return np.linalg.norm(vectors if units is None else vectors / units, ord=_ORDERS[self.name], axis=-1)


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
    symbol: ClassVar[str] = "ℓ1"
    dual: ClassVar[str] = "linf"


@dataclass(frozen=True, repr=False)
class LInf(Norm):
    """The largest |x_i|/scale_i."""

    scale: Any = 1.0
    name: ClassVar[str] = "linf"
    symbol: ClassVar[str] = "ℓ∞"
    dual: ClassVar[str] = "l1"


@dataclass(frozen=True, repr=False)
class L2(Norm):
    """sqrt Σ (x_i/scale_i)²."""

    scale: Any = 1.0
    name: ClassVar[str] = "l2"
    symbol: ClassVar[str] = "ℓ2"
    dual: ClassVar[str] = "l2"


NORMS: dict[str, type[Norm]] = {kind.name: kind for kind in (L1, L2, LInf)}
"""The norms by name, as on the command line and in files."""
_ORDERS: dict[str, Any] = {"l1": 1, "l2": 2, "linf": np.inf}


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
        return Norms(self.input.bare, self.output.bare) if self.has_units else self

    @property
    def has_units(self) -> bool:
        return self.input.has_units or self.output.has_units

    @property
    def pair(self) -> tuple[str, str]:
        """The names, as in ('linf', 'l2')."""
        return self.input.name, self.output.name

    def __str__(self) -> str:
        return f"{self.input} → {self.output}"


PLAIN = Norms()


def norm_in(name: str, value: Any) -> Norm:
    """A norm that a user gave, or an error that names the argument; None is ℓ2, a name such as 'linf' that norm."""
    if value is None:
        return L2()
    if isinstance(value, str) and value in NORMS:
        return NORMS[value]()
    if not isinstance(value, Norm):
        raise InvalidInput(f"{name} must be a norm such as LInf() or L2(scale=[0.1, 100]), got {value!r}")
    return value
