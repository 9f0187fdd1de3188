"""The bound against the radius: as good as from scratch, monotone, proved, and drawn."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import lipcert as lc
from command import NETWORK, Command
from lipcert.published import Trivial
from lipcert.show import plots
from networks import random_network

CENTER = np.array([0.2, -0.4, 0.5])
RADII = (0.1, 1.0, 0.0, 0.3)


@pytest.mark.parametrize("activation", ["relu", pytest.param("tanh", marks=pytest.mark.slow), "gelu"])
def test_rows_are_what_they_say(activation: str) -> None:
    network = random_network(1, (3, 12, 12, 2), activation)
    rows = lc.sweep(network, CENTER, RADII)
    assert tuple(row.radius for row in rows) == RADII
    trivial = lc.certify(network, method=Trivial()).bound
    for row in rows:
        ball = lc.Ball(CENTER, row.radius)
        assert row.certificate.verified
        assert row.bound == row.certificate.bound
        assert row.trivial == trivial
        assert lc.lower_bound(network, ball).value <= row.lower <= row.bound
        assert lc.verify(network, row.certificate) <= row.bound
        assert row.bound == pytest.approx(lc.certify(network, ball, lc.Joint()).bound, rel=5e-3)
        assert row.certificate.method == lc.Joint()
    falling = sorted(rows, key=lambda row: -row.radius)
    for larger, smaller in itertools.pairwise(falling):
        assert smaller.bound <= larger.bound
        assert smaller.lower <= larger.lower
    norm = np.linalg.norm(network.jacobian(CENTER), 2)
    assert falling[-1].bound == pytest.approx(norm, rel=1e-9)


def test_the_table(lipcert: Command) -> None:
    options = ("--center", "0.2,-0.4,0.5", "--radii", "1,0.1,0.01", "--method", "closed-form")
    outcome = lipcert("sweep", "model.npz", *options)
    assert (outcome.code, outcome.err) == (0, "")
    lines = [line.split("│") for line in outcome.out.split("\n") if line.startswith("│")]
    assert [float(line[1]) for line in lines] == [1.0, 0.1, 0.01]
    for line, row in zip(lines, lc.sweep(NETWORK, CENTER, [1.0, 0.1, 0.01], lc.ClosedForm()), strict=True):
        bound, lower, ratio = map(float, line[2:5])
        assert lower <= row.lower <= row.bound <= bound <= row.bound * 1.00002
        assert ratio == pytest.approx(bound / lower, rel=1e-3)
    assert "trivial bound, for any radius" in outcome.out


def test_the_curve(lipcert: Command) -> None:
    options = ("--center", "zeros", "--radii", "1,0.1,0", "--method", "closed-form", "--plot", "curve.png")
    assert lipcert("sweep", "model.npz", *options).code == 0
    assert Path("curve.png").read_bytes().startswith(b"\x89PNG")


def test_figures_are_drawn_where_they_are_told() -> None:
    from matplotlib.figure import Figure

    rows = lc.sweep(random_network(1, (3, 6, 2)), CENTER, RADII, lc.ClosedForm())
    ax = Figure().subplots()
    assert plots.radius_curve(rows, ax) is ax
    assert ax.get_xscale() == ax.get_yscale() == "log"
    curves = {line.get_label(): line for line in ax.get_lines()}
    assert sorted(curves["certified bound"].get_xdata()) == [0.1, 0.3, 1.0]
    assert (np.asarray(curves["lower bound"].get_ydata()) <= curves["certified bound"].get_ydata()).all()
    assert set(curves["trivial bound"].get_ydata()) == {rows[0].trivial}
    empty = plots.radius_curve([row for row in rows if row.radius == 0.0])
    assert not empty.get_legend()


def test_products_of_signals_have_no_trivial_bound() -> None:
    coupling = lc.Coupling.of(0, 2, [], [([[0]], [[1]])])
    network = lc.Network.from_weights([np.eye(2, 3), np.ones((1, 1))], None, [([], coupling)])
    (row,) = lc.sweep(network, CENTER, [0.1], lc.Scalar())
    assert row.trivial == np.inf
    assert row.lower <= row.bound < 1.0
