"""Affine maps of known values, composed far beyond double precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lipcert.importers.graph import Affine, Constant, Graph, Join, Op, Pick, Product, Rewriting, Scale, Sum
from lipcert.importers.precise import Precise, PreciseMatrix

ONE = -1
"""Stands for the number 1 among the known values: its matrix is the offset."""


@dataclass(frozen=True, eq=False)
class Form:
    """Σ matrices[k]·(known value k) + matrices[ONE]; ``size`` numbers."""

    matrices: Mapping[int, PreciseMatrix]
    size: int

    @staticmethod
    def known(position: int, size: int) -> Form:
        """A known value itself."""
        return Form({position: PreciseMatrix.diagonal(Precise.of(np.ones(size)))}, size)

    @property
    def offset(self) -> Precise:
        """The constant term, for a form that depends on no known value."""
        column = self.matrices.get(ONE)
        return Precise.of(np.zeros(self.size)) if column is None else column.values.spread(column.rows, self.size)

    @property
    def fits(self) -> bool:
        """Whether each coefficient has a float within 2⁻⁵⁰ of it, as a certificate's theorem allows."""
        return all(bool(matrix.values.good.all()) for matrix in self.matrices.values())


def compose(op: Op, operands: Sequence[Form]) -> Form:
    """The form of a linear operation's result, given those of its operands."""
    match op:
        case Constant(number=number):
            return Form({ONE: PreciseMatrix.column(Precise.of(number))}, number.size)
        case Affine(weight=weight, bias=bias):
            return _shifted({k: weight @ matrix for k, matrix in operands[0].matrices.items()}, bias)
        case Scale(factor=factor, shift=shift):
            scaled = {k: matrix.scaled(factor) for k, matrix in operands[0].matrices.items()}
            return _shifted(scaled, shift)
        case Pick(index=index):
            return Form({k: matrix.picked(index) for k, matrix in operands[0].matrices.items()}, index.size)
        case Sum():
            return _sum(operands)
        case Join():
            total = sum(form.size for form in operands)
            placed, start = [], 0
            for form in operands:
                placed.append(Form({k: matrix.moved(total, start) for k, matrix in form.matrices.items()}, total))
                start += form.size
            return _sum(placed)
    raise AssertionError(f"{type(op).__name__} is left over")


def _shifted(matrices: Mapping[int, PreciseMatrix], bias: Precise) -> Form:
    size = bias.shape[0]
    return _sum([Form(matrices, size), Form({ONE: PreciseMatrix.column(bias)}, size)])


def _sum(forms: Sequence[Form]) -> Form:
    found: dict[int, list[PreciseMatrix]] = {}
    for form in forms:
        for k, matrix in form.matrices.items():
            found.setdefault(k, []).append(matrix)
    return Form({k: PreciseMatrix.total(matrices) for k, matrices in found.items()}, forms[0].size)


def fold_constants(graph: Graph) -> Graph:
    """The same function: a product with a value that does not depend on the input becomes a scaling.

    An activation of constants stays a row of neurons: its value is a float only by accident.
    """
    new = Rewriting()
    known: dict[int, Form] = {}
    for position, node in enumerate(graph.nodes):
        op, inputs = node.op, node.inputs
        if isinstance(op, Product) and any(i in known for i in inputs):
            factor, other = sorted(inputs, key=lambda i: i not in known)
            op, inputs = Scale(known[factor].offset, Precise.of(np.zeros(node.size))), (other,)
        if op.linear and all(i in known for i in inputs):
            known[position] = compose(op, [known[i] for i in inputs])
        new.place[position] = new.add(op, (new.place[i] for i in inputs), node)
    return new.graph(graph.output)
