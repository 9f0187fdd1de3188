"""The rules of the architecture, read off the sources, and the two tables made from them.

``python tests/architecture.py`` renews the packages in CONTRIBUTING.md and the trusted files in docs/soundness.md.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "lipcert"

TRUSTED = ("kernel", "model")
"""The packages that a proof rests on, besides the errors."""
SUGGEST, ARGUMENTS = "suggest", "arguments"
"""Not trusted: the package that proofs may ask for suggestions, which knows the model only, and the one with which a
model reads what users hand in and puts itself into words, which knows nothing."""
ALLOWED = ("lipcert.errors", "numpy", "scipy.linalg", "scipy.sparse", "scipy.special")
"""What they import besides each other and the standard library ..."""
_MAY_USE = {"kernel": (*TRUSTED, SUGGEST, ARGUMENTS), "model": ("model", ARGUMENTS), SUGGEST: ("model", SUGGEST)}
FORBIDDEN = ("scipy.sparse.linalg", "scipy.sparse.csgraph", "importlib", "runpy")
"""... and what of these they do not."""


@dataclass(frozen=True)
class Module:
    """One source file under its dotted name."""

    name: str
    path: Path

    @property
    def package(self) -> str:
        """The folder that it is in, or a file at the top."""
        return self.name.split(".")[1] if "." in self.name else self.name

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @cached_property
    def code(self) -> int:
        """Lines without blank ones, comments and docstrings."""
        alone = [one for one in self.nodes if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)]
        texts = [one for one in alone if isinstance(one.value, ast.Constant) and isinstance(one.value.value, str)]
        docs = {line for one in texts for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)}
        rows = enumerate(self.path.read_text(encoding="utf-8").splitlines(), 1)
        return sum(k not in docs and bool(row.strip()) and not row.lstrip().startswith("#") for k, row in rows)

    @cached_property
    def imports(self) -> list[tuple[int, str, str]]:
        """Line, full name and name here of all that is imported, anywhere; a string that names a module counts too."""
        found = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found += [(node.lineno, one.name, one.asname or one.name) for one in node.names]
            elif isinstance(node, ast.ImportFrom):
                above = self.name.split(".")[: -node.level + (self.path.stem == "__init__") or None]
                source = ".".join([*(above if node.level else []), *([node.module] if node.module else [])])
                found += [(node.lineno, f"{source}.{one.name}", one.asname or one.name) for one in node.names]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("lipcert."):
                named = node.value.partition(":")[0]
                if not self.name.startswith(f"{named}."):  # a package that it is in: resources are found there
                    found.append((node.lineno, named, ""))
        return found


@cache
def _modules() -> dict[str, Module]:
    paths = {path: path.relative_to(SOURCES.parent).with_suffix("").parts for path in sorted(SOURCES.rglob("*.py"))}
    named = [(".".join(parts).removesuffix(".__init__"), path) for path, parts in paths.items()]
    return {name: Module(name, path) for name, path in named}


class Architecture:
    """All modules of the sources, and who imports whom; ``changed`` stands in the place of the module of its name."""

    def __init__(self, changed: Module | None = None) -> None:
        self.modules = _modules() | ({changed.name: changed} if changed else {})
        self.trusted = [one for one in self.modules.values() if one.package in (*TRUSTED, "errors")]

    def module_of(self, target: str) -> str | None:
        """The module that an imported name is, or is in."""
        return next((one for one in (target, target.rpartition(".")[0]) if one in self.modules), None)

    @cached_property
    def uses(self) -> dict[str, set[str]]:
        """Module → the modules of lipcert that it imports."""
        every = {name: {self.module_of(target) for _, target, _ in one.imports} for name, one in self.modules.items()}
        return {name: {target for target in targets if target} - {name} for name, targets in every.items()}

    @cached_property
    def package_uses(self) -> dict[str, set[str]]:
        """Package → the packages that it imports."""
        found: dict[str, set[str]] = {module.package: set() for module in self.modules.values()}
        for name, targets in self.uses.items():
            here = self.modules[name].package
            found[here] |= {self.modules[target].package for target in targets} - {here}
        return found


def foreign(sources: Architecture) -> Iterator[str]:
    """What the trusted packages, and suggestions, import that they must not."""
    for module in (one for one in sources.modules.values() if one.package in (*TRUSTED, "errors", SUGGEST, ARGUMENTS)):
        mine = _MAY_USE.get(module.package, (module.package,))
        allowed = (*ALLOWED, *(f"lipcert.{name}" for name in mine))
        for line, target, _ in module.imports:
            standard = target.partition(".")[0] in sys.stdlib_module_names
            if not (standard or _within(target, allowed)) or _within(target, FORBIDDEN):
                yield f"{module.name}:{line} imports {target}"
        for node in module.nodes:
            if isinstance(node, ast.Name) and node.id in {"__import__", "exec", "eval"}:
                yield f"{module.name}:{node.lineno} uses {node.id}"


def _within(target: str, roots: tuple[str, ...]) -> bool:
    return any(f"{target}.".startswith(f"{root}.") for root in roots)


def module_cycles(sources: Architecture) -> Iterator[str]:
    """Modules that import each other, be it for types or inside functions."""
    yield from _cycles(sources.uses)


def package_cycles(sources: Architecture) -> Iterator[str]:
    """Packages that import each other."""
    yield from _cycles(sources.package_uses)


def _cycles(uses: Mapping[str, set[str]]) -> Iterator[str]:
    try:
        TopologicalSorter(uses).prepare()
    except CycleError as error:
        yield " → ".join(error.args[1])


def rounding_units(sources: Architecture) -> Iterator[str]:
    """Rules of a proof that name the unit of rounding: numbers carry what they lose."""
    for module in sources.modules.values():
        if module.package == "kernel" and module.path.stem not in ("arithmetic", "neuron_bounds"):
            for line, target, _ in module.imports:
                if target.removeprefix("lipcert.kernel.arithmetic.") in {"gamma", "U", "UP", "TINY", "ETA", "ULPS"}:
                    yield f"{module.name}:{line} imports {target}"


def private_names(sources: Architecture) -> Iterator[str]:
    """Names that begin with an underscore and are used by another module than their own."""
    for name, module in sources.modules.items():
        here = {alias: target for _, target, alias in module.imports}
        used = [(line, target) for line, target, _ in module.imports]
        for node in module.nodes:
            if isinstance(node, ast.Attribute):
                owner = ast.unparse(node.value)
                used.append((node.lineno, f"{here.get(owner, owner)}.{node.attr}"))
        for line, target in used:
            owner, _, last = target.rpartition(".")
            if last.startswith("_") and not last.startswith("__") and owner in sources.modules and owner != name:
                yield f"{name}:{line} uses {last} of {owner}"


def claims(sources: Architecture) -> Iterator[str]:
    """Where a module outside the kernel makes a fact, changes one, or says itself that something is verified."""
    for name, module in sources.modules.items():
        for node in module.nodes if module.package != "kernel" else ():
            if isinstance(node, ast.Attribute) and node.attr == "verified" and isinstance(node.ctx, ast.Store):
                yield f"{name}:{node.lineno} sets verified"
            if isinstance(node, ast.FunctionDef) and node.name in ("verified", "shows") and name != CERTIFICATE:
                yield f"{name}:{node.lineno} defines {node.name}"
            if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Fact") for base in node.bases):
                yield f"{name}:{node.lineno} derives a class from a fact"
            if isinstance(node, ast.Call):
                kind, text = ast.unparse(node.func).rpartition(".")[2], ast.unparse(node)
                if kind.endswith("Fact") or kind == "made":
                    yield f"{name}:{node.lineno} makes a fact: {text[:60]}"
                if kind == "replace" and node.args and _FACT.search(ast.unparse(node.args[0])):
                    yield f"{name}:{node.lineno} changes a fact: {text[:60]}"
                if "setattr" in kind and ("verified" in text or "fact" in text.lower()):
                    yield f"{name}:{node.lineno} sets verified, or a fact: {text[:60]}"


_FACT = re.compile(r"(^|\W|_)facts?(\[\w+\])?$")
"""What something is called that is a fact."""
CERTIFICATE = "lipcert.answers.certificate"
"""Where a certificate asks its fact whether that shows it."""


Rule = Callable[[Architecture], Iterator[str]]
RULES: list[Rule] = [foreign, module_cycles, package_cycles, private_names, rounding_units, claims]


def drawing(sources: Architecture) -> str:
    """The packages as text: each imports only packages further down."""
    uses = {name: targets for name, targets in sources.package_uses.items() if name != "__main__"}
    height: dict[str, int] = {}
    for name in TopologicalSorter(uses).static_order():
        height[name] = 1 + max((height[other] for other in uses[name]), default=-1)
    order = sorted(uses, key=lambda name: (-height[name], name))
    width = max(map(len, uses)) + 2
    rows = [f"{'package':<{width}} {'lines':>6}   imports"]
    above = None
    for name in order:
        if height[name] != above:
            rows.append("")
        above = height[name]
        code = sum(one.code for one in sources.modules.values() if one.package == name)
        label = f"{name} *" if name in TRUSTED else name
        below = ", ".join(other for other in order if other in uses[name]) or "nothing of lipcert"
        rows.append(f"{label:<{width}} {code:>6,}   {below}")
    return "\n".join(rows)


def trusted_table(sources: Architecture) -> str:
    """The files that a proof rests on, with their lines of code."""
    rows = ["| file | lines of code | what it is |", "|---|---:|---|"]
    modules = [module for module in sources.trusted if module.code]
    for module in sorted(modules, key=lambda one: one.name):
        summary = (ast.get_docstring(module.tree) or "").partition("\n")[0].rstrip(".:")
        rows.append(f"| `{module.path.relative_to(SOURCES)}` | {module.code} | {summary} |")
    return "\n".join([*rows, f"| all | {sum(one.code for one in modules):,} | |"])


DOCUMENTS: dict[str, tuple[Path, Callable[[Architecture], str]]] = {
    "packages": (ROOT / "CONTRIBUTING.md", lambda sources: f"```text\n{drawing(sources)}\n```\n"),
    "trusted": (ROOT / "docs" / "soundness.md", lambda sources: f"\n{trusted_table(sources)}\n\n"),
}
"""Marker → the document it stands in, and what belongs there."""


def renewed(marker: str, sources: Architecture) -> tuple[Path, str]:
    """A document, and its text with what belongs between the two lines of the marker."""
    path, make = DOCUMENTS[marker]
    before, start, rest = path.read_text(encoding="utf-8").partition(f"<!-- {marker}: begin -->\n")
    _, stop, after = rest.partition(f"<!-- {marker}: end -->")
    if not stop:
        raise ValueError(f"{path.name} has no marker {marker!r}")
    return path, before + start + make(sources) + stop + after


if __name__ == "__main__":
    for name in DOCUMENTS:
        document, text = renewed(name, Architecture())
        document.write_text(text, encoding="utf-8")
