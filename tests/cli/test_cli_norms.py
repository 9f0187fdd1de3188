"""Norms, units and normalisation on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lipcert as lc
from command import Command
from lipcert.model.arrays import dense
from networks import random_network

UNITS = (0.1, 2.0, 0.5)
SCALE = ",".join(map(str, UNITS))


@pytest.fixture
def lipcert(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return Command(capsys)


@pytest.fixture
def model(tmp_path: Path) -> str:
    network = random_network(3, (3, 8, 2), "tanh")
    arrays = {f"W{k}": dense(layer.weight) for k, layer in enumerate(network.layers, 1)}
    np.savez(tmp_path / "model.npz", activation="tanh", **arrays)  # type: ignore[arg-type]
    return str(tmp_path / "model.npz")


def test_bound_in_units(lipcert: Command, model: str, tmp_path: Path) -> None:
    ball = ("--center", "0,1,2", "--radius", "1", "--norm", "linf", "--input-scale", SCALE)
    norms = ("--input-norm", "linf", "--output-norm", "l1")
    file = str(tmp_path / "bound.json")
    record = lipcert.json("bound", model, *ball, *norms, "--method", "scalar", "--certificate", file)
    units = lc.LInf(scale=UNITS)
    region = lc.Ball([0.0, 1.0, 2.0], 1.0, norm=units)
    expected = lc.certify(lc.load(model), region, lc.Scalar(), input_norm=units, output_norm="l1").bound
    assert record["bound"] == expected >= record["lower"]
    assert record["norms"] == {"input": {"name": "linf", "scale": list(UNITS)}, "output": {"name": "l1"}}
    told = lipcert("verify", file, model)
    assert told.code == 0
    assert "‖f(x) - f(y)‖₁ ≤" in told.out
    assert "‖x - y‖∞" in told.out
    shown = lipcert("bound", model, *ball, *norms, "--method", "closed-form")
    assert "from ℓ∞ in units of (0.1, 2, 0.5) to ℓ1" in shown.out


def test_plain_bounds_do_not_mention_norms(lipcert: Command, model: str) -> None:
    assert "norms" not in lipcert.json("bound", model, "--method", "closed-form")


def test_normalisation(lipcert: Command, model: str) -> None:
    plain = lipcert.json("bound", model, "--method", "closed-form")["bound"]
    scaled = lipcert.json("bound", model, "--method", "closed-form", "--mean", "0.5", "--std", "0.25")["bound"]
    assert scaled == pytest.approx(4.0 * plain)


def test_radii_in_another_norm(lipcert: Command, model: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).random((3, 3)))
    out = lipcert(
        "robust", model, str(tmp_path / "data.npz"), "--radii", "0.01", "--norm", "linf", "--out", str(tmp_path / "r")
    )
    assert out.code == 0
    assert "linf norm" in out.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--input-norm", "l7"), "--input-norm must be one of l1, l2, linf"),
        (("--norm", "linf"), "--norm is that of a ball"),
        (("--input-scale", "1,2"), "scale of 2 numbers for 3 coordinates"),
        (("--std", "0"), "std must be positive"),
    ],
)
def test_wrong_norms(lipcert: Command, model: str, options: tuple[str, ...], message: str) -> None:
    found = lipcert("bound", model, *options)
    assert found.code == 2
    assert message in found.err
