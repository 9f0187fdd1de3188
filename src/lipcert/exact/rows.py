"""A region cut into pieces, on each of which something follows from the intervals of the neurons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lipcert.exact.ellipsoid import Slopes
from lipcert.exact.enclose import Interval, Trace
from lipcert.exact.functions import Function, View, ball
from lipcert.exact.model import Inputs, Model
from lipcert.exact.tree import Cuts, Piece, across, enclosed
from lipcert.model.arrays import Array

Suggested = Callable[[int, Array, Array], tuple[Array, Array]]
"""Slopes for the lower and the upper lines of a hidden layer, on intervals of its neurons; not believed."""


@dataclass(frozen=True, eq=False)
class Cut:
    """A tree, which of the proofs about the whole region it starts from, and who suggests lines.

    ``first`` takes the place of the first weight where the tree cuts a region of fewer inputs. ``say`` is told how far
    the work has come.
    """

    tree: Any
    base: int
    suggest: Suggested
    first: Array | None = None
    say: Callable[[str], None] | None = None

    def cuts(self) -> Cuts:
        """The tree, if its leaves cover the region."""
        return Cuts(self.tree)


def prove_leaves(
    model: Model,
    inputs: Inputs,
    known: Sequence[Interval],
    cut: Cut,
    holds: Callable[[Trace, list[Slopes]], bool],
    what: str,
) -> None:
    """Show that something holds on every leaf that may have an input; one for which it does not is cut further."""

    def draw(index: int, functions: Sequence[Function], views: Sequence[View], slopes: Slopes) -> Slopes:
        alpha, beta = slopes
        low, high = (np.array([float(x) for x in side]) for side in zip(*((v.low, v.high) for v in views)))
        told = cut.suggest(index, low, high)
        return tuple(  # type: ignore[return-value]
            [ball(x) if a < b and np.isfinite(x) else a for x, a, b in zip(line, alpha, beta, strict=True)]
            for line in told
        )

    cuts, seen = cut.cuts(), 0
    todo = [Piece(inputs, list(known))]
    while todo:
        piece, seen = todo.pop(), seen + 1
        if cut.say is not None:
            cut.say(f"ball arithmetic: piece {seen} of about {2 * len(cuts.nodes) + 1}")
        trace = Trace(model, piece.inputs)
        slopes = enclosed(piece, trace, draw, every=True)
        if slopes is None:
            continue
        if piece.node in cuts.nodes:
            todo += cuts.halves(piece)
        elif not holds(trace, slopes):
            cuts.again(what)
            todo += across(piece)
