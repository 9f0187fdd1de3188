"""The house as its sources describe it: who imports whom, how long each file is, and a drawing of the packages.

``python tests/house.py`` renews the drawing in CONTRIBUTING.md and the table of the trusted base in docs/soundness.md.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "lipcert"

TRUSTED = ("proof", "model")
"""The packages that a proof rests on."""
SUGGEST = "suggest"
"""The package that proofs may ask for suggestions. It is not trusted, and knows the model only."""
ALLOWED = ("numpy", "scipy.linalg", "scipy.sparse", "scipy.special")
"""What the trusted packages import besides the standard library, each other and the errors."""
LONGEST = 600
"""Lines of a module at most."""


@dataclass(frozen=True)
class Import:
    """A name that a module imports: from where, which of its names (None: the module itself), and on which line."""

    target: str
    name: str | None
    line: int


@dataclass(frozen=True)
class Module:
    """One source file under its dotted name."""

    name: str
    path: Path
    is_package: bool

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return _parsed(self.text)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return _walked(self.text)

    @property
    def package(self) -> str:
        """The part of the house that it belongs to: a folder, or a file at the top."""
        return self.name.split(".")[1] if "." in self.name else self.name

    @cached_property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def code(self) -> int:
        """Lines without blank ones, comments and docstrings."""
        docs = {line for start, stop in _docstrings(self.tree) for line in range(start, stop + 1)}
        rows = enumerate(self.text.splitlines(), 1)
        return sum(bool(row.strip()) and not row.lstrip().startswith("#") and k not in docs for k, row in rows)


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def _walked(text: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(_parsed(text)))


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """First and last lines of strings that stand by themselves."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.end_lineno or node.lineno


class House:
    """All modules of a source tree."""

    def __init__(self, folder: Path = SOURCES) -> None:
        self.modules: dict[str, Module] = {}
        for path in sorted(folder.rglob("*.py")):
            parts = [folder.name, *path.relative_to(folder).with_suffix("").parts]
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            self.modules[name] = Module(name, path, is_package)

    def imports(self, module: Module) -> list[Import]:
        """Every import statement, wherever it stands, and every string that names a module of the house.

        A string may name a package that the module is in: that is where resources are found.
        """
        found = []
        for node in module.nodes:
            if isinstance(node, ast.Import):
                found += [Import(alias.name, None, node.lineno) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                source = self.source(module, node)
                for alias in node.names:
                    inner = f"{source}.{alias.name}"
                    is_module = inner in self.modules or _is_module(source, alias.name)
                    found.append(
                        Import(inner, None, node.lineno) if is_module else Import(source, alias.name, node.lineno)
                    )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = node.value.partition(":")[0]
                if named in self.modules and "." in named and not module.name.startswith(f"{named}."):
                    found.append(Import(named, None, node.lineno))
        return found

    def source(self, module: Module, node: ast.ImportFrom) -> str:
        """The module that a statement takes names from."""
        if not node.level:
            return node.module or ""
        parts = module.name.split(".")
        base = parts[: len(parts) - node.level + module.is_package]
        return ".".join([*base, *([node.module] if node.module else [])])

    @cached_property
    def uses(self) -> dict[str, set[str]]:
        """Module → the modules of the house that it imports."""
        return {
            name: {one.target for one in self.imports(module) if one.target in self.modules and one.target != name}
            for name, module in self.modules.items()
        }

    @cached_property
    def package_uses(self) -> dict[str, set[str]]:
        """Package → the packages that it imports."""
        found: dict[str, set[str]] = {module.package: set() for module in self.modules.values()}
        for name, targets in self.uses.items():
            here = self.modules[name].package
            found[here] |= {self.modules[target].package for target in targets} - {here}
        return found

    def closure(self, packages: Iterable[str]) -> set[str]:
        """The modules of some packages and all that they import, directly or not, with the packages these are in."""
        todo = [name for name, module in self.modules.items() if module.package in set(packages)]
        seen: set[str] = set()
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            parents = name.split(".")[:-1]
            todo += [".".join(parents[:k]) for k in range(2, len(parents) + 1)]  # all but the house itself
            todo += self.uses[name]
        return seen


@cache
def _is_module(source: str, name: str) -> bool:
    """Whether a name of scipy is itself a module, as ``sparse`` is."""
    if source.partition(".")[0] != "scipy":
        return False
    package = find_spec(source)
    return (
        package is not None and bool(package.submodule_search_locations) and find_spec(f"{source}.{name}") is not None
    )


def foreign(house: House) -> list[str]:
    """What the trusted packages import, directly or not, that they must not."""
    broken, root = [], next(iter(house.modules))
    known = {*TRUSTED, "errors", SUGGEST}
    for name in sorted(house.closure(TRUSTED)):
        module = house.modules[name]
        if module.package not in known:
            broken.append(f"{name} is imported, directly or not, by a trusted module")
        mine = known if module.package == "proof" else {"model", "errors", module.package}
        for one in house.imports(module):
            target, top = one.target, one.target.partition(".")[0]
            inside = top == root and ".".join(target.split(".")[1:2]) in mine
            standard = top in sys.stdlib_module_names and top not in {"importlib", "runpy"}
            if not (inside or standard or target in ALLOWED or target.startswith("numpy.")):
                broken.append(f"{name}:{one.line} imports {target}")
        for node in module.nodes:
            if isinstance(node, ast.Name) and node.id in {"__import__", "exec", "eval"}:
                broken.append(f"{name}:{node.lineno} uses {node.id}")
    return broken


def cycles(uses: Mapping[str, set[str]]) -> list[str]:
    """Every group of names that reach each other, smallest first."""
    reach = {name: _reached(uses, name) for name in uses}
    groups = {frozenset(two for two in reach[one] if one in reach[two]) | {one} for one in uses if one in reach[one]}
    return [" ↔ ".join(sorted(group)) for group in sorted(groups, key=lambda group: (len(group), sorted(group)))]


def _reached(uses: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    todo = list(uses[start])
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += uses.get(name, ())
    return seen


def private_names(house: House) -> list[str]:
    """Names that begin with an underscore and are used by another module than their own."""
    broken = []
    for name, module in house.modules.items():
        aliases: dict[str, str] = {}
        for node in module.nodes:
            if isinstance(node, ast.Import):
                aliases |= {alias.asname: alias.name for alias in node.names if alias.asname}
            elif isinstance(node, ast.ImportFrom):
                source = house.source(module, node)
                aliases |= {alias.asname or alias.name: f"{source}.{alias.name}" for alias in node.names}
                if source in house.modules:
                    hidden = [alias.name for alias in node.names if _hidden(alias.name)]
                    broken += [f"{name}:{node.lineno} imports {one} of {source}" for one in hidden]
        for node in module.nodes:
            if not isinstance(node, ast.Attribute) or not _hidden(node.attr):
                continue
            owner = ast.unparse(node.value)
            first, _, rest = owner.partition(".")
            full = aliases.get(first, first) + (f".{rest}" if rest else "")
            if full in house.modules and full != name:
                broken.append(f"{name}:{node.lineno} uses {node.attr} of {full}")
    return broken


def _hidden(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def claims(house: House) -> list[str]:
    """Where a module outside the proofs says that something is verified, or makes a certificate that may say so."""
    broken = []
    for name, module in house.modules.items():
        if module.package == "proof":
            continue
        for node in module.nodes:
            where = f"{name}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Call):
                function = ast.unparse(node.func)
                given = {word.arg: word.value for word in node.keywords}
                kind = function.rpartition(".")[2]
                flag = given.get("verified")
                if flag is not None and not _is(flag, False) and kind in {"Certificate", "replace"}:
                    broken.append(f"{where} says verified={ast.unparse(flag)}")
                elif flag is not None and _is(flag, True):
                    broken.append(f"{where} says verified=True")
                elif kind == "Certificate" and (flag is None or None in given):
                    broken.append(f"{where} makes a Certificate without verified=False")
                elif kind == "replace" and given.keys() & {"bound", "region", "network", "part", None}:
                    if _may_be_certificate(node):
                        broken.append(f"{where} changes what a certificate says: {ast.unparse(node)[:60]}")
                elif kind in {"__setattr__", "setattr"} and "verified" in ast.unparse(node):
                    broken.append(f"{where} sets verified")
            elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(one, ast.Attribute) and one.attr == "verified" for one in targets):
                    broken.append(f"{where} sets verified")
    return broken


def _is(node: ast.expr, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _may_be_certificate(call: ast.Call) -> bool:
    return bool(call.args) and "cert" in ast.unparse(call.args[0]).lower()


def too_long(house: House) -> list[str]:
    """Modules of more lines than a reader takes in."""
    return [f"{name} has {one.lines} lines" for name, one in house.modules.items() if one.lines > LONGEST]


def layers(uses: Mapping[str, set[str]]) -> list[list[str]]:
    """The packages from the top down: each stands above all that it imports."""
    height: dict[str, int] = {}

    def rise(name: str) -> int:
        if name not in height:
            height[name] = 1 + max((rise(other) for other in uses[name]), default=-1)
        return height[name]

    for name in uses:
        rise(name)
    return [sorted(name for name in uses if height[name] == level) for level in range(max(height.values()), -1, -1)]


def drawing(house: House) -> str:
    """The packages as text: each imports only packages further down."""
    uses = {name: set(targets) for name, targets in house.package_uses.items() if name != "__main__"}
    code = {name: sum(one.code for one in house.modules.values() if one.package == name) for name in uses}
    width = max(map(len, uses)) + 2
    order = [name for level in layers(uses) for name in level]
    rows = [f"{'package':<{width}} {'lines':>6}   imports"]
    for level in layers(uses):
        rows.append("")
        for name in level:
            below = ", ".join(other for other in order if other in uses[name]) or "nothing of the house"
            label = f"{name} *" if name in TRUSTED else name
            rows.append(f"{label:<{width}} {code[name]:>6,}   {below}")
    return "\n".join(rows)


def trusted_table(house: House) -> str:
    """The files that a proof rests on, with their lines of code."""
    trusted = (name for name in sorted(house.closure(TRUSTED)) if house.modules[name].package != SUGGEST)
    names = [name for name in trusted if house.modules[name].code]
    rows = ["| file | lines of code | what it is |", "|---|---:|---|"]
    for name in names:
        module = house.modules[name]
        summary = (ast.get_docstring(module.tree) or "").partition("\n")[0].rstrip(".:")
        path = module.path.relative_to(house.modules[name.partition(".")[0]].path.parent)
        rows.append(f"| `{path}` | {module.code} | {summary} |")
    total = sum(house.modules[name].code for name in names)
    return "\n".join([*rows, f"| all | {total:,} | |"])


def between(text: str, marker: str) -> tuple[str, str, str]:
    """What stands before, between and after the two lines of a marker."""
    start, stop = f"<!-- {marker}: begin -->\n", f"<!-- {marker}: end -->"
    before, _, rest = text.partition(start)
    inner, _, after = rest.partition(stop)
    if not rest or not after:
        raise ValueError(f"the marker {marker!r} is missing")
    return before + start, inner, stop + after


DOCUMENTS: dict[str, tuple[Path, Callable[[House], str]]] = {
    "packages": (ROOT / "CONTRIBUTING.md", lambda house: f"```text\n{drawing(house)}\n```\n"),
    "trusted": (ROOT / "docs" / "soundness.md", lambda house: f"\n{trusted_table(house)}\n\n"),
}
"""Marker → the document it stands in, and what belongs there."""


def renew() -> None:
    house = House()
    for marker, (path, make) in DOCUMENTS.items():
        before, _, after = between(path.read_text(encoding="utf-8"), marker)
        path.write_text(before + make(house) + after, encoding="utf-8")


if __name__ == "__main__":
    renew()
