"""ECLipsE-Gen and ECLipsE-Gen-Local: layer by layer, with slopes of every neuron its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lipcert.errors import InvalidInput
from lipcert.proof.hints import Lipschitz
from lipcert.published.base import Published, Run
from lipcert.published.lmi import OWN, check_solver
from lipcert.published.messenger import Choice, Handover, carry
from lipcert.published.variants import acc, closed_form, fast
from lipcert.search.problem import Problem

_PROGRAMS = {"Acc": acc, "Fast": fast}
VARIANTS = (*_PROGRAMS, "CF")
CAP = 1e10
"""Largest Λ; the paper asks for a large number and does not say which."""


@dataclass(frozen=True)
class _Gen(Published):
    """What the local and the global form share."""

    variant: str | Sequence[str] = "Fast"
    solver: str = OWN
    cap: float = CAP

    def __post_init__(self) -> None:
        given: Any = self.variant
        if not isinstance(given, str):
            if not isinstance(given, Sequence):
                raise InvalidInput(f"variant must be one of {', '.join(VARIANTS)} or a list of them, got {given!r}")
            object.__setattr__(self, "variant", tuple(given))
        for name in (given,) if isinstance(given, str) else given:
            if name not in VARIANTS:
                raise InvalidInput(f"variant must be one of {', '.join(VARIANTS)}, got {name!r}")
        if not self.cap > 0.0:
            raise InvalidInput(f"cap must be positive, got {self.cap}")

    def run(self, problem: Problem) -> Run:
        hidden = problem.network.depth - 1
        names = (self.variant,) * hidden if isinstance(self.variant, str) else self.variant
        if len(names) != hidden:
            raise InvalidInput(f"variant must have one entry per hidden layer, {hidden} here; got {len(names)}")
        if set(names) - {"CF"}:
            check_solver(self.solver)

        def choose(hand: Handover) -> Choice:
            name = names[hand.index]
            return closed_form(hand) if name == "CF" else _PROGRAMS[name](hand, self.solver, self.cap)

        return carry(self.setting(problem), choose)


@dataclass(frozen=True)
class EclipseGen(_Gen):
    """Xu and Sivaranjani, *ECLipsE-Gen-Local: Efficient Compositional Local Lipschitz Estimates for Deep Neural
    Networks*, TMLR 2026, with slopes that hold everywhere. Global: the region is ignored.

    Layer by layer, the multipliers that serve the next layer best; time is linear in depth.

    Limits: ``"CF"`` needs slopes of one sign, so it does not apply to SiLU, GELU, Mish or sin; greedy, so looser than
    LipSDP; the slopes are widened by ``"CF"`` until one of them is zero.

    Parameters
    ----------
    variant
        ``"Acc"``: one multiplier per neuron, by a small semidefinite program. ``"Fast"``: one per layer, likewise.
        ``"CF"``: one per layer, by formula. Or a list with one of these for each hidden layer.
    solver
        ``"interior"``, lipcert's own, or a solver that cvxpy knows, such as ``"CLARABEL"`` (extra ``sdp``).
    cap
        Largest multiplier Λ.
    """


@dataclass(frozen=True)
class EclipseGenLocal(_Gen):
    """Xu and Sivaranjani, *ECLipsE-Gen-Local: Efficient Compositional Local Lipschitz Estimates for Deep Neural
    Networks*, TMLR 2026, Algorithms 1 to 5.

    As :class:`EclipseGen`, and before each layer the slopes are narrowed to what its neurons can see in the region, by
    their Lipschitz constants so far. Of a box or a clipped ball only the ball around it is used. The slope formulas
    are lipcert's: some of the paper's are not bounds. ``enclosures`` given to ``certify`` are ignored.

    Limits: as :class:`EclipseGen`; neurons with one slope get a large multiplier instead of an infinite one.

    Parameters
    ----------
    variant, solver, cap
        As of :class:`EclipseGen`.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]], biases=[[3.0, -3.0], None])
    >>> round(lc.certify(net, lc.Ball([0.0, 0.0], 1.0), EclipseGenLocal("CF")).bound, 6)
    1.0
    """

    def setting(self, problem: Problem) -> Problem:
        return replace(problem, enclosures=(Lipschitz(),)) if problem.enclosures else problem
