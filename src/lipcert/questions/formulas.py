"""What users write for an activation of their own: a function that is traced to a formula, or straight pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lipcert.errors import InvalidInput
from lipcert.model.activations import Activation
from lipcert.model.arrays import Array
from lipcert.model.declared import MOST_KINKS, PIECES
from lipcert.model.formulas import FUNCTIONS, Tree


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


def piecewise_linear(
    knots: Sequence[float] | Array | None = None,
    slopes: Sequence[float] | Array | None = None,
    value: float = 0.0,
    *,
    x: Sequence[float] | Array | None = None,
    y: Sequence[float] | Array | None = None,
) -> Activation:
    """The continuous activation of straight pieces, by kinks and slopes or through points; exact, like a table's row.

    Parameters
    ----------
    knots
        Where the slope changes, ascending.
    slopes
        One more than there are knots: left of the first, between them, right of the last.
    value
        φ at the first knot.
    x, y
        In place of the others: points (x, y) in ascending order, at least two; beyond the first and the last point
        the outer pieces go on.

    Examples
    --------
    >>> piecewise_linear(x=[-1.0, 0.0, 2.0], y=[1.0, 0.0, 4.0]).value(np.array([-2.0, 1.0])).tolist()
    [2.0, 2.0]
    >>> hat = piecewise_linear([-1.0, 0.0, 1.0], [0.0, 1.0, -1.0, 0.0])
    >>> hat.value(np.array([-2.0, 0.0, 0.25])).tolist()
    [0.0, 1.0, 0.75]
    """
    if (x is None) != (y is None) or (x is None) == (knots is None):
        raise InvalidInput("give knots and slopes, or x and y")
    if x is not None:
        across, up = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
        if across.ndim != 1 or across.shape != up.shape or across.size < 2 or (np.diff(across) <= 0.0).any():
            raise InvalidInput(f"x must be two or more ascending numbers and y as many, got {x!r} and {y!r}")
        rates = np.diff(up) / np.diff(across)
        knots, slopes, value = across, [rates[0], *rates, rates[-1]], float(up[0])
    return Activation(*_checked(knots, slopes, value))


def _checked(knots: Any, slopes: Any, value: Any) -> tuple[str, tuple[float, ...]]:
    """Name and parameters of the activation with given kinks, slopes between them, and value at the first kink."""
    try:
        points, rates, start = (np.asarray(part, dtype=float) for part in (knots, slopes, value))
    except (TypeError, ValueError):
        raise InvalidInput(f"knots and slopes must be numbers, got {knots!r} and {slopes!r}") from None
    if points.ndim != 1 or not 1 <= points.size <= MOST_KINKS:
        raise InvalidInput(f"knots must be 1 to {MOST_KINKS} numbers, got shape {points.shape}")
    if rates.shape != (points.size + 1,):
        raise InvalidInput(f"slopes must be {points.size + 1} numbers for {points.size} knots, got shape {rates.shape}")
    if start.ndim or not (np.isfinite(points).all() and np.isfinite(rates).all() and np.isfinite(start)):
        raise InvalidInput("knots, slopes and value must be finite numbers")
    return f"{PIECES}{points.size}", (*points.tolist(), *rates.tolist(), float(start))
