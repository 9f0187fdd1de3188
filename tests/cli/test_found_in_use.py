"""What people met with at the command line: silence, dead ends and figures that said nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import lipcert as lc
from command import BALL as AROUND
from command import Command
from lipcert.importers.arrays import write_npz
from lipcert.show import plots
from networks import random_network

BALL = (*AROUND, "--method", "closed-form")


def test_a_reach_set_of_one_output_is_drawn(lipcert: Command) -> None:
    pytest.importorskip("matplotlib")
    write_npz(Path("one.npz"), random_network(4, (3, 5, 1), "tanh"), "tanh")
    outcome = lipcert("reach", "one.npz", *BALL, "--plot", "one.png")
    assert (outcome.code, outcome.err) == (0, "")
    assert Path("one.png").stat().st_size > 1000


def test_a_report_proves_answers_about_normalised_models(lipcert: Command) -> None:
    scale = ("--mean", "0.5", "--std", "0.25")
    assert lipcert("bound", "model.npz", *BALL, *scale, "--certificate", "b.json").code == 0
    assert lipcert("report", "b.json", "--model", "model.npz", *scale, "-o", "r.html").code == 0
    outcome = lipcert("report", "b.json", "--model", "model.npz", "-o", "r.html")
    assert outcome.code == 1
    assert "not checked: b.json" in outcome.err


def test_a_report_with_the_wrong_model_fails(lipcert: Command) -> None:
    write_npz(Path("other.npz"), random_network(4, (3, 4, 3), "tanh"), "tanh")
    assert lipcert("bound", "model.npz", *BALL, "--certificate", "b.json").code == 0
    assert lipcert("report", "b.json", "--model", "other.npz", "-o", "r.html").code == 1


def test_one_row_of_sensitivities_is_a_low_figure() -> None:
    pytest.importorskip("matplotlib")
    found = lc.sensitivity(random_network(4, (3, 5, 1), "tanh"), lc.Ball([0.0] * 3, 0.5), lc.ClosedForm())
    assert plots.sensitivity_map(found).figure.get_figheight() < 2.5


def test_the_table_of_layers_comes_before_the_pass_over_the_region(
    lipcert: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["lipcert.cli.inspect"], "certify", stop)
    outcome = lipcert("inspect", "model.npz", "--center", "zeros", "--radius", "0.1")
    assert outcome.code == 130
    assert "made from" in outcome.out


def test_an_interrupted_campaign_says_how_to_go_on(lipcert: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    asked = ("robust", "model.npz", "data.npz", "--radii", "0.1", "--out", "run.sqlite")
    assert lipcert(*asked).code == 0
    monkeypatch.setattr(sys.modules["lipcert.cli.robust"], "campaign", stop)
    outcome = lipcert(*asked)
    assert outcome.code == 130
    assert "6 points are stored in run.sqlite, and the same command resumes" in outcome.err


def test_words_of_a_comparison_are_explained(lipcert: Command) -> None:
    outcome = lipcert("compare", "model.npz", "--methods", "trivial,closed-form")
    assert "verified: proved" in outcome.out
