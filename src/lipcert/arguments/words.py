"""Numbers, networks and regions in few words; what is printed of a bound still holds."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any, ClassVar

import numpy as np

from lipcert.errors import InvalidInput

_SHOWN = 6
"""Coordinates of a point that are shown."""
_SCALES = 4
"""Numbers of a scale that are printed; of a longer one the first and the last."""


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


def sizes_in_words(sizes: Sequence[int]) -> str:
    """Numbers of neurons from the input to the output.

    Examples
    --------
    >>> sizes_in_words([5, 40, 40, 2])
    '5 → 40 ×2 → 2'
    """
    runs = [(size, len(list(group))) for size, group in itertools.groupby(sizes)]
    return " → ".join(f"{size} ×{count}" if count > 1 else f"{size}" for size, count in runs)


def point_in_words(values: Sequence[float], shown: int = _SHOWN) -> str:
    """The coordinates of a point, the first few of many. A brief text has equal coordinates once, a theorem has all.

    Examples
    --------
    >>> point_in_words([0.1, 0.25]), point_in_words([0.0] * 784)
    ('[0.1, 0.25]', '[0, …]')
    """
    theorem = shown > _SHOWN and len(values) <= shown
    if len(values) > 1 and len(set(values)) == 1 and not theorem:
        return f"[{values[0]:g}, …]"
    first = [f"{value:g}" for value in values[: shown if len(values) > shown else None]]
    return f"[{', '.join(first + ['…'] * (len(values) > shown))}]"


def scale_in_words(scale: Any) -> str:
    """A scale in few words."""
    flat = np.ravel(np.asarray(scale, dtype=object)).tolist()
    shown = flat if len(flat) <= _SCALES else [*flat[:3], "…", flat[-1]]
    words = ", ".join(f"{x:g}" if isinstance(x, (int, float)) else str(x) for x in shown)
    return f"({words})" if np.ndim(scale) else words


def named_norm(name: str, value: Any, norms: Mapping[str, Any], kind: type) -> Any:
    """A norm, or that of a name, or an error that names the argument."""
    if isinstance(value, str) and value in norms:
        return norms[value]()
    if not isinstance(value, kind):
        raise InvalidInput(f"{name} must be a norm such as LInf() or L2(scale=[0.1, 100]), got {value!r}")
    return value


_ORDERS: dict[str, Any] = {"l1": 1, "l2": 2, "linf": np.inf}
_SYMBOLS = {"l1": "ℓ1", "l2": "ℓ2", "linf": "ℓ∞"}


class NormWords(ABC):
    """Of a norm."""

    scale: Any
    name: ClassVar[str]

    @property
    def symbol(self) -> str:
        """Its name in texts."""
        return _SYMBOLS[self.name]

    def record(self) -> dict[str, Any]:
        """For JSON: its name, and its scale if it has one."""
        return {"name": self.name} if self.scale == 1.0 else {"name": self.name, "scale": self.scale}

    def __str__(self) -> str:
        return self.symbol if self.scale == 1.0 else f"{self.symbol} in units of {scale_in_words(self.scale)}"

    @abstractmethod
    def units(self, size: int) -> Any:
        """The scale of each coordinate, (size,); None where all are 1."""

    def of(self, vectors: Any) -> Any:
        """The norm of each vector (..., n), rounded as it comes."""
        units = self.units(vectors.shape[-1])
        return np.linalg.norm(vectors if units is None else vectors / units, ord=_ORDERS[self.name], axis=-1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.scale == 1.0 else f'scale={scale_in_words(self.scale)}'})"
