"""Nonsense in place of arguments: an error of ours that names the argument, wherever it is given."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import lipcert as lc
from lipcert.cli import app
from lipcert.errors import InvalidInput

NET = lc.Network.from_weights([[[1.0, 2.0], [0.0, 1.0]], [[1.0, -1.0], [0.0, 1.0]]])
BALL = lc.Ball([0.0, 0.0], 1.0)
ANY: Any = lc


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ANY.Network.from_weights(None), "weights must be a list"),
        (lambda: ANY.Network.from_weights(3), "weights must be a list"),
        (lambda: ANY.Network.from_weights([[[1.0]]], 3), "biases must be a list"),
        (lambda: ANY.Network.from_weights([[[1.0]], [[1.0]]], activation=3), "activation must be a list"),
        (lambda: ANY.Network.from_weights([[[10**400]]]), "weight of layer 1 must be"),
        (lambda: ANY.Network.from_weights([np.ma.array([[1.0]], mask=[[True]])]), "masked"),
        (lambda: ANY.certify(NET, BALL, inputs=np.ma.array([0, 1], mask=[False, True])), "inputs .*masked"),
        (lambda: ANY.certify(NET, BALL, layers=("a", "b")), "layers must be"),
        (lambda: ANY.certify(NET, BALL, enclosures=[3]), "enclosures must be values"),
        (lambda: ANY.lower_bound(NET, None), "region must be a Ball, Box or Everywhere"),
        (lambda: ANY.lower_bound(NET, BALL, samples=10**400), "samples must be a whole number"),
        (lambda: ANY.lower_bound(NET, BALL, samples=-1), "samples must be a whole number"),
        (lambda: ANY.sensitivity(NET, 3), "region must be"),
        (lambda: ANY.verify(NET, 3), "a Network and an answer"),
        (lambda: ANY.verify(3, 3), "a Network and an answer"),
        (lambda: ANY.certified_radius(NET, [0.0, 1.0], label="a"), "label must be from 0 to 1"),
        (lambda: ANY.certified_radius(NET, [0.0, 1.0], label=0.5), "label must be from 0 to 1"),
        (lambda: ANY.certified_radius(NET, [0.0, 1.0], radii="a"), "radii must be"),
        (lambda: ANY.certified_radius(NET, [0.0, 1.0], radii=[[0.1, 0.2]]), "radii must be"),
        (lambda: ANY.certified_radius(NET, [0.0, 1.0], tolerance="x"), "tolerance must be"),
        (lambda: ANY.certified_radius(NET, [0.0, 1.0], method="x"), "'x' is unknown; known are trivial"),
        (lambda: ANY.certified_radius(3, [0.0, 1.0]), "network must be"),
        (lambda: ANY.certify(NET, BALL, inputs=[[0, 1]]), "inputs must be indices"),
        (lambda: ANY.certify(NET, BALL, inputs=[[0], [0, 1]]), "inputs must be indices"),
        (lambda: ANY.certify(NET, BALL, inputs=object()), "inputs must be indices"),
        (lambda: ANY.certify(NET, BALL, enclosures=3), "enclosures must be a list"),
        (lambda: ANY.certify(NET, BALL, enclosures=[lc.Linear(-1)]), "depth must be"),
        (lambda: ANY.reach(NET, BALL, enclosures=[lc.Linear(None, float("nan"))]), "tilt must be"),
        (lambda: ANY.reach(NET, BALL, layer=1.5), "layer must be"),
        (lambda: ANY.reach(NET, BALL, 3), "method must be"),
        (lambda: ANY.reach(3, BALL), "network must be"),
        (lambda: ANY.reach(NET, BALL, lc.ClosedForm(), enclosures=(3,)), "enclosures must be values"),
        (lambda: ANY.sensitivity(NET, BALL, inputs=0), "inputs must be a list"),
        (lambda: ANY.sensitivity(3, BALL), "network must be"),
        (lambda: ANY.lower_bound(NET, BALL, seed=-1), "seed must be"),
        (lambda: ANY.lower_bound(3, BALL), "network must be"),
        (lambda: ANY.sweep(NET, [0.0, 0.0], "a"), "radii must be"),
        (lambda: ANY.Network.from_weights([[[1.0]], [[1.0]]], activation=[3]), "activation must be"),
    ],
)
def test_wrong_use_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        call()


def test_one_radius_and_whole_numbers_of_any_kind_will_do() -> None:
    found = lc.certified_radius(NET, [0.0, -1.0], label=np.float64(0.0), radii=0.1)  # type: ignore[arg-type]
    assert found.label == 0


def test_regions_as_large_as_floats_raise_no_warning() -> None:
    for region in (lc.Box([-1e308] * 2, [1e308] * 2), lc.Ball([0.0, 0.0], 1e308), lc.Ball([1e308, 0.0], 1e308)):
        bound = lc.certify(NET, region, lc.ClosedForm()).bound
        assert lc.lower_bound(NET, region, samples=50, steps=3).value <= bound


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "softsign", "arctan", "hardtanh"])
@pytest.mark.parametrize("size", [1e20, 1e65])
def test_reach_sets_of_bounded_neurons_are_bounded_over_regions_of_any_size(name: str, size: float) -> None:
    network = lc.Network.from_weights([np.eye(2), np.eye(2)], activation=name)
    found = lc.reach(network, lc.Box([-size] * 2, [size] * 2), lc.ClosedForm())
    assert (found.upper - found.lower <= 3.2).all()


def test_a_certificate_is_not_written_over_its_model(tmp_path: Path) -> None:
    model = tmp_path / "model.npz"
    np.savez(model, W1=np.eye(2), W2=np.ones((1, 2)), activation="relu")
    before = model.read_bytes()
    result = CliRunner().invoke(app, ["bound", str(model), "--certificate", str(model)])
    assert isinstance(result.exception, InvalidInput) or result.exit_code == 2
    assert model.read_bytes() == before


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
