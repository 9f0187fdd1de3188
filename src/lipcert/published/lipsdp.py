"""LipSDP: one semidefinite program for the whole network, and its split version."""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Literal

import numpy as np

from lipcert.errors import InvalidInput
from lipcert.published.base import Multipliers, Published, Run, global_slopes, worldwide
from lipcert.published.forms import Forms, forms
from lipcert.published.inequality import Inequality
from lipcert.published.lmi import OWN, check_solver, solve
from lipcert.runtime.threads import suited_to
from lipcert.search.problem import Problem


@dataclass(frozen=True)
class LipSDP(Published):
    """Fazlyab, Robey, Hassani, Morari and Pappas, *Efficient and Accurate Estimation of Lipschitz Constants for Deep
    Neural Networks*, NeurIPS 2019. Global: the region is ignored.

    Every neuron's slope constraint gets a multiplier, and the best bound that all of them together imply is found by
    one semidefinite program in the sizes of all layers. Its optimum is what lipcert's :class:`~lipcert.Joint` tends to.

    Limits: time grows with the cube of the number of neurons, memory with its square; some thousand neurons are the
    end. The split version is linear in depth and looser: the bounds of its parts are multiplied.

    Parameters
    ----------
    kind
        ``"neuron"``: one multiplier per neuron. ``"layer"``: one per layer.
    split
        Cut the network into parts of so many layers, None for no cut.
    workers
        Parts solved at the same time, each in a process of its own.
    solver
        ``"interior"``, lipcert's own, or a solver that cvxpy knows, such as ``"CLARABEL"`` (extra ``sdp``).

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[1.0], [1.0]], [[1.0, -1.0]]], activation="relu")
    >>> round(lc.certify(net, method=LipSDP()).bound, 5)
    1.0
    """

    kind: Literal["neuron", "layer"] = "neuron"
    split: int | None = None
    workers: int = 1
    solver: str = OWN

    def __post_init__(self) -> None:
        if self.kind not in ("neuron", "layer"):
            raise InvalidInput(f"kind must be 'neuron' or 'layer', got {self.kind!r}")
        if self.split is not None and self.split < 1:
            raise InvalidInput(f"split must be at least 1 layer, or None, got {self.split}")
        if self.workers < 1:
            raise InvalidInput(f"workers must be at least 1, got {self.workers}")

    def run(self, problem: Problem) -> Run:
        check_solver(self.solver)
        problem = worldwide(problem)
        if self.split is None or self.split >= problem.network.depth:
            return whole(problem, self.kind, self.solver)
        depth = problem.network.depth
        ends = ((start, min(start + self.split, depth)) for start in range(0, depth, self.split))
        parts = [replace(problem, network=problem.network.slice(*pair)) for pair in ends]
        jobs = [(part, self.kind, self.solver) for part in parts]
        if self.workers == 1:
            runs = [whole(*job) for job in jobs]
        else:
            with ProcessPoolExecutor(min(self.workers, len(jobs)), mp_context=get_context("spawn")) as pool:
                runs = list(pool.map(_part, jobs))
        return _joined(problem, self.split, runs)


def whole(problem: Problem, kind: str, solver: str) -> Run:
    """One semidefinite program for the network of the problem."""
    shape = forms(problem)
    program = inequality(shape, kind)
    found = solve(program, solver)
    return Run(1.0 / math.sqrt(found.c), shape.spread(found.roomy[program.groups]))


def inequality(shape: Forms, kind: str) -> Inequality:
    """‖Δx‖² - c‖Δy‖² + Σ Λ_k (a_k·ξ)(b_k·ξ) ≥ 0 for all ξ: then ‖Δy‖² ≤ ‖Δx‖²/c."""
    constant = np.zeros((shape.size, shape.size))
    constant[np.arange(shape.inputs), np.arange(shape.inputs)] = 1.0
    count = shape.layer.size
    groups = np.arange(count) if kind == "neuron" else np.unique(shape.layer, return_inverse=True)[1]
    start = np.full(groups.max(initial=-1) + 1, np.inf)
    np.minimum.at(start, groups, shape.start)
    return Inequality(constant, shape.left, shape.right, shape.output, groups, start)


def _part(job: tuple[Problem, str, str]) -> Run:
    """One part in a worker process."""
    with suited_to(1):
        return whole(*job)


def _joined(problem: Problem, split: int, runs: list[Run]) -> Run:
    """The product of the parts' bounds and of the steepest slopes between them.

    Behind a part with bound L the ellipsoid lies inside L²I. The activation there takes T = r(r + |m|)L², which keeps
    it inside (|m| + r)²L²I, and the multipliers of the next part apply to a ball of that size.
    """
    value, layers = 1.0, []
    for number, run in enumerate(runs):
        assert run.layers is not None
        layers += [Multipliers(part.T * value**2, part.r) for part in run.layers]
        value *= run.value
        if number + 1 < len(runs):
            alpha, beta = global_slopes(problem.network.layers[(number + 1) * split - 1])
            m, r = 0.5 * (alpha + beta), 0.5 * (beta - alpha)
            layers.append(Multipliers(r * (r + np.abs(m)) * value**2, r))
            value *= float(np.maximum(np.abs(alpha), np.abs(beta)).max())
    return Run(value, tuple(layers))
