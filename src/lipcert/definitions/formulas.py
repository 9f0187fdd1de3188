"""Formulas of activations that users define: data, recorded from a function and evaluated again.

A formula is evaluated by the same numpy functions in the same order as the function that it was recorded from, so it
gives the same digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from scipy import special

from lipcert.errors import InvalidInput
from lipcert.model.arrays import Array

Function = Callable[[Any], Any]
Formula = Any
"""The variable ``"x"``, a number, or a tuple of a function's name and its arguments."""
_NUMPY = (
    *("add", "subtract", "multiply", "divide", "negative", "square", "sqrt", "absolute", "maximum", "minimum", "where"),
    *("exp", "expm1", "log", "log1p", "logaddexp", "sin", "cos", "sinh", "cosh", "tanh", "arctan"),
    *("greater", "greater_equal", "less", "less_equal"),
)
FUNCTIONS: Final = {
    **{name: getattr(np, name) for name in _NUMPY},
    **{name: getattr(special, name) for name in ("expit", "erf", "erfc", "ndtr")},
    "power": lambda base, exponent: base**exponent,  # as Python writes it: numpy squares where it can
}
"""What a formula may consist of."""


def evaluated(formula: Formula, v: Array) -> Array:
    """The formula at points, in floating point."""

    def at(part: Formula) -> Any:
        if isinstance(part, tuple):
            return FUNCTIONS[part[0]](*map(at, part[1:]))
        return v if part == "x" else part

    with np.errstate(all="ignore"):  # what is no number proves nothing
        return np.broadcast_to(np.asarray(at(formula), dtype=float), np.shape(v)).copy()


class _Variable(np.lib.mixins.NDArrayOperatorsMixin):
    """Stands for the variable, or for what was computed from it; notes each function that is applied to it."""

    def __init__(self, formula: Formula) -> None:
        self.formula = formula

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> _Variable:
        return self.__array_ufunc__(function, "__call__" if len(args) == 3 else "", *args, **kwargs)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **kwargs: Any) -> _Variable:
        name, plain = function.__name__, method == "__call__" and not kwargs
        if name not in FUNCTIONS or not plain:
            raise InvalidInput(f"a formula may not use {name}; known are {', '.join(sorted(FUNCTIONS))}")
        parts = tuple(map(_recorded, inputs))
        if name == "power" and not (isinstance(parts[1], int) and 0 < parts[1] <= 16):
            raise InvalidInput(f"a formula may only use whole powers from 1 to 16, got {parts[1]!r}")
        return _Variable((name, *parts))

    def __bool__(self) -> bool:
        raise InvalidInput("a formula may not decide by the value of its variable; use numpy.where")

    def __float__(self) -> float:
        raise InvalidInput("a formula must be written with numpy's functions, which take arrays; math's do not")


def recorded(name: str, function: Function) -> Formula:
    """What a function of one variable does; an error that names the argument where it does more than a formula can."""
    if not callable(function):
        raise InvalidInput(f"{name} must be a function of one variable, got {type(function).__name__}")
    try:
        return _recorded(function(_Variable("x")))
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from None
    except Exception as error:  # the user's own code
        raise InvalidInput(f"{name} cannot be written down as a formula ({type(error).__name__}: {error})") from None


def _recorded(value: Any) -> Formula:
    if isinstance(value, _Variable):
        return value.formula
    number = np.asarray(value)
    if number.ndim or number.dtype.kind not in "iuf" or not np.isfinite(number):
        raise InvalidInput(f"a formula may only have finite numbers as constants, got {value!r}")
    return int(number) if number.dtype.kind in "iu" else float(number)
