"""Images in other sizes: each output is a value of the input, or a weighted mean of two along each axis.

Coordinates and weights are fractions, so that nothing is rounded before a weight is folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from lipcert.importers import windows as win
from lipcert.importers.builder import Builder, Tensor, Unsupported
from lipcert.importers.precise import Precise
from lipcert.importers.precise_matrix import PreciseMatrix

Place = Literal["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"]
Nearest = Literal["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]


@dataclass(frozen=True)
class Axis:
    """How one axis is resized: its sizes, and how many outputs there are to one input."""

    before: int
    after: int
    scale: Fraction

    def seen(self, place: int, rule: Place) -> Fraction:
        """Where an output looks at the input."""
        match rule:
            case "align_corners":
                return Fraction(place * (self.before - 1), self.after - 1) if self.after > 1 else Fraction(0)
            case "asymmetric":
                return place / self.scale
            case "pytorch_half_pixel" if self.after == 1:
                return Fraction(0)
        return (place + Fraction(1, 2)) / self.scale - Fraction(1, 2)

    def nearest(self, rule: Place, mode: Nearest) -> list[int]:
        """The input that each output takes."""
        found = []
        for place in range(self.after):
            x = self.seen(place, rule)
            whole = {
                "floor": x.__floor__(),
                "ceil": x.__ceil__(),
                "round_prefer_floor": (x - Fraction(1, 2)).__ceil__(),
                "round_prefer_ceil": (x + Fraction(1, 2)).__floor__(),
            }[mode]
            found.append(min(max(whole, 0), self.before - 1))
        return found

    def linear(self, rule: Place) -> list[tuple[int, int, Fraction]]:
        """The two inputs that each output lies between, and the weight of the second."""
        found = []
        for place in range(self.after):
            x = min(max(self.seen(place, rule), Fraction(0)), Fraction(self.before - 1))
            left = min(x.__floor__(), self.before - 1)
            found.append((left, min(left + 1, self.before - 1), x - left))
        return found


def nearest(b: Builder, x: Tensor, axes: Sequence[Axis], rule: Place, mode: Nearest) -> Tensor:
    """The last axes resized by taking the nearest value."""
    index = win.positions(x.shape)
    for axis, one in enumerate(axes, index.ndim - len(axes)):
        index = np.take(index, one.nearest(rule, mode), axis=axis)
    return b.pick(x, index)


def linear(b: Builder, x: Tensor, axes: Sequence[Axis], rule: Place) -> Tensor:
    """The last axes resized by linear interpolation, one after the other."""
    first = len(x.shape) - len(axes)
    for axis, one in enumerate(axes, first):
        marks = one.linear(rule)
        shape = (*x.shape[:axis], one.after, *x.shape[axis + 1 :])
        seen = np.moveaxis(win.positions(x.shape), axis, -1)
        made = np.moveaxis(win.positions(shape), axis, -1)
        columns = np.concatenate(
            [seen[..., np.array([mark[end] for mark in marks], dtype=int)].ravel() for end in (0, 1)]
        )
        weights = _fractions([weight for end in (0, 1) for weight in _weights(marks, end)])
        which = np.concatenate([np.resize(np.arange(one.after) + end * one.after, made.size) for end in (0, 1)])
        rows = np.tile(made.ravel(), 2)
        kept = weights.nearest[which] != 0.0
        size = int(np.prod(shape)), x.size
        matrix = PreciseMatrix.of_entries(size, rows[kept], columns[kept], weights.take(which[kept]))
        x = b.affine(x, matrix, 0.0, shape)
    return x


def _weights(marks: Sequence[tuple[int, int, Fraction]], end: int) -> list[Fraction]:
    return [mark[2] if end else 1 - mark[2] for mark in marks]


def _fractions(values: Sequence[Fraction]) -> Precise:
    """Fractions beyond double precision."""
    tops, bottoms = (
        np.array([float(part) for part in parts]) for parts in zip(*(v.as_integer_ratio() for v in values))
    )
    if max(np.abs(tops).max(), bottoms.max()) >= 2.0**53:
        raise Unsupported("its scale is no simple fraction; give sizes in the place of scales")
    return Precise.of(tops) * Precise.of(bottoms).reciprocal()


def shuffle(b: Builder, x: Tensor, factor: int, crd: bool = True) -> Tensor:
    """(…, channels·r², h, w) to (…, channels, h·r, w·r): PixelShuffle, DepthToSpace."""
    *lead, channels, height, width = x.shape
    if factor < 1 or channels % (factor * factor):
        raise Unsupported(f"its {channels} channels are no multiple of {factor}²")
    rest = channels // (factor * factor)
    split = (rest, factor, factor) if crd else (factor, factor, rest)
    k = len(lead)
    order = (k, k + 3, k + 1, k + 4, k + 2) if crd else (k + 2, k + 3, k, k + 4, k + 1)

    def change(index: np.ndarray) -> np.ndarray:
        parts = index.reshape(*lead, *split, height, width).transpose(*range(k), *order)
        return parts.reshape(*lead, rest, height * factor, width * factor)

    return b.view(x, change)


def unshuffle(b: Builder, x: Tensor, factor: int, crd: bool = True) -> Tensor:
    """The way back: PixelUnshuffle, SpaceToDepth."""
    *lead, channels, height, width = x.shape
    if factor < 1 or height % factor or width % factor:
        raise Unsupported(f"an image of {height} × {width} does not divide by {factor}")
    k = len(lead)
    order = (k, k + 2, k + 4, k + 1, k + 3) if crd else (k + 2, k + 4, k, k + 1, k + 3)

    def change(index: np.ndarray) -> np.ndarray:
        parts = index.reshape(*lead, channels, height // factor, factor, width // factor, factor)
        parts = parts.transpose(*range(k), *order)
        return parts.reshape(*lead, channels * factor * factor, height // factor, width // factor)

    return b.view(x, change)
