"""Formulas of one variable, as data: what a function written with numpy does, written down by calling it once.

A formula is evaluated by the same numpy functions in the same order, so it gives the same digits as the function. It
can be compared, stored, and evaluated in other arithmetics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from scipy import special

from lipcert.errors import InvalidInput
from lipcert.model.arrays import Array

Tree = Any
"""The variable ``"x"``, a number, or a tuple of a function's name and its arguments."""

_SPECIAL = ("expit", "erf", "erfc", "ndtr")
FUNCTIONS: Final = {
    **{
        name: getattr(np, name)
        for name in (
            *("add", "subtract", "multiply", "divide", "negative", "positive", "reciprocal", "square", "sqrt", "hypot"),
            *("exp", "expm1", "log", "log1p", "logaddexp", "sin", "cos", "sinh", "cosh", "tanh", "arctan"),
            *("absolute", "maximum", "minimum", "greater", "greater_equal", "less", "less_equal"),
        )
    },
    **{name: getattr(special, name) for name in _SPECIAL},
    "power": lambda base, exponent: base**exponent,  # as Python writes it: numpy squares where it can
    "where": np.where,
}
"""What a formula may consist of."""


class _Variable(np.lib.mixins.NDArrayOperatorsMixin):
    """Stands for the variable, or for what was computed from it; notes each function that is applied to it."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> _Variable:
        if method != "__call__" or kwargs or ufunc.__name__ not in FUNCTIONS:
            raise InvalidInput(f"a formula may not use {ufunc.__name__}; known are {', '.join(sorted(FUNCTIONS))}")
        tree = (ufunc.__name__, *map(_tree, inputs))
        if tree[0] == "power" and not (isinstance(tree[2], int) and 0 < tree[2] <= 16):
            raise InvalidInput(f"a formula may only use whole powers from 1 to 16, got {tree[2]!r}")
        return _Variable(tree)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> _Variable:
        if function is np.where and len(args) == 3 and not kwargs:
            return _Variable(("where", *map(_tree, args)))
        if function is np.clip and len(args) == 3 and not kwargs:
            return _Variable(("minimum", ("maximum", _tree(args[0]), _tree(args[1])), _tree(args[2])))
        raise InvalidInput(f"a formula may not use {function.__name__}; known are {', '.join(sorted(FUNCTIONS))}")

    def __bool__(self) -> bool:
        raise InvalidInput("a formula may not decide by the value of its variable; use numpy.where")

    def __float__(self) -> float:
        raise InvalidInput("a formula must be written with numpy's functions, which take arrays; math's do not")


def formula(name: str, function: Callable[[Any], Any]) -> Tree:
    """What a function of one variable does; an error that names the argument where it does more than a formula can."""
    if not callable(function):
        raise InvalidInput(f"{name} must be a function of one variable, got {type(function).__name__}")
    try:
        found = function(_Variable("x"))
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from None
    except Exception as error:  # the user's own code
        raise InvalidInput(f"{name} cannot be written down as a formula ({type(error).__name__}: {error})") from None
    return _tree(found)


def _tree(value: Any) -> Tree:
    if isinstance(value, _Variable):
        return value.tree
    number = np.asarray(value)
    if number.ndim or number.dtype.kind not in "iuf" or not np.isfinite(number):
        raise InvalidInput(f"a formula may only have finite numbers as constants, got {value!r}")
    return int(number) if number.dtype.kind in "iu" else float(number)


def evaluated(tree: Tree, v: Array) -> Array:
    """The formula at points, in floating point."""
    with np.errstate(all="ignore"):  # what is no number proves nothing
        return np.broadcast_to(np.asarray(_at(tree, v), dtype=float), np.shape(v)).copy()


def _at(tree: Tree, v: Array) -> Any:
    if isinstance(tree, tuple):
        return FUNCTIONS[tree[0]](*(_at(part, v) for part in tree[1:]))
    return v if tree == "x" else tree


def written(tree: Tree) -> str:
    """The formula as text, from which it can be told from every other; numbers are exact."""
    if isinstance(tree, tuple):
        return f"{tree[0]}({', '.join(map(written, tree[1:]))})"
    return tree.hex() if isinstance(tree, float) else str(tree)
