"""The oldest bound: a product of layer norms."""

from __future__ import annotations

from dataclasses import dataclass

from lipcert.proof.norm_product import norm_product
from lipcert.published.base import Published, Run
from lipcert.search.problem import Problem


@dataclass(frozen=True)
class Trivial(Published):
    """‖W_N‖ Π ‖W_i‖ max|φ_i'|, as in Szegedy et al., *Intriguing Properties of Neural Networks*, ICLR 2014. Global: the
    region is ignored.

    Every network of finite slopes has one, in seconds: convolutions have the norms of their symbols, a max pool counts
    as such, a skip x + F(x) counts 1 + ‖F‖. Rounded up and proved: :mod:`lipcert.proof.norm_product`.

    Limits: each layer is bounded by itself, as if the worst directions of all layers met.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[3.0]], [[2.0]]], activation="sigmoid")
    >>> round(lc.published.Trivial().value(net), 9)
    1.5
    """

    matrices = 0

    def run(self, problem: Problem) -> Run:
        return Run(norm_product(problem.network))
