"""Formulas of one variable, as data: they can be compared, stored, and evaluated in other arithmetics.

A formula is evaluated by the same numpy functions in the same order as the function that it was traced from, so it
gives the same digits.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from scipy import special

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
