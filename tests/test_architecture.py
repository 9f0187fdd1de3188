"""The rules of the architecture hold, and each is seen when it is broken on purpose."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from architecture import (
    DOCUMENTS,
    RULES,
    SOURCES,
    TRUSTED,
    Architecture,
    Module,
    Rule,
    claims,
    foreign,
    module_cycles,
    package_cycles,
    private_names,
    renewed,
    rounding_units,
)

HERE = Architecture()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_rule_is_broken(rule: Rule) -> None:
    assert list(rule(HERE)) == []


def test_all_sources_are_seen() -> None:
    assert {module.path for module in HERE.modules.values()} == set(SOURCES.rglob("*.py"))
    assert "lipcert.kernel.arithmetic" in HERE.uses["lipcert.kernel.step"]
    assert {"kernel", "methods"} <= HERE.package_uses["questions"]
    assert "lipcert.importers.onnx" in HERE.uses["lipcert.importers"]  # named in a table of strings


_LOAD = """
import importlib, pkgutil, sys, types
bare = types.ModuleType("lipcert")
bare.__path__ = [sys.argv[1]]
sys.modules["lipcert"] = bare
for name in ("kernel", "model"):
    package = importlib.import_module("lipcert." + name)
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
print("\\n".join(sys.modules))
"""


def loaded(folder: Path) -> set[str]:
    """The modules that the trusted packages load when no other module of lipcert is there."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", _LOAD, str(folder)]
    return set(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split())


def test_the_trusted_packages_load_no_optimiser() -> None:
    names = loaded(SOURCES)
    assert names >= {name for name, module in HERE.modules.items() if module.package in TRUSTED}
    unwanted = {"scipy.optimize", "threadpoolctl", "rich", "typer", "torch", "onnx", "cvxpy", "flint"}
    assert names & unwanted == set()
    ours = {".".join(name.split(".")[:2]) for name in names if name.startswith("lipcert.")}
    assert ours == {"lipcert.kernel", "lipcert.model", "lipcert.errors", "lipcert.suggest", "lipcert.arguments"}


def test_an_optimiser_that_is_loaded_is_seen(tmp_path: Path) -> None:
    copied = tmp_path / "lipcert"
    shutil.copytree(SOURCES, copied, ignore=shutil.ignore_patterns("__pycache__"))
    path = copied / "kernel" / "arithmetic.py"
    path.write_text(path.read_text(encoding="utf-8") + "\nimport scipy.optimize\n", encoding="utf-8")
    assert "scipy.optimize" in loaded(copied)


METHOD = "from lipcert.methods.method import Stage"
LATE = f"def late():\n    {METHOD}"
TYPES = f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {METHOD}"
JOINT = "def late():\n    from lipcert.methods import joint"
STRINGS = "A = 'lipcert.model.network:Network'"
PLANTED: dict[str, tuple[Rule, str, str, str]] = {
    "an optimiser": (foreign, "kernel/step.py", "from scipy import optimize", "scipy.optimize"),
    "solvers of sparse systems": (foreign, "model/network.py", "import scipy.sparse.linalg", "scipy.sparse.linalg"),
    "a search": (foreign, "kernel/arithmetic.py", METHOD, "methods.method"),
    "a search, for types": (foreign, "kernel/arithmetic.py", TYPES, "methods.method"),
    "a search, later": (foreign, "errors.py", LATE, "methods.method"),
    "a search, from here": (foreign, "kernel/step.py", "from ..methods.method import Stage", "lipcert.methods.method"),
    "a suggestion that proves": (foreign, "suggest/lines.py", "from lipcert.kernel import step", "lipcert.kernel.step"),
    "a suggestion for the model": (foreign, "model/arrays.py", "import lipcert.suggest.lines", "lipcert.suggest.lines"),
    "arguments, with a model": (foreign, "arguments/numbers.py", "import lipcert.model.arrays", "model.arrays"),
    "a search, by a string": (foreign, "kernel/facts.py", "WHERE = 'lipcert.methods.method'", "lipcert.methods.method"),
    "whatever is asked for": (foreign, "kernel/facts.py", "import importlib", "imports importlib"),
    "whatever is asked for, built in": (foreign, "kernel/facts.py", "odd = __import__('rich')", "uses __import__"),
    "a cycle": (module_cycles, "kernel/arithmetic.py", "from lipcert.kernel.step import Step", "kernel.step"),
    "a cycle, later": (module_cycles, "methods/method.py", JOINT, "methods.joint"),
    "a cycle, by a string": (module_cycles, "model/arrays.py", STRINGS, "model.network"),
    "a cycle of packages": (package_cycles, "runtime/machine.py", "import lipcert.methods.split", "runtime"),
    "a private name": (
        private_names,
        "methods/method.py",
        "from lipcert.kernel.branch_and_bound import _shape",
        "_shape",
    ),
    "a private name, dotted": (private_names, "cli/methods.py", "import lipcert.errors as e\ne._x", "_x"),
    "a charge by hand": (rounding_units, "kernel/step.py", "from lipcert.kernel.arithmetic import UP", "UP"),
    "a fact": (claims, "methods/method.py", "facts.LipschitzFact('', None, frozenset(), None, 1.0)", "makes a fact"),
    "a fact, indirectly": (claims, "answers/reach.py", "proofs[0].made(RowsFact, (), 1)", "makes a fact"),
    "a fact changed": (claims, "questions/certify.py", "replace(found.facts[0], bound=1.0)", "changes a fact"),
    "a fact by force": (claims, "questions/certify.py", "object.__setattr__(fact, 'bound', 1.0)", "sets verified"),
    "a fact of its own": (claims, "methods/method.py", "class Mine(LipschitzFact):\n    pass", "derives"),
    "a claim": (claims, "questions/certify.py", "found.verified = True", "sets verified"),
    "a claim, computed": (claims, "questions/certify.py", "def verified(self): return True", "defines verified"),
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_broken_rule_is_seen(mistake: str, tmp_path: Path) -> None:
    rule, name, text, message = PLANTED[mistake]
    path = tmp_path / Path(name).name
    path.write_text((SOURCES / name).read_text(encoding="utf-8") + f"\n{text}\n", encoding="utf-8")
    changed = Module("lipcert." + name.removesuffix(".py").replace("/", "."), path)
    found = list(rule(Architecture(changed)))
    assert any(message in line for line in found), found


@pytest.mark.parametrize("marker", DOCUMENTS)
def test_documents_show_the_sources_as_they_are(marker: str) -> None:
    path, text = renewed(marker, HERE)
    assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date: python tests/architecture.py"
