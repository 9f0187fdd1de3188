"""Mistakes that tests plant in the trusted code, to see that they are noticed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
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


def _without_epsilon(honest: Callable[..., Any], sweep: Any, index: int, *given: Any) -> tuple[Any, Any]:
    low, high = honest(sweep, index, *given)
    layer = sweep.network.layers[index]
    epsilon = np.zeros(layer.size)
    for row, places in layer.plain.groups:
        epsilon[places] = layer.bias[places] if row.name == "rsqrt" else 0.0
    sweep.intervals[-1] = low - epsilon, high - epsilon
    return sweep.intervals[-1]


without_epsilon = plant("sweep.Sweep._interval", _without_epsilon)
"""What a normalisation adds before it takes the root is left out of the interval of the sum."""
