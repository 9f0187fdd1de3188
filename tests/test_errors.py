"""Bad input: an error that names the argument, what came and what to do; nothing is computed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import lipcert as lc
from networks import random_network

NET = random_network(0, (3, 4, 5, 2), "relu")
EYE = np.eye(2)
NAN, INF = float("nan"), float("inf")
SMALL = lc.Network.from_weights([[[1.0, 2.0], [0.0, 1.0]], [[1.0, -1.0], [0.0, 1.0]]])
UNIT = lc.Ball([0.0, 0.0], 1.0)
ANY: Any = lc


def build(weights: Any, biases: Any = None, activation: Any = "relu") -> lc.Network:
    return lc.Network.from_weights(weights, biases, activation)


CASES: list[tuple[Callable[[], object], str]] = [
    (lambda: build([]), r"weights is empty: a network needs at least one layer"),
    (lambda: build([EYE, [[1.0, NAN]]]), r"weight of layer 2 must be finite, got 1 NaN or infinite"),
    (lambda: build([[[INF, 1.0]]]), r"weight of layer 1 must be finite, got 1"),
    (lambda: build([EYE, sparse.csr_array(np.array([[NAN, 1.0]]))]), r"weight of layer 2 must be finite"),
    (lambda: build([EYE], [[0.0, NAN]]), r"bias of layer 1 must be finite, got 1"),
    (lambda: build([np.array([[1j]])]), r"weight of layer 1 must be real numbers, got ndarray of complex"),
    (lambda: build([[[1.0], [1.0, 2.0]]]), r"weight of layer 1 must be numbers"),
    (lambda: build([np.zeros((0, 3))]), r"layer 1 must be a matrix .*got shape \(0, 3\)"),
    (lambda: build([[1.0, 2.0]]), r"must be a matrix \(outputs, inputs\), got shape \(2,\)"),
    (
        lambda: build([np.ones((4, 3)), np.ones((2, 5))]),
        r"layers 1 and 2 do not fit: layer 1 has 4 outputs, layer 2 takes 5 inputs; .* \(outputs, inputs\)$",
    ),
    (
        lambda: build([np.ones((3, 4)), np.ones((4, 2))]),
        r"layers 1 and 2 do not fit: layer 1 has 3 outputs, layer 2 takes 2 inputs.*fit when transposed: pass W\.T",
    ),
    (lambda: build([EYE, EYE], [[0.0, 0.0]]), r"biases has 1 entries for 2 layers"),
    (lambda: build([EYE], [[0.0]]), r"bias of layer 1 must have 2 numbers.*got shape \(1,\)"),
    (lambda: build([EYE, EYE], None, "rellu"), r"unknown activation 'rellu'; known are .*tanh"),
    (lambda: build([EYE, EYE], None, ["relu"] * 3), r"activation must be one name, or 1 entries for 2 layers; got 3"),
    (lambda: build([EYE, EYE], None, [["relu"] * 3]), r"one row per neuron: got 3 for 2 neurons"),
    (
        lambda: build([EYE, EYE], None, lc.activation("prelu", negative_slope=[0.1, 0.2, 0.3])),
        r"'leaky_relu' has parameters of shape \(3,\), the layer has 2 neurons",
    ),
    (
        lambda: build([EYE, EYE], None, [["relu", lc.activation("prelu", negative_slope=[0.1, 0.2])]]),
        r"activation of neuron 1 must have single numbers",
    ),
    (lambda: NET(np.zeros(4)), r"x must have 3 numbers.*got shape \(4,\)"),
    (lambda: NET([0.0, NAN, 0.0]), r"x must be finite"),
    (lambda: NET.slice(2, 1), r"0 <= p < i <= 3, got \(2, 1\)"),
    (lambda: NET.select(inputs=[3]), r"inputs must be indices from 0 to 2.*got \[3\]"),
    (lambda: NET.select(outputs=[1, 1]), r"outputs must not repeat an index; got \[1, 1\]"),
    (lambda: lc.Ball([0.0], -1.0), r"radius must be at least 0, got -1.0"),
    (lambda: lc.Ball([0.0], NAN), r"radius must be finite"),
    (lambda: lc.Ball("here", 1.0), r"center must be real numbers, got 'here'"),
    (lambda: lc.Ball([0.0, 1.0], [1.0, 2.0]), r"radius must be one number.*got shape \(2,\)"),
    (lambda: lc.Box([0.0, 2.0], [1.0, 1.0]), r"at index \[1\] lower is 2.0, upper is 1.0"),
    (lambda: lc.Box([0.0, 0.0], [1.0, 1.0, 1.0]), r"lower .*\(2,\).*upper .*\(3,\)"),
    (lambda: lc.Box([0.0], [INF]), r"upper must be finite"),
    (lambda: lc.Ball([2.0], 1.0, clip=(0, 1)), r"center must lie inside clip; project it"),
    (lambda: lc.Ball([0.5], 1.0, clip=3), r"clip must be a pair \(lower, upper\), got 3"),
    (lambda: lc.Ball([0.5, 0.5], 1.0, clip=([0, 0, 0], [1, 1, 1])), r"center has shape \(2,\), clip has shape \(3,\)"),
    (lambda: lc.Ball([0.5, 0.5], 1.0, clip=lc.Box([0, 0, 0], [1, 1, 1])), r"clip has 3 coordinates, center has 2"),
    (
        lambda: ANY.certify(NET, lc.Ball([0.0, 0.0], 1.0)),
        r"center must have 3 numbers, as the network has inputs; got shape \(2,\)",
    ),
    (lambda: ANY.certify([EYE], lc.Ball([0.0], 1.0)), r"network must be a lipcert.Network, got list"),
    (lambda: ANY.certify(NET, 0.5), r"region must be a Ball, Box or Everywhere, got float"),
    (lambda: ANY.certify(NET, None, "scaler"), r"'scaler' is unknown; known are .*scalar"),
    (lambda: ANY.certify(NET, None, lc.Scalar), r"must be a value, not a class; write Scalar\(\)"),
    (lambda: ANY.certify(NET, None, lc.Scalar(), enclosures=[]), r"enclosures is empty; give at least"),
    (lambda: ANY.certify(NET, None, lc.Scalar(), inputs=[0, 7]), r"inputs must be indices from 0 to 2"),
    (lambda: ANY.certify(NET, None, lc.Scalar(), outputs=[]), r"outputs must be indices.*at least one"),
    (lambda: ANY.certify(NET, None, lc.Scalar(), layers=(1, 9)), r"layers must be \(p, i\).*got \(1, 9\)"),
    (lambda: ANY.certify(NET, lc.Ball(np.zeros((2, 3)), 1.0), lc.Scalar()), r"one region"),
    (lambda: ANY.Network.from_weights(None), "weights must be a list"),
    (lambda: ANY.Network.from_weights([[[1.0]]], 3), "biases must be a list"),
    (lambda: ANY.Network.from_weights([[[10**400]]]), "weight of layer 1 must be"),
    (lambda: ANY.Network.from_weights([np.ma.array([[1.0]], mask=[[True]])]), "masked"),
    (lambda: ANY.certify(SMALL, UNIT, inputs=np.ma.array([0, 1], mask=[False, True])), "inputs .*masked"),
    (lambda: ANY.certify(SMALL, UNIT, enclosures=[3]), "enclosures must be values"),
    (lambda: ANY.lower_bound(SMALL, UNIT, samples=10**400), "samples must be a whole number"),
    (lambda: ANY.verify(SMALL, 3), "a Network and an answer"),
    (lambda: ANY.certified_radius(SMALL, [0.0, 1.0], label="a"), "label must be from 0 to 1"),
    (lambda: ANY.certified_radius(SMALL, [0.0, 1.0], radii="a"), "radii must be"),
    (lambda: ANY.certified_radius(SMALL, [0.0, 1.0], tolerance="x"), "tolerance must be"),
    (lambda: ANY.certified_radius(SMALL, [0.0, 1.0], method="x"), "'x' is unknown; known are trivial"),
    (lambda: ANY.certified_radius(3, [0.0, 1.0]), "network must be"),
    (lambda: ANY.certify(SMALL, UNIT, inputs=[[0], [0, 1]]), "inputs must be indices"),
    (lambda: ANY.certify(SMALL, UNIT, enclosures=[lc.Linear(-1)]), "depth must be"),
    (lambda: ANY.reach(SMALL, UNIT, enclosures=[lc.Linear(None, float("nan"))]), "tilt must be"),
    (lambda: ANY.reach(3, UNIT), "network must be"),
    (lambda: ANY.sensitivity(SMALL, UNIT, inputs=0), "inputs must be a list"),
    (lambda: ANY.sensitivity(3, UNIT), "network must be"),
    (lambda: ANY.lower_bound(SMALL, UNIT, seed=-1), "seed must be"),
    (lambda: ANY.lower_bound(3, UNIT), "network must be"),
    (lambda: ANY.sweep(SMALL, [0.0, 0.0], "a"), "radii must be"),
    (lambda: ANY.Network.from_weights([[[1.0]], [[1.0]]], activation=[3]), "activation must be"),
]
"""A call with nonsense in place of an argument, and what the error says."""


@pytest.mark.parametrize(("call", "message"), CASES, ids=[message for _, message in CASES])
def test_bad_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(lc.InvalidInput, match=message):
        call()


def test_errors_have_one_root_and_are_value_errors_where_python_expects_one() -> None:
    assert issubclass(lc.InvalidInput, lc.LipcertError)
    assert issubclass(lc.InvalidInput, ValueError)
    for error in (lc.ProofFailed, lc.UnreadableModel, lc.UnreadableCertificate):
        assert issubclass(error, lc.LipcertError)


def test_radius_zero_at_a_kink_counts_both_sides() -> None:
    """The Lipschitz constant of a point is a limit of neighbourhoods: at a kink the steeper side counts."""
    net = build([[[1.0]], [[3.0]]])
    assert lc.certify(net, lc.Ball([0.0], 0.0), lc.Scalar()).bound == pytest.approx(3.0, rel=1e-5)


def test_regions_as_large_as_floats_raise_no_warning() -> None:
    for region in (lc.Box([-1e308] * 2, [1e308] * 2), lc.Ball([0.0, 0.0], 1e308), lc.Ball([1e308, 0.0], 1e308)):
        bound = lc.certify(SMALL, region, lc.ClosedForm()).bound
        assert lc.lower_bound(SMALL, region, samples=50, steps=3).value <= bound


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "softsign", "arctan", "hardtanh"])
@pytest.mark.parametrize("size", [1e20, 1e65])
def test_reach_sets_of_bounded_neurons_are_bounded_over_regions_of_any_size(name: str, size: float) -> None:
    network = lc.Network.from_weights([np.eye(2), np.eye(2)], activation=name)
    found = lc.reach(network, lc.Box([-size] * 2, [size] * 2), lc.ClosedForm())
    assert (found.upper - found.lower <= 3.2).all()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_certificates_are_read_from_regular_files_only(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(lc.UnreadableCertificate, match="no regular file"):
        lc.Certificate.load(tmp_path / "pipe")


def test_a_point_at_which_the_network_overflows_is_a_problem_of_its_own_row(tmp_path: Path) -> None:
    network = lc.Network.from_weights([[[2.0, 2.0], [2.0, -2.0]], [[1.0, 0.0], [0.0, 1.0]]])
    points = np.array([[0.1, 0.2], [1e308, 1e308]])
    results = lc.campaign(network, points, [0, 0], radii=[0.1], out=tmp_path / "run.sqlite")
    problems = [row.problem for row in results.rows]
    assert problems[0] is None
    assert problems[1] is not None
    assert "too large" in problems[1]


def test_a_region_without_dimension_has_no_samples() -> None:
    for region in (lc.Box(-1, 1), lc.Ball(0.0, 1.0)):
        with pytest.raises(lc.InvalidInput, match="does not say how many inputs there are"):
            region.sample(3, np.random.default_rng(0))
