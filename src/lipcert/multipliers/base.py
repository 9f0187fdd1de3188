"""What a method is: a value that turns a problem into a proof."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lipcert.condense import Kept
from lipcert.ellipsoid import Ellipsoid
from lipcert.typing import Array, Weight

if TYPE_CHECKING:
    from lipcert.certificate import Proof
    from lipcert.certify import Problem


class Method(ABC):
    """A way to obtain a certified bound. Methods are frozen values; their options are their fields."""

    @abstractmethod
    def solve(self, problem: Problem) -> Proof:
        """Bound the problem's Lipschitz constant."""


@dataclass(frozen=True, eq=False)
class Stage:
    """What is known when the multipliers T of one layer are chosen.

    S (n, n) is the ellipsoid of Δv divided by 4**exponent; the slopes lie in [α, β]; ``ahead`` is the next
    weight W⁺, so that the objective is λmax(W⁺ P(T) W⁺ᵀ). T is relative to the same scale as S.
    """

    index: int
    S: Array
    exponent: int
    alpha: Array
    beta: Array
    ahead: Weight
    kept: Kept | None = None
    """Which neurons of the layer these are, where not all; the others are affine functions of what is kept."""

    @staticmethod
    def of(index: int, S: Ellipsoid, kept: Kept) -> Stage:
        """The stage of a layer of which some neurons are kept."""
        assert S.matrix is not None
        return Stage(index, S.matrix, int(S.exponent), kept.alpha, kept.beta, kept.target, kept)

    @property
    def size(self) -> int:
        """Neurons of the layer."""
        return len(self.alpha) if self.kept is None else self.kept.size

    def narrow(self, multipliers: Array) -> Array:
        """Multipliers of the layer's neurons, as multipliers of what is kept."""
        return multipliers if self.kept is None else self.kept.narrow(multipliers)

    @property
    def m(self) -> Array:
        return 0.5 * (self.alpha + self.beta)

    @property
    def r(self) -> Array:
        return 0.5 * (self.beta - self.alpha)

    @property
    def active(self) -> Array:
        """The neurons whose slope is not a single number."""
        return np.flatnonzero(self.beta > self.alpha)


class Greedy(Method):
    """A method that chooses the multipliers of each layer from what lies before it and the next weight."""

    @abstractmethod
    def choose(self, stage: Stage) -> Array:
        """Multipliers T ≥ 0, (n,), zero on neurons that are exactly affine, with T - D_r S D_r ≻ 0 on the others."""

    def solve(self, problem: Problem) -> Proof:
        return problem.sweep(self.choose)
