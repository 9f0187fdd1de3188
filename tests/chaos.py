"""Garbage of the right shape in place of what the functions outside the trusted packages return."""

from __future__ import annotations

import ast
import copy
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from architecture import Architecture
from lipcert.model.arrays import Array

PACKAGES = ("methods", "questions", "runtime", "suggest")
"""Whose functions return garbage."""
CALLS = 400
"""So many pieces of garbage are enough for one question; a loop that waits for a good one would have no end."""
KINDS = ("random", "nan", "infinite", "negative", "huge", "tiny", "zero", "permuted", "halved", "doubled")
DECOY = "decoy"
"""No garbage, but true statements about something else."""
DATA = {"Hints", "LayerReport", "DualHints", "Part"}
"""Classes of the trusted packages that hold data which anyone may write."""


class EnoughGarbage(Exception):
    """The question was not answered within the calls that it has."""


@dataclass(frozen=True)
class Target:
    """A function of a module, or a method or property of one of its classes."""

    module: str
    owner: str
    name: str

    @property
    def label(self) -> str:
        return ".".join(part for part in (self.module.removeprefix("lipcert."), self.owner, self.name) if part)

    @property
    def holder(self) -> Any:
        module = importlib.import_module(self.module)
        return getattr(module, self.owner) if self.owner else module

    @property
    def found(self) -> Any:
        return vars(self.holder)[self.name]


def targets() -> list[Target]:
    """Every function and method that is written down in the sources of the packages."""
    found = []
    for module in Architecture().modules.values():
        if module.package not in PACKAGES:
            continue
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef):
                found.append(Target(module.name, "", node.name))
            elif isinstance(node, ast.ClassDef):
                members = [inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)]
                found += [Target(module.name, node.name, name) for name in members]
    return [one for one in found if not getattr(one.found, "__isabstractmethod__", False)]


@dataclass(eq=False)
class Garbage:
    """Turns values into others of the same shape.

    ``kind`` is one of KINDS, or "any", then each number has its own; ``share`` of the values are turned. ``decoys``
    are true statements about something else: they take the place of proved objects of their class.
    """

    rng: np.random.Generator
    kind: str = "any"
    share: float = 1.0
    decoys: tuple[Any, ...] = ()
    calls: int = 0

    def count(self) -> None:
        self.calls += 1
        if self.calls > CALLS:
            raise EnoughGarbage

    def of(self, value: Any) -> Any:
        """Something of the same shape."""
        if self.share < 1.0 and self.rng.random() > self.share:
            return value
        return self._of(value)

    def _of(self, value: Any) -> Any:
        if self.kind == DECOY and isinstance(value, (np.ndarray, np.generic, bool, int, float)):
            return value
        if isinstance(value, np.ndarray):
            return self.array(value)
        if isinstance(value, (bool, np.bool_)):
            return not value
        if isinstance(value, (int, np.integer)):
            return int(value) + int(self.rng.integers(-2, 3))
        if isinstance(value, (float, np.floating)):
            return float(self.array(np.array([float(value)]))[0])
        if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            return type(value)(self._of(item) for item in value)
        if isinstance(value, dict):
            return {key: self._of(item) for key, item in value.items()}
        if isinstance(value, (FunctionType, functools.partial)):
            return self.function(value)
        if inspect.isgenerator(value):
            return self.items(value)
        return self.thing(value)

    def thing(self, value: Any) -> Any:
        """An object: another one of the class if it was proved, else a copy with garbage in its fields."""
        kind = type(value)
        for decoy in self.decoys:
            if isinstance(decoy, kind):
                return decoy
        package = kind.__module__.split(".")
        trusted = package[0] != "lipcert" or package[1] in ("kernel", "model", "errors", "exact")
        if trusted and kind.__name__ not in DATA:
            return value
        other = copy.copy(value)
        names = [field.name for field in fields(value)] if is_dataclass(value) else list(getattr(value, "__dict__", ()))
        for name in names:
            object.__setattr__(other, name, self._of(getattr(value, name)))
        return other

    def function(self, honest: Callable[..., Any]) -> Callable[..., Any]:
        def garbled(*arguments: Any, **options: Any) -> Any:
            self.count()
            return self.of(honest(*arguments, **options))

        return garbled

    def items(self, honest: Iterable[Any]) -> Generator[Any, Any, None]:
        for item in honest:
            self.count()
            yield self.of(item)

    def array(self, value: Array) -> Array:
        if value.dtype == bool:
            return ~value
        if value.dtype.kind in "iu":
            return value + self.rng.integers(-2, 3, value.shape)
        if value.dtype.kind != "f":
            return value
        kind = str(self.rng.choice(KINDS)) if self.kind == "any" else self.kind
        with np.errstate(all="ignore"):
            return np.asarray(self.numbers(kind, value), dtype=float)

    def numbers(self, kind: str, value: Array) -> Array:
        rng, shape = self.rng, value.shape
        made: dict[str, Callable[[], Array]] = {
            "random": lambda: rng.standard_normal(shape) * 10.0 ** rng.uniform(-3.0, 3.0, shape),
            "nan": lambda: np.where(rng.random(shape) < 0.5, np.nan, value),
            "infinite": lambda: np.where(rng.random(shape) < 0.5, rng.choice([-np.inf, np.inf], shape), value),
            "negative": lambda: -value,
            "huge": lambda: value * 1e150 + 1e100,
            "tiny": lambda: value * 1e-150,
            "zero": lambda: np.zeros(shape),
            "permuted": lambda: rng.permutation(value.ravel()).reshape(shape),
            "halved": lambda: 0.5 * value,
            "doubled": lambda: 2.0 * value,
        }
        return made[kind]()


def garbled(found: Any, garbage: Garbage) -> Any:
    """A function, method or property that calls the honest one and returns something else."""
    if isinstance(found, staticmethod):
        return staticmethod(garbled(found.__func__, garbage))
    if isinstance(found, classmethod):
        return classmethod(garbled(found.__func__, garbage))
    if isinstance(found, property):
        return property(garbled(found.fget, garbage))
    if isinstance(found, cached_property):
        return property(garbled(found.func, garbage))

    @functools.wraps(found)
    def wrong(*arguments: Any, **options: Any) -> Any:
        garbage.count()
        answer = found(*arguments, **options)
        if answer is None and arguments and getattr(found, "__name__", "") == "__init__":
            for name, value in list(vars(arguments[0]).items()):
                object.__setattr__(arguments[0], name, garbage.of(value))
        return garbage.of(answer)

    return wrong


@functools.cache
def _places(found: Any) -> tuple[tuple[Any, str], ...]:
    """Every module of the house that knows a function, and the name it has there."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "lipcert"]
    return tuple((module, name) for module in modules for name, value in vars(module).items() if value is found)


def replaced(target: Target, new: Any, patch: pytest.MonkeyPatch) -> None:
    """Put something in the place of a target, wherever it is known."""
    if target.owner:
        patch.setattr(target.holder, target.name, new)
        return
    for module, name in _places(target.found):
        patch.setattr(module, name, new)


@contextmanager
def chaos(chosen: Iterable[Target], garbage: Garbage) -> Iterator[None]:
    """Within the block the chosen functions return garbage."""
    with pytest.MonkeyPatch.context() as patch:
        for target, honest in [(target, target.found) for target in chosen]:
            replaced(target, garbled(honest, garbage), patch)
        yield


def reached(question: Callable[[], Any], candidates: Iterable[Target]) -> list[Target]:
    """The targets that a question calls."""
    seen: set[Target] = set()

    def watched(target: Target) -> Garbage:
        class Watching(Garbage):
            def count(self) -> None:
                seen.add(target)

        return Watching(np.random.default_rng(0), share=0.0)

    with pytest.MonkeyPatch.context() as patch:
        for target, honest in [(target, target.found) for target in candidates]:
            replaced(target, garbled(honest, watched(target)), patch)
        question()
    return sorted(seen, key=lambda target: target.label)
