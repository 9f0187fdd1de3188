"""Affine maps of known values, composed far beyond double precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lipcert.importers.graph import Affine, Constant, Join, Op, Pick, Scale, Sum
from lipcert.importers.precise import Precise, PreciseMatrix


@dataclass(frozen=True, eq=False)
class Form:
    """matrix·(all known values, one after the other) + offset."""

    matrix: PreciseMatrix
    offset: Precise

    @staticmethod
    def known(size: int, start: int, width: int) -> Form:
        """Known values themselves: ``size`` of them from ``start`` on, of ``width`` in all."""
        place, ones = np.arange(size), Precise.of(np.ones(size))
        return Form(PreciseMatrix((size, width), place, place + start, ones), Precise.of(np.zeros(size)))

    @property
    def fits(self) -> bool:
        """Whether each coefficient has a float within 2⁻⁵⁰ of it, as a certificate's theorem allows."""
        return bool(self.matrix.values.good.all() and self.offset.good.all())


def compose(op: Op, operands: Sequence[Form], width: int) -> Form:
    """The form of a linear operation's result, given those of its operands and the number of known values."""
    matrices, offsets = [form.matrix for form in operands], [form.offset for form in operands]
    match op:
        case Constant(number=number):
            nothing = np.zeros(0, dtype=int)
            empty = PreciseMatrix((number.size, width), nothing, nothing, Precise.of(np.zeros(0)))
            return Form(empty, Precise.of(number))
        case Affine(weight=weight, bias=bias):
            return Form(weight @ matrices[0], weight.times(offsets[0]) + bias)
        case Scale(factor=factor, shift=shift):
            return Form(matrices[0].scaled(factor), factor * offsets[0] + shift)
        case Pick(index=index):
            return Form(matrices[0].picked(index), offsets[0].each(lambda part: np.where(index < 0, 0.0, part[index])))
        case Sum():
            return Form(PreciseMatrix.total(matrices), sum(offsets[1:], offsets[0]))
        case Join():
            starts = np.cumsum([0, *(matrix.shape[0] for matrix in matrices)]).tolist()
            moved = [matrix.moved(starts[-1], start) for matrix, start in zip(matrices, starts, strict=False)]
            return Form(PreciseMatrix.total(moved), Precise.joined(offsets))
    raise AssertionError(f"{type(op).__name__} is left over")
