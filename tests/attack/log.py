"""What was asked, what came back, and what was wrong with it.

A question is a line of Python and the objects it names. A violation says that line and the command that asks again.
"""

from __future__ import annotations

import traceback
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from flint import arb, fmpq

import lipcert as lc
from attack.truth import Point, Witness
from lipcert.answers.certificate import Certificate
from lipcert.errors import LipcertError
from lipcert.suggest.hints import Linear, Lipschitz, Tree


@dataclass(eq=False)
class Log:
    """Counts of one kind, and its violations."""

    kind: str
    seed: int = 0
    case: int = 0
    cases: int = 0
    answers: int = 0
    refusals: int = 0
    checks: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)
    code: str = ""

    @property
    def counts(self) -> tuple[int, ...]:
        """For the table."""
        return self.cases, self.answers, self.refusals, self.checks, len(self.violations)

    def ask(self, code: str, **names: Any) -> Any:
        """What a line of code gives, or None if lipcert refuses; any other exception is a violation."""
        self.code = code
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                found = eval(code, {**_NAMES, **names})
        except LipcertError as error:
            self.refusals += 1
            if not str(error).strip():
                self.violation(f"{type(error).__name__} without a word")
            return None
        except Exception as error:
            self.violation(f"foreign exception {type(error).__name__}: {error} ({_place(error)})")
            return None
        self.answers += 1
        return found

    def bound(self, bound: float | None, witness: Witness | None) -> None:
        """Compare an upper bound, if there is one, with what is attained."""
        if bound is None:
            return
        self.checks += witness is not None
        if not bound >= 0.0:
            self.violation(f"the bound is {bound}")
        elif witness is not None and witness.above(bound):
            self.violation(
                f"the bound is {bound!r}; the exact stretch of d = {_short(witness.d)} at x = {_short(witness.x)}"
                f" is {decimal(witness.stretch)}"
            )

    def certified(
        self, method: str, witness: Witness | None, again: bool | None = True, **names: Any
    ) -> Certificate | None:
        """Certify ``net`` over ``region`` and compare; verify the certificate and compare, unless ``again`` is False.

        With ``again`` None a certificate that verify refuses is no violation.
        """
        found: Certificate | None = self.ask(f"lc.certify(net, region, {method})", **names)
        if found is None:
            return None
        self.bound(found.bound, witness)
        proved = self.ask("lc.verify(net, cert)", cert=found, **names) if again is not False else None
        self.bound(proved, witness)
        if proved is None and again:
            self.violation("verify refuses what certify returned")
        return found

    def by_trees(self, cert: Certificate, witness: Witness | None, *trees: Tree, **names: Any) -> None:
        """Verify a certificate with other trees, and compare; it claims so much that any bound is returned."""
        for tree in trees:
            code = "lc.verify(net, replace(cert, tree=tree, bound=1.7e308))"
            self.bound(self.ask(code, cert=cert, tree=tree, **names), witness)

    def violation(self, what: str) -> None:
        """Note that the last answer was wrong."""
        again = f"python -m attack --seed {self.seed} --kinds {self.kind} --case {self.case}"
        self.violations.append(f"VIOLATION: {what}\n  {self.code}\n  {again}")


def _place(error: Exception) -> str:
    """The innermost line of lipcert on the way to an exception."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "lipcert" in Path(frame.filename).parts]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno} {frames[-1].name}" if frames else "outside lipcert"


def decimal(x: arb) -> str:
    """A ball in decimals."""
    return str(x.str(17, radius=False))


def _short(x: Point) -> str:
    return "[" + ", ".join(decimal(arb(c)) if isinstance(c, fmpq) else str(c) for c in x[:6]) + "]"


_NAMES: dict[str, Any] = {"lc": lc, "np": np, "replace": replace, "Linear": Linear, "Lipschitz": Lipschitz}
