"""Further rows of the activation table: waves, powers, and what is less usual."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from scipy import special

from lipcert.model.activation_row import (
    CONCAVE,
    CONVEX,
    NO_ROUNDING,
    STRAIGHT,
    USUAL,
    Loss,
    Row,
    always,
    beyond,
    moderate,
    no_terms,
    recurring,
    recurring_shape,
)
from lipcert.model.arrays import Array, Parameter

_QUICK: Final = 1.702
"""The constant of the quick GELU, v·σ(1.702v)."""


def _quick_slope(v: Array) -> Array:
    w = _QUICK * v
    return special.expit(w) * (1.0 + w * special.expit(-w))


def _quick_bend(v: Array) -> Array:
    w = np.clip(_QUICK * v, -700.0, 700.0)
    gate = special.expit(w)
    return _QUICK * gate * (1.0 - gate) * (2.0 - w * (2.0 * gate - 1.0))


def _bell(v: Array) -> Array:
    """exp(-v²), without squares that overflow; beyond 40 it is zero in floating point."""
    w = np.clip(v, -40.0, 40.0)
    return np.exp(-w * w)


def _erf_slope(v: Array) -> Array:
    return _bell(v) * (2.0 / np.sqrt(np.pi))


def _bell_times(v: Array, power: int) -> Array:
    return np.clip(v, -40.0, 40.0) ** power * _bell(v)


def _root(v: Array, b: Parameter) -> Array:
    """√(v² + b)."""
    return np.hypot(v, np.sqrt(b))


def _squareplus(v: Array, b: Parameter) -> Array:
    """(v + √(v² + b))/2; left of 0 as b/2 over √(v² + b) - v, in which nothing cancels."""
    root = _root(v, b)
    return np.where(v >= 0.0, 0.5 * v + 0.5 * root, 0.5 * b / (root + np.abs(v)))


def _squareplus_slope(v: Array, b: Parameter) -> Array:
    root = _root(v, b)
    small = 0.5 * (b / (root + np.abs(v))) / root
    return np.where(v >= 0.0, 1.0 - small, small)


def _power(v: Array, exponent: int) -> Array:
    """The product of so many v; infinite where it overflows, without a warning."""
    w = np.clip(v, -1e100, 1e100)
    result = w * w if exponent == 2 else w * w * w
    return np.where(np.abs(v) <= 1e100, result, np.where((v < 0.0) & (exponent == 3), -np.inf, np.inf))


def _tanhshrink(v: Array) -> Array:
    """Same as v - tanh(v), up to 1 as v·q/(1 + q): tanh(v) = v/(1 + q) with a continued fraction q."""
    w = np.clip(v, -1.0, 1.0)
    square, q = w * w, np.zeros_like(w)
    for odd in range(19, 1, -2):
        q = square / (odd + q)
    return np.where(np.abs(v) <= 1.0, w * (q / (1.0 + q)), v - np.tanh(v))


def _softshrink(v: Array, limit: Parameter) -> Array:
    return np.where(v > limit, v - limit, np.where(v < -np.asarray(limit), v + limit, 0.0))


def _softshrink_slope(v: Array, side: int, limit: Parameter) -> Array:
    return np.where(beyond(v, -np.asarray(limit), side) & ~beyond(v, limit, side), 0.0, 1.0)


FURTHER: Final[Mapping[str, Row]] = {
    "cos": Row(
        value=lambda v: np.cos(v),
        slope=lambda v, side: -np.sin(v),
        **always(ends=(-1.0, 1.0), extent=(-1.0, 1.0)),
        knots=recurring((0.5 * np.pi, 1.5 * np.pi), 2.0 * np.pi),
        shape=recurring_shape((CONVEX, CONCAVE)),
        why="φ' = -sin turns at the odd multiples of π/2; an interval of length 2π or more sees all of [-1, 1].",
        loss=Loss(1.0, slope_tail=False, value_tail=False, value_terms=lambda: 1.0),
        exact=False,
        period=2.0 * np.pi,
        bend=lambda v, side: -np.cos(v),
        turns=recurring((0.0, np.pi), 2.0 * np.pi),
    ),
    "snake": Row(
        value=lambda v: v + np.sin(v) ** 2,
        slope=lambda v, side: 1.0 + np.sin(2.0 * v),
        **always(ends=(0.0, 2.0), extent=(0.0, 1.0)),
        knots=recurring((0.25 * np.pi, 0.75 * np.pi), np.pi),
        shape=recurring_shape((CONCAVE, CONVEX)),
        why="φ' = 1 + sin(2v) turns where cos(2v) = 0, at odd multiples of π/4; φ - v is sin², between 0 and 1.",
        loss=Loss(1.0, slope_tail=False, value_tail=False, value_terms=lambda: 1.0),
        exact=False,
        period=np.pi,
        drift=1.0,
        bend=lambda v, side: 2.0 * np.cos(2.0 * v),
        turns=recurring((0.0, 0.5 * np.pi), np.pi),
    ),
    "erf": Row(
        value=lambda v: special.erf(v),
        slope=lambda v, side: _erf_slope(v),
        **always(knots=(0.0,), shape=(CONVEX, CONCAVE), ends=(0.0, 0.0), extent=(-1.0, 1.0)),
        why="φ' = 2/√π·exp(-v²), largest at 0.",
        loss=Loss(0.0, slope_tail=True, value_tail=False, value_terms=no_terms),
        bend=lambda v, side: -4.0 / np.sqrt(np.pi) * _bell_times(v, 1),
        turns=lambda _: (-0.7071067811865476, 0.7071067811865476),
    ),
    "gaussian": Row(
        value=lambda v: _bell(v),
        slope=lambda v, side: -2.0 * _bell_times(v, 1),
        **always(
            knots=(-0.7071067811865476, 0.7071067811865476),
            shape=(CONVEX, CONCAVE, CONVEX),
            ends=(0.0, 0.0),
            extent=(0.0, 1.0),
        ),
        why="exp(-v²): φ'' = (4v² - 2)exp(-v²) vanishes at ±1/√2, where φ' is ±√(2/e).",
        loss=Loss(0.0, slope_tail=True, value_tail=True, value_terms=no_terms),
        exact=False,
        bend=lambda v, side: 4.0 * _bell_times(v, 2) - 2.0 * _bell(v),
        turns=lambda _: (-1.224744871391589, 0.0, 1.224744871391589),
    ),
    "logsigmoid": Row(
        value=lambda v: -np.logaddexp(0.0, -v),
        slope=lambda v, side: special.expit(-v),
        **always(knots=(), shape=(CONCAVE,), ends=(1.0, 0.0), extent=(-np.inf, 0.0)),
        why="φ' = σ(-v) is decreasing.",
        loss=USUAL,
        bend=lambda v, side: -special.expit(v) * special.expit(-v),
        turns=lambda _: (0.0,),
    ),
    "tanhshrink": Row(
        value=_tanhshrink,
        slope=lambda v, side: np.tanh(v) ** 2,
        **always(knots=(0.0,), shape=(CONCAVE, CONVEX), ends=(1.0, 1.0), extent=(-np.inf, np.inf)),
        why="φ' = tanh² falls to 0 at 0 and rises.",
        loss=USUAL,
        bend=lambda v, side: 2.0 * np.tanh(v) * ((1.0 - np.tanh(v)) * (1.0 + np.tanh(v))),
        turns=lambda _: (-0.6584789484624084, 0.6584789484624084),
    ),
    "softshrink": Row(
        value=_softshrink,
        slope=_softshrink_slope,
        **always(shape=(STRAIGHT, STRAIGHT, STRAIGHT), ends=(1.0, 1.0), extent=(-np.inf, np.inf)),
        knots=lambda _start, limit: (-np.asarray(limit), limit),
        why="Straight pieces of slope 1, 0, 1, kinks at ±λ.",
        loss=NO_ROUNDING,
        kinks=True,
        parameters={"lambd": 0.5},
        legal=(moderate, "1e-6 <= lambd <= 1e6"),
    ),
    "threshold": Row(
        value=lambda v, limit: np.maximum(v, limit),
        slope=lambda v, side, limit: np.where(beyond(v, limit, side), 1.0, 0.0),
        **always(shape=(STRAIGHT, STRAIGHT), ends=(0.0, 1.0)),
        knots=lambda _start, limit: (limit,),
        extent=lambda limit: (limit, np.inf),
        why="max(v, t): slope 0 left of t and 1 right of it.",
        loss=NO_ROUNDING,
        kinks=True,
        parameters={"threshold": 0.0},
    ),
    "squareplus": Row(
        value=_squareplus,
        slope=lambda v, side, b: _squareplus_slope(v, b),
        **always(knots=(), shape=(CONVEX,), ends=(0.0, 1.0), extent=(0.0, np.inf)),
        why="φ' = (1 + v/√(v² + b))/2 is increasing.",
        loss=USUAL,
        parameters={"b": 4.0},
        legal=(moderate, "1e-6 <= b <= 1e6"),
        bend=lambda v, side, b: 0.5 * (b / _root(v, b)) / _root(v, b) / _root(v, b),
        turns=lambda *_: (0.0,),
    ),
    "quick_gelu": Row(
        value=lambda v: v * special.expit(_QUICK * v),
        slope=lambda v, side: _quick_slope(v),
        **always(
            knots=(-1.4097281319127308, 1.4097281319127308),
            shape=(CONCAVE, CONVEX, CONCAVE),
            ends=(0.0, 1.0),
            extent=(-0.16361018963635362, np.inf),
            turns=(-2.0187079868008877, 0.0, 2.0187079868008877),
        ),
        why="silu(1.702v)/1.702; φ' turns where 1.702v·tanh(0.851v) = 2, with the values -0.0998 and 1.0998.",
        loss=Loss(1.0, slope_tail=True, value_tail=True, value_terms=no_terms),
        exact=False,
        bend=lambda v, side: _quick_bend(v),
    ),
    "square": Row(
        value=lambda v: _power(v, 2),
        slope=lambda v, side: np.where(np.abs(v) <= 1e300, 2.0 * np.clip(v, -1e300, 1e300), np.copysign(np.inf, v)),
        **always(knots=(), shape=(CONVEX,), ends=(-np.inf, np.inf), extent=(0.0, np.inf), turns=(0.0,)),
        why="φ' = 2v is increasing, without end: there is a bound on bounded regions only.",
        loss=USUAL,
        bend=lambda v, side: np.full_like(v, 2.0),
    ),
    "cube": Row(
        value=lambda v: _power(v, 3),
        slope=lambda v, side: 3.0 * _power(v, 2),
        **always(knots=(0.0,), shape=(CONCAVE, CONVEX), ends=(np.inf, np.inf), extent=(-np.inf, np.inf), turns=(0.0,)),
        why="φ' = 3v² falls to 0 at 0 and rises without end: there is a bound on bounded regions only.",
        loss=USUAL,
        bend=lambda v, side: 6.0 * np.clip(v, -1e300, 1e300),
    ),
}
