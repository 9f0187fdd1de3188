"""Declared facts about an activation, held against ball arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lipcert.errors import InvalidInput
from lipcert.exact import declarations
from lipcert.model.declared import Definition, definition_of
from lipcert.questions.define import define_activation


@pytest.fixture(scope="module")
def snake() -> Definition:
    row = define_activation(
        "declared_snake",
        lambda x: x + np.sin(x) ** 2,
        lambda x: 1.0 + np.sin(2.0 * x),
        turning_points=[np.pi / 4, 3 * np.pi / 4],
        period=np.pi,
        drift=1.0,
        extent=(0.0, 1.0),
    )
    found = definition_of(row.name)
    assert found is not None
    return found


def test_true_facts_are_checked(snake: Definition) -> None:
    assert "checked by ball arithmetic over a whole period" in declarations.check(snake)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"knots": (np.pi / 4, 3 * np.pi / 4 - 0.01)}, "turning_points"),
        ({"shape": (1, -1)}, "turning_points|slope"),
        ({"extent": (0.0, 0.99)}, "extent"),
        ({"extent": (0.01, 1.0)}, "extent"),
    ],
)
def test_false_facts_are_refused(snake: Definition, change: dict[str, Any], message: str) -> None:
    if "shape" in change and change["shape"] == snake.shape:
        change = {"shape": tuple(-s for s in snake.shape)}
    with pytest.raises(InvalidInput, match=message):
        declarations.check(replace(snake, **change))


def test_a_slope_of_another_function_is_refused(snake: Definition) -> None:
    with pytest.raises(InvalidInput, match="derivative of value"):
        declarations.check(replace(snake, slope=snake.value))
