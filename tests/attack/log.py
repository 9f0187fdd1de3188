"""What was asked, what came back, and what was wrong with it.

A question is a line of Python and the objects it names, so that a violation can be printed as a script that asks again.
"""

from __future__ import annotations

import itertools
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from inspect import isfunction
from pathlib import Path
from typing import Any

import numpy as np
from flint import arb, fmpq

import lipcert as lc
from attack.truth import Point, Witness
from lipcert.errors import LipcertError
from lipcert.model.activations import Activation
from lipcert.model.arrays import dense
from lipcert.model.network import Layer, Network, Neurons
from lipcert.model.norms import Norms
from lipcert.proof.certificate import Certificate
from lipcert.proof.hints import Hints, Linear, Lipschitz, Part
from lipcert.proof.tree import Tree
from lipcert.search.method import Method

HEADER = """import numpy as np
import lipcert as lc
from dataclasses import replace
from lipcert.model.activations import Activation
from lipcert.proof.certificate import Certificate
from lipcert.proof.hints import Part
from lipcert.proof.hints import Hints
from lipcert.proof.hints import Linear
from lipcert.proof.hints import Lipschitz
from lipcert.search.method import Method
from lipcert.model.network import Layer, Network, Neurons
from lipcert.model.norms import L1, L2, LInf, Norms
from lipcert.model.regions import Ball, Box, Everywhere
from lipcert.proof.tree import Tree

h = float.fromhex
"""


@dataclass(frozen=True)
class Violation:
    """An answer that is wrong, or an exception that should not be."""

    kind: str
    seed: int
    case: int
    what: str
    script: str

    def __str__(self) -> str:
        again = f"python -m attack --seed {self.seed} --kinds {self.kind} --case {self.case}"
        return f"VIOLATION ({self.kind}): {self.what}\n# {again}\n{self.script}"


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
    perturbed: bool = True
    violations: list[Violation] = field(default_factory=list)
    script: Callable[[], str] = str

    def ask(self, code: str, **names: Any) -> Any:
        """What a line of code gives, or None if lipcert refuses; any other exception is a violation."""
        self.script = lambda: _script(code, names)
        space = {**_NAMES, **names}
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                found = eval(code, space)
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

    def bound(self, bound: float, witness: Witness | None) -> None:
        """Compare an upper bound with what is attained."""
        self.checks += witness is not None
        if not bound >= 0.0:
            self.violation(f"the bound is {bound}")
        elif witness is not None and witness.above(bound):
            self.violation(
                f"the bound is {bound!r}; the exact stretch of d = {_short(witness.d)} at x = {_short(witness.x)}"
                f" is {decimal(witness.stretch)}"
            )

    def violation(self, what: str) -> None:
        """Note that the last answer was wrong."""
        self.violations.append(Violation(self.kind, self.seed, self.case, what, self.script()))


def _place(error: Exception) -> str:
    """The innermost line of lipcert on the way to an exception."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "lipcert" in Path(frame.filename).parts]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno} {frames[-1].name}" if frames else "outside lipcert"


def _script(code: str, names: Mapping[str, Any]) -> str:
    lines = [f"{name} = {literal(value)}" for name, value in names.items() if not isfunction(value)]
    lines += [f"from {value.__module__} import {name}" for name, value in names.items() if isfunction(value)]
    return "\n".join([HEADER, *lines, f"print({code})", ""])


def decimal(x: arb) -> str:
    """A ball in decimals."""
    return str(x.str(17, radius=False))


def _short(x: Point) -> str:
    return "[" + ", ".join(decimal(arb(c)) if isinstance(c, fmpq) else str(c) for c in x[:6]) + "]"


def literal(value: Any) -> str:
    """Python code for a value, floats in hexadecimal."""
    if isinstance(value, (bool, np.bool_, str)) or value is None:
        return repr(value if value is None or isinstance(value, str) else bool(value))
    if isinstance(value, (int, np.integer)):
        return repr(int(value))
    if isinstance(value, (float, np.floating)):
        return f"h({float(value).hex()!r})" if np.isfinite(value) else f"float({str(float(value))!r})"
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, (lc.Ball, lc.Box, lc.Everywhere)):
        return _region(value)
    if isinstance(value, tuple):
        return "(" + "".join(f"{literal(item)}, " for item in value) + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    if isinstance(value, Method):
        return repr(repr(value))
    if hasattr(value, "toarray"):
        return literal(dense(value))
    if is_dataclass(value):
        names = [column.name for column in fields(value) if column.init]
        if isinstance(value, Certificate):  # what verify reads
            value = replace(value, layers=())
        return f"{type(value).__name__}({', '.join(f'{name}={literal(getattr(value, name))}' for name in names)})"
    return repr(value)


def _array(value: np.ndarray[Any, Any]) -> str:
    if value.size > 24 and value.dtype.kind == "f" and len(runs := _runs(value.ravel())) < 8:
        parts = ", ".join(f"np.full({count}, {literal(item)})" for item, count in runs)
        return f"np.concatenate([{parts}]).reshape({value.shape})"
    text = literal(value.tolist())
    return f"np.array({text}).reshape({value.shape})" if value.size else f"np.zeros({value.shape}, {value.dtype.str!r})"


def _runs(flat: Sequence[float] | np.ndarray[Any, Any]) -> list[tuple[float, int]]:
    return [(float(item), len(list(group))) for item, group in itertools.groupby(flat)]


def _region(region: Any) -> str:
    if isinstance(region, lc.Box):
        return f"Box({literal(region.lower)}, {literal(region.upper)})"
    if isinstance(region, lc.Ball):
        clip = "" if region.clip is None else f", clip={_region(region.clip)}"
        norm = "" if region.plain else f", norm={literal(region.norm)}"
        return f"Ball({literal(region.center)}, {literal(float(region.radius))}{clip}{norm})"
    return "Everywhere()"


_NAMES: dict[str, Any] = {"lc": lc, "np": np, "h": float.fromhex, "replace": replace}
_NAMES |= {
    kind.__name__: kind
    for kind in (
        Activation,
        Certificate,
        Part,
        Hints,
        Linear,
        Lipschitz,
        Layer,
        Network,
        Neurons,
        Norms,
        Tree,
        lc.L1,
        lc.L2,
        lc.LInf,
    )
}
_NAMES |= {kind.__name__: kind for kind in (Norms, lc.L1, lc.L2, lc.LInf)}
