"""Activations of one's own: straight pieces, formulas with declared facts, and what is said of them."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import lipcert as lc
from lipcert.errors import InvalidInput, ProofFailed, UnreadableCertificate
from networks import random_network

Function = Callable[[Any], Any]
BALL = lc.Ball([0.1, -0.2, 0.3], 0.4)


class Declaration(NamedTuple):
    """A true one."""

    value: Function
    slope: Function
    points: list[float]
    facts: dict[str, Any]


TRUE = {
    "tanh_": Declaration(np.tanh, lambda v: 1.0 - np.tanh(v) ** 2, [0.0], {"limits": (0.0, 0.0)}),
    "bump": Declaration(
        lambda v: np.exp(-v * v),
        lambda v: -2.0 * v * np.exp(-v * v),
        [-np.sqrt(0.5), np.sqrt(0.5)],
        {"limits": (0.0, 0.0)},
    ),
    "shrink": Declaration(
        lambda v: np.where(v > 0.5, v - 0.5, np.where(v < -0.5, v + 0.5, 0.0)),
        lambda v: 1.0 * (np.abs(v) > 0.5),
        [-0.5, 0.5],
        {"limits": (1.0, 1.0), "kinks": True},
    ),
    "faint": Declaration(  # the second wave is small: slopes turn back by 1e-9 only
        lambda v: np.arctan(v) + 1e-9 * np.sin(v) / (1.0 + v * v),
        lambda v: 1.0 / (1.0 + v * v) + 1e-9 * (np.cos(v) / (1.0 + v * v) - 2.0 * v * np.sin(v) / (1.0 + v * v) ** 2),
        [0.0],
        {"limits": (0.0, 0.0)},
    ),
    "narrow": Declaration(  # a dent of width 1e-3 at 5; φ'' = 0 where sech²·tanh changes sign
        lambda v: v + 1e-6 * np.tanh(1e3 * (v - 5.0)),
        lambda v: 1.0 + 1e-3 * (1.0 - np.tanh(1e3 * (v - 5.0)) ** 2),
        [5.0],
        {"limits": (1.0, 1.0)},
    ),
}


def declare(name: str, one: Declaration, **changes: Any) -> lc.Activation:
    facts = {**one.facts, **changes}
    points = facts.pop("turning_points", one.points)
    return lc.define_activation(f"my_{name}", one.value, one.slope, points, **facts)


@pytest.mark.parametrize("name", TRUE)
def test_true_declarations_pass_and_say_declared(name: str) -> None:
    row = declare(name, TRUE[name])
    network = random_network(3, (3, 6, 6, 2), row)
    assert "declared" in row.row.declared
    assert "turning points checked by ball arithmetic" in row.row.declared
    found = lc.certify(network, BALL, lc.Joint(iterations=5))
    assert found.declared
    assert "declared" in repr(found)
    assert lc.lower_bound(network, BALL).value <= found.bound
    assert lc.verify(network, found) <= found.bound


def test_a_turning_point_left_out_is_caught() -> None:
    """But for that of a dent too faint to be seen, whose network then says that it is declared."""
    cases = [
        (name, points)
        for name, one in TRUE.items()
        for points in itertools.combinations(one.points, len(one.points) - 1)
    ]
    caught = 0
    for name, points in cases:
        try:
            row = declare(name, TRUE[name], turning_points=points)
        except InvalidInput:
            caught += 1
        else:
            assert lc.Network.from_weights([np.eye(2), np.eye(2)], activation=row).digest.startswith("declared:")
    assert caught >= len(cases) - 1 >= 6


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("tanh_", {"limits": (0.0, 1.0)}, r"limits or turning_points are wrong towards \+∞"),
        ("tanh_", {"limits": None}, "limits must be two numbers"),
        ("tanh_", {"rounding": 0.0}, "more than rounding=0 allows"),
        ("tanh_", {"turning_points": [0.0, -1.0]}, "must be ascending"),
        ("shrink", {"turning_points": []}, "slope jumps near -0.5; turning_points lacks"),
    ],
)
def test_other_facts_that_are_wrong(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        declare(name, TRUE[name], **changes)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda v: v if v > 0 else 0.0, "may not decide by the value"),
        (lambda v: np.arccosh(v), "may not use arccosh"),
        (lambda v: v**0.5, "only use whole powers"),
        (lambda v: np.sum(v), "may not use"),
        (lambda v: v + np.inf, "finite numbers as constants"),
        (lambda v: v.nothing, "cannot be written down as a formula"),
        (3.0, "must be a function of one variable, got float"),
    ],
)
def test_formulas_that_cannot_be_written_down(value: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=f"value.*{message}"):
        lc.define_activation("mine", value, np.cos, [0.0], limits=(0.0, 0.0))


@pytest.mark.parametrize(
    ("value", "slope", "points", "facts", "message"),
    [
        (np.tanh, lambda v: 1.0000001 - 1.0000001 * np.tanh(v) ** 2, [0.0], {"limits": (0, 0)}, "slope is"),
        (lambda v: np.where(v > 0.5, v, 0.0), lambda v: np.where(v > 0.5, 1.0, 0.0), [0.5], {}, "value jumps near 0.5"),
        (
            lambda v: np.where(v < 0.0, 0.5 * v * v + v, -0.1 * v),
            lambda v: np.where(v < 0.0, v + 1.0, -0.1),
            [0.0],
            {"kinks": False, "limits": (-np.inf, -0.1)},
            "slope jumps near .* kinks=True is missing",
        ),
        (lambda v: np.where(v > 0.7, v + 1e-9, v), lambda v: 1.0 + 0.0 * v, [0.5], {}, "value jumps near 0.7"),
        (lambda v: np.maximum(v, 0.3), lambda v: np.where(v > 0.3, 1.0, 0.0), [0.3 + 3e-8], {}, "exact place"),
        (np.sin, np.cos, [0.0, np.pi], {"kinks": False}, "turning_points lacks a point"),
    ],
)
def test_mistakes_that_would_make_a_bound_wrong(
    value: Function, slope: Function, points: list[float], facts: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        lc.define_activation("mine", value, slope, points, **{"limits": (0.0, 1.0), "kinks": True, **facts})


@pytest.mark.parametrize("name", ["relu", "abs", "2x", "a b", "", 7, "Sigmoid"])
def test_names(name: Any) -> None:
    with pytest.raises(InvalidInput, match="name must be a name of your own"):
        lc.define_activation(name, np.tanh, lambda v: 1.0 - np.tanh(v) ** 2, [0.0], limits=(0.0, 0.0))


def test_verify_asks_for_the_same_declaration(tmp_path: Path) -> None:
    one, two = declare("tanh_", TRUE["tanh_"]), declare("tanh_", TRUE["tanh_"], rounding=2.0)
    assert one.name != two.name
    assert lc.activation("my_tanh_") == two, "the latest of that name"
    networks = [random_network(1, (3, 5, 2), row) for row in (one, two, "tanh")]
    found = lc.certify(networks[0], BALL, lc.Scalar())
    found.save(tmp_path / "bound.json")
    again = lc.Certificate.load(tmp_path / "bound.json")
    assert again.declared
    assert lc.verify(networks[0], again) <= found.bound
    for other in networks[1:]:
        with pytest.raises(ProofFailed, match="another network"):
            lc.verify(other, again)
    text = (tmp_path / "bound.json").read_text()
    assert '"network": "declared:' in text
    (tmp_path / "forged.json").write_text(text.replace("declared:", ""))
    with pytest.raises(UnreadableCertificate, match="checksum"):
        lc.Certificate.load(tmp_path / "forged.json")
    with pytest.raises(ProofFailed, match="no definition"):
        lc.verify(networks[0], found, exact=True)


def test_every_answer_says_declared() -> None:
    network = random_network(1, (3, 5, 2), declare("tanh_", TRUE["tanh_"]))
    assert lc.reach(network, BALL).network.startswith("declared:")
    assert lc.sensitivity(network, BALL).network.startswith("declared:")
    assert lc.certified_radius(network, np.zeros(3)).subject.startswith("declared:")
    assert pickle.loads(pickle.dumps(network)).digest == network.digest


def test_straight_pieces_are_exact() -> None:
    hat = lc.piecewise_linear([-1.0, 0.0, 1.0], [0.0, 1.0, -1.0, 0.5], value=0.25)
    v = np.array([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0])
    assert hat.value(v).tolist() == [0.25, 0.25, 0.75, 1.25, 0.75, 0.25, 1.25]
    assert hat.slope(np.array([-1.0, 0.0, 1.0]), -1).tolist() == [0.0, 1.0, -1.0]
    assert hat.slope(np.array([-1.0, 0.0, 1.0]), 1).tolist() == [1.0, -1.0, 0.5]
    network = random_network(2, (3, 8, 2), hat)
    found = lc.certify(network, BALL)
    assert not found.declared
    assert lc.lower_bound(network, BALL).value <= found.bound
    assert lc.verify(network, lc.certify(network, BALL, lc.Joint()), exact=True) <= 1.0001 * found.bound + 1.0


@pytest.mark.parametrize(
    ("knots", "slopes", "value", "message"),
    [
        ([1.0, 0.0], [0, 1, 2], 0.0, "ascending knots"),
        ([0.0, 0.0], [0, 1, 2], 0.0, "ascending knots"),
        ([], [1.0], 0.0, "knots must be 1 to 64"),
        ([0.0], [1.0], 0.0, "slopes must be 2 numbers for 1 knots"),
        ([0.0], [np.nan, 1.0], 0.0, "finite"),
        ([0.0], ["a", 1.0], 0.0, "must be real numbers"),
        ([-1e308, 1e308], [0, 1e300, 0], 0.0, "finite values"),
    ],
)
def test_straight_pieces_that_are_none(knots: Any, slopes: Any, value: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        lc.piecewise_linear(knots, slopes, value)
