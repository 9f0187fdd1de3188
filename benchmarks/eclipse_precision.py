"""Which figures of ECLipsE-Gen-Local in Table 2 are those of its arithmetic: one rule changed at a time.

    python benchmarks/eclipse_precision.py  # four cells, Fast and Acc; an hour, most of it *no scaling*
    python benchmarks/eclipse_precision.py --cells 60x30 --variants Fast

The first column of numbers is printed in the paper. *As here* is `published.EclipseGenLocal` as lipcert has it: small
programs solved to ten digits where rounding lets them, Cholesky factors, Λ ≤ 1e10, and the closed form where a
program is not solved. Then one rule each of the authors' code in its place:

    Λ ≤ 1e20                larger multipliers
    equal within 1e-20      slopes that close count as one
    eigenvalues ≥ -1e-6     a messenger matrix that is almost positive counts as positive, if c ≥ 1e-12
    pseudo-inverse          in place of triangular solves
    + 1e-30 I               added to each messenger matrix before it is inverted
    any answer              what a program's last iterate says counts, however far from the optimum
    no scaling              the program goes to a general solver (Clarabel) in its own units
    all but no scaling      the others together

*Without limits* is the same greedy method (the same slopes, and the Λ = λI, or one Λ per neuron, that serves the next
layer best) in the form of docs/mathematics.md, where nothing has to be inverted and numbers are kept relative to a
scale: what the method means.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

import numpy as np

import lipcert as lc
from lipcert.errors import LipcertError
from lipcert.methods import semidefinite
from lipcert.methods.semidefinite import Inequality, Solution, SolverFailed
from lipcert.model.arrays import Array
from lipcert.published import eclipse
from lipcert.published.lipsdp import ACCURACY
from lipcert.reproduce.cells import paper_center, paper_network
from lipcert.reproduce.printed import paper_table
from lipcert.suggest.hints import Lipschitz

Rule = Callable[[], Any]


def _pseudo(W: Array, M: Array) -> Array:
    return np.asarray(W @ np.linalg.pinv(M) @ W.T)


def _nudged(W: Array, M: Array) -> Array:
    return _through(W, M + 1e-30 * np.eye(len(M)))


_through = eclipse.through


def _almost(matrix: Array) -> bool:
    return bool(np.isfinite(matrix).all()) and float(np.linalg.eigvalsh(matrix)[0]) > -1e-6


@contextmanager
def _inverse(through: Callable[[Array, Array], Array]) -> Iterator[None]:
    with mock.patch.object(eclipse, "through", through):
        yield


@contextmanager
def _equal() -> Iterator[None]:
    free = property(lambda hand: np.flatnonzero(hand.beta > hand.alpha + 1e-20))
    with mock.patch.object(eclipse.Handover, "free", free):
        yield


@contextmanager
def _unscaled() -> Iterator[None]:
    cvxpy: Any = import_module("cvxpy")

    def solve(problem: Inequality, tolerance: float = 0.0) -> Solution:
        x, c = cvxpy.Variable(problem.start.size, nonneg=True), cvxpy.Variable()
        product = problem.left.toarray() @ cvxpy.diag(x[problem.groups]) @ problem.right.toarray().T
        matrix = problem.constant + 0.5 * (product + product.T) - c * (problem.output @ problem.output.T)
        program = cvxpy.Problem(cvxpy.Maximize(c), [matrix >> 0])
        program.solve(solver="CLARABEL", **ACCURACY)
        if program.status != cvxpy.OPTIMAL or not float(c.value) > 0.0:
            raise SolverFailed(f"Clarabel ended with status {program.status!r}")
        found = np.maximum(np.atleast_1d(x.value), 0.0)
        return Solution(float(c.value), found, found)

    with mock.patch.object(eclipse, "solve", solve):
        yield


def _raised() -> Any:
    return mock.patch.object(semidefinite, "_ENOUGH", np.inf)


def _positive() -> Any:
    return mock.patch.object(eclipse, "positive", _almost)


RULES: dict[str, tuple[float, tuple[Rule, ...]]] = {
    "as here": (1e10, ()),
    "Λ ≤ 1e20": (1e20, ()),
    "equal within 1e-20": (1e10, (_equal,)),
    "eigenvalues ≥ -1e-6": (1e10, (_positive,)),
    "pseudo-inverse": (1e10, (lambda: _inverse(_pseudo),)),
    "+ 1e-30 I": (1e10, (lambda: _inverse(_nudged),)),
    "any answer": (1e10, (_raised,)),
    "no scaling": (1e10, (_unscaled,)),
    "all but no scaling": (1e20, (_equal, _positive, lambda: _inverse(_pseudo), _raised)),
}


def value(variant: str, network: lc.Network, ball: lc.Ball, rule: str) -> str:
    """The number that the method gives under a rule, or what it says instead."""
    cap, patches = RULES[rule]
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch())
        try:
            return f"{lc.published.EclipseGenLocal(variant, cap=cap).value(network, ball):.3e}"
        except (LipcertError, np.linalg.LinAlgError) as error:
            return f"none ({type(error).__name__})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="*", default=["60x30", "60x40", "80x30", "100x30"], help="width x layers")
    parser.add_argument("--variants", nargs="*", default=["Fast", "Acc"], choices=["Fast", "Acc"])
    parser.add_argument("--rules", nargs="*", default=list(RULES), choices=list(RULES), help="default: all")
    given = parser.parse_args()
    method = {"Fast": lc.Scalar(), "Acc": lc.Diagonal()}
    for variant in given.variants:
        print(f"\n| {variant} | printed | {' | '.join(given.rules)} | without limits |")
        print("|---|" + "---:|" * (len(given.rules) + 2))
        for cell in given.cells:
            width, layers = (int(part) for part in cell.split("x"))
            network, ball = paper_network(width, layers, "elu"), lc.Ball(paper_center(), 5.0**0.5)
            printed = paper_table("table2")[f"eclipse-gen-local-{variant.lower()}", width, layers, 1.0].bound
            row = [printed, *(value(variant, network, ball, rule) for rule in given.rules)]
            row.append(f"{lc.certify(network, ball, method[variant], enclosures=[Lipschitz()]).bound:.3e}")
            print(f"| {width} × {layers} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
