"""Activations as users name them: ``"LeakyReLU"``, ``"leaky_relu(0.2)"``, or a name with parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from lipcert.arguments.numbers import numbers
from lipcert.errors import InvalidInput

ALIASES: Final[Mapping[str, str]] = {
    "linear": "identity",
    "prelu": "leaky_relu",
    "swish": "silu",
    "atan": "arctan",
    "none": "identity",
    "cosine": "cos",
    "sine": "sin",
    "absolute": "abs",
}
PRESETS: Final[Mapping[str, tuple[str, Mapping[str, float]]]] = {"abs": ("leaky_relu", {"negative_slope": -1.0})}
"""Names of rows with certain parameters."""
Defaults = Callable[[str], Mapping[str, float]]
"""The parameters of a row, in order, with their defaults."""


def read(
    name: Any, parameters: Mapping[str, Any], rows: Collection[str], defined: Callable[[str], str | None], of: Defaults
) -> tuple[str, tuple[Any, ...]]:
    """The row that is meant, and its parameters; ``defined`` knows the names that users have defined."""
    if isinstance(name, str) and "(" in name and not parameters:
        name, parameters = _call(name, lambda short: of(_key(short, rows, defined)[0]))
    key, preset = _key(name, rows, defined)
    slots = {} if preset else of(key)
    unknown = set(parameters) - set(slots)
    if unknown:
        known = f"it takes {', '.join(slots) or 'none'}"
        raise InvalidInput(f"activation {name!r} has no parameter {', '.join(sorted(unknown))}; {known}")
    given = {label: numbers(f"activation {key!r}: {label}", parameters.get(label, slots[label])) for label in slots}
    for value in given.values():
        value.flags.writeable = False
    return key, tuple(preset.values()) or tuple(value if value.ndim else float(value) for value in given.values())


def _key(name: Any, rows: Collection[str], defined: Callable[[str], str | None]) -> tuple[str, Mapping[str, float]]:
    """The row of a name, and what a preset says; case, spaces, dashes and underscores do not matter."""
    if not isinstance(name, str):
        raise InvalidInput(f"activation must be a name or an Activation, got {type(name).__name__}")
    mine = defined(name)
    if mine is not None:
        return mine, {}
    squeezed = "".join(c for c in name.lower() if c.isalnum())
    names = {key.replace("_", ""): key for key in (*rows, *PRESETS)}
    names |= {key.replace("_", ""): v for key, v in ALIASES.items()}
    if squeezed not in names:
        raise InvalidInput(f"unknown activation {name!r}; known are {', '.join(sorted({*rows, *PRESETS, *ALIASES}))}")
    return PRESETS.get(names[squeezed], (names[squeezed], {}))


def _call(text: str, of: Defaults) -> tuple[str, Mapping[str, float]]:
    """The name in ``"name(0.2, beta=1)"``, and the parameters in its brackets."""
    match = re.fullmatch(r"([^()]*)(?:\(([^()]*)\))?", text.strip())
    if match is None:
        raise InvalidInput(f"activation {text!r} is not a name or name(number, …), as in leaky_relu(0.2)")
    given = [part for part in (match[2] or "").split(",") if part.strip()]
    slots = list(of(match[1]))
    parameters: dict[str, float] = {}
    for place, part in enumerate(given):
        label, _, number = part.rpartition("=")
        if not label and place >= len(slots):
            known = ", ".join(slots) or "nothing"
            raise InvalidInput(f"activation {text!r} has too many parameters; {match[1]} takes {known}")
        slot = label.strip() or slots[place]
        if slot in parameters:
            raise InvalidInput(f"activation {text!r} says {slot} twice")
        try:
            parameters[slot] = float(number)
        except ValueError:
            raise InvalidInput(f"activation {text!r}: {part.strip()!r} is not a number") from None
    return match[1], parameters
