"""ECLipsE and ECLipsE-Fast: layer by layer, for activations whose slopes begin at zero."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lipcert.published.base import NotApplicable, Published, Run, worldwide
from lipcert.published.lmi import OWN, check_solver
from lipcert.published.messenger import Choice, Handover, carry
from lipcert.published.variants import closed_form, small_program
from lipcert.search.problem import Problem


@dataclass(frozen=True)
class Eclipse(Published):
    """Xu and Sivaranjani, *ECLipsE: Efficient Compositional Lipschitz Constant Estimation for Deep Neural Networks*,
    NeurIPS 2024. Global: the region is ignored.

    one multiplier per neuron, chosen layer by layer by a small semidefinite program; time is linear in depth.

    Limits: slopes are taken from zero to the steepest, so activations that fall somewhere (SiLU, GELU, Mish, sin) are
    refused, and a positive least slope (LeakyReLU) is given away; greedy, so looser than LipSDP.

    Parameters
    ----------
    solver
        ``"interior"``, lipcert's own, or a solver that cvxpy knows, such as ``"CLARABEL"`` (extra ``sdp``).
    """

    solver: str = OWN

    def run(self, problem: Problem) -> Run:
        check_solver(self.solver)

        def choose(hand: Handover) -> Choice:
            hand = _from_zero(hand, "Eclipse")
            found = small_program(hand, np.arange(hand.free.size), self.solver)
            # a neuron that stays at zero has no part in the program; any positive number will do
            Lambda = np.full(hand.alpha.size, found.x.mean())
            Lambda[hand.free] = found.x
            return Choice(Lambda, found.c, hand.alpha, hand.beta)

        return carry(worldwide(problem), choose)


@dataclass(frozen=True)
class EclipseFast(Published):
    """Xu and Sivaranjani, *ECLipsE: Efficient Compositional Lipschitz Constant Estimation for Deep Neural Networks*,
    NeurIPS 2024, the fast form. Global: the region is ignored.

    One multiplier per layer, by formula: one spectral norm per layer is all the work.

    Limits: as :class:`Eclipse`, and looser.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[1.0], [1.0]], [[1.0, -1.0]]], activation="relu")
    >>> round(lc.certify(net, method=EclipseFast()).bound, 6)
    1.414214
    """

    def run(self, problem: Problem) -> Run:
        return carry(worldwide(problem), lambda hand: closed_form(_from_zero(hand, "EclipseFast")))


def _from_zero(hand: Handover, method: str) -> Handover:
    if (hand.alpha < 0.0).any():
        raise NotApplicable(
            f"{method} was made for activations that never fall, and layer {hand.index + 1} has one that does;"
            " take EclipseGen('Fast') or LipSDP()"
        )
    return replace(hand, alpha=np.zeros(hand.alpha.shape))
