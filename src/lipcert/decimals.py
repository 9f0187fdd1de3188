"""Printed numbers that still hold: bounds rounded up, lower bounds rounded down."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context


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
