"""Mistakes that tests plant in the trusted code, to see that they are noticed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

Mistake = Callable[[pytest.MonkeyPatch], None]


def plant(where: str, wrong: Callable[..., Any]) -> Mistake:
    """A mistake: ``wrong(honest, …)`` in the place of ``module.name`` or ``module.Class.name`` of the kernel."""

    def mistake(patch: pytest.MonkeyPatch) -> None:
        module, *path, name = where.split(".")
        owner: Any = import_module(f"lipcert.kernel.{module}")
        for part in path:
            owner = getattr(owner, part)
        honest = vars(owner)[name]
        if isinstance(honest, functools.cached_property):
            patch.setattr(owner, name, property(lambda thing: wrong(honest.func, thing)))
        else:
            patch.setattr(owner, name, lambda *given, **named: wrong(honest, *given, **named))

    mistake.__name__ = where
    return mistake


def _other_powers(honest: Callable[..., Any], *given: Any) -> tuple[Any, Any]:
    S, exponent = honest(*given)
    return S, exponent - 1


other_powers = plant("step.Image.block", _other_powers)
"""Ellipsoids and their exponents relative to different powers of two, one per layer."""
