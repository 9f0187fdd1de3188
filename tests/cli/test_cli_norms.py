"""Norms, units and normalisation on the command line."""

from __future__ import annotations

import pytest

import lipcert as lc
from command import NETWORK, Command

UNITS = (0.1, 2.0, 0.5)
SCALE = ",".join(map(str, UNITS))


def test_bound_in_units(lipcert: Command) -> None:
    ball = ("--center", "0,1,2", "--radius", "1", "--norm", "linf", "--input-scale", SCALE)
    norms = ("--input-norm", "linf", "--output-norm", "l1")
    record = lipcert.json("bound", "model.npz", *ball, *norms, "--method", "scalar", "--certificate", "bound.json")
    units = lc.LInf(scale=UNITS)
    region = lc.Ball([0.0, 1.0, 2.0], 1.0, norm=units)
    expected = lc.certify(NETWORK, region, lc.Scalar(), input_norm=units, output_norm="l1").bound
    assert record["bound"] == expected >= record["lower"]
    assert record["norms"] == {"input": {"name": "linf", "scale": list(UNITS)}, "output": {"name": "l1"}}
    told = lipcert("verify", "bound.json", "model.npz")
    assert told.code == 0
    assert "‖f(x) - f(y)‖₁ ≤" in told.out
    assert "‖x - y‖∞" in told.out
    shown = lipcert("bound", "model.npz", *ball, *norms, "--method", "closed-form")
    assert "from ℓ∞ in units of (0.1, 2, 0.5) to ℓ1" in shown.out


def test_plain_bounds_do_not_mention_norms(lipcert: Command) -> None:
    assert "norms" not in lipcert.json("bound", "model.npz", "--method", "closed-form")


def test_normalisation(lipcert: Command) -> None:
    plain = lipcert.json("bound", "model.npz", "--method", "closed-form")["bound"]
    scaled = lipcert.json("bound", "model.npz", "--method", "closed-form", "--mean", "0.5", "--std", "0.25")["bound"]
    assert scaled == pytest.approx(4.0 * plain)


def test_radii_in_another_norm(lipcert: Command) -> None:
    outcome = lipcert("robust", "model.npz", "data.npz", "--radii", "0.01", "--norm", "linf", "--out", "r.sqlite")
    assert outcome.code == 0
    assert "linf norm" in outcome.out
