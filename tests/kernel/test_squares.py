"""Squares underflow: the trusted code forms them in arithmetic.py, where they are scaled or charged for."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import lipcert

SOURCE = Path(lipcert.__file__).parent
TRUSTED = [
    *sorted((SOURCE / "kernel").glob("*.py")),
    *sorted((SOURCE / "answers").glob("*.py")),
]
SUGGESTIONS = {
    "reach.contains": "as far as floating point can tell",
    "arithmetic.squared": "a product of sizes adds more than what underflows",
    "step.multipliers": "the multipliers that were used, as a hint",
    "discrepancy.over_boxes": "how many boxes go together",
    "discrepancy.sum_error": "how many roundings a sum has",
    "fourier._portions": "how many frequencies go together",
    "fourier._step": "the square of a number of neurons",
    "jacobian.columns": "how many columns go together",
    "jacobian.norm_bounds": "how much work there is",
}
"""Functions in which squares are no part of a proof, and what they are."""
NORMS = {"norm", "square", "hypot", "vdot"}


def factors(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        yield from factors(node.left)
        yield from factors(node.right)
    else:
        yield node


def squares(tree: ast.AST) -> Iterator[tuple[str, int, str]]:
    """(function, line, expression) for everything that looks like a square."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            found = False
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
                found = not isinstance(node.left, ast.Constant)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                terms = [factor for factor in factors(node) if ast.unparse(factor) != "UP"]
                found = max(Counter(ast.dump(factor) for factor in terms).values(), default=0) > 1
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                operands = Counter(ast.dump(argument) for argument in node.args)
                found = node.func.attr in NORMS or (node.func.attr in {"einsum", "dot"} and max(operands.values()) > 1)
            if found:
                yield function.name, getattr(node, "lineno", 0), ast.unparse(node)


@pytest.mark.parametrize("path", TRUSTED, ids=lambda path: path.stem)
def test_squares_are_formed_in_one_place(path: Path) -> None:
    found = squares(ast.parse(path.read_text()))
    if path.stem == "arithmetic":
        assert len(list(found)) >= 3
        return
    assert [one for one in found if f"{path.stem}.{one[0]}" not in SUGGESTIONS] == []


def test_every_exception_is_needed() -> None:
    seen = {f"{path.stem}.{one[0]}" for path in TRUSTED for one in squares(ast.parse(path.read_text()))}
    assert SUGGESTIONS.keys() <= seen
    assert {"sweep", "step", "enclosures", "domain", "outputs"} <= {path.stem for path in TRUSTED}


def test_a_square_is_seen() -> None:
    for expression in (
        "x**2",
        "x * x",
        "a * x * b * x",
        "np.linalg.norm(x)",
        "np.einsum('i,i->', x, x)",
        "(y[0]) ** 2.0",
    ):
        assert len(list(squares(ast.parse(f"def f():\n    return {expression}")))) >= 1, expression
    for expression in ("x * y", "2.0**-40", "np.einsum('i,i->', x, y)", "x @ y"):
        assert not list(squares(ast.parse(f"def f():\n    return {expression}"))), expression
