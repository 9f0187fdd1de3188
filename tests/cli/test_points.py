"""Regions on the command line: points of files, limits that are swapped, help that is true, estimates of a region."""

from __future__ import annotations

import numpy as np
import pytest

from command import Command
from lipcert.cli.inspect import _seconds


@pytest.fixture
def wide(lipcert: Command) -> Command:
    """With a model of twenty inputs, and files of several points."""
    rng = np.random.default_rng(0)
    np.savez("m.npz", W1=rng.standard_normal((9, 20)), W2=rng.standard_normal((2, 9)), activation="relu")
    np.savez("test.npz", x=rng.random((3, 4, 5)), y=np.zeros(3, int))
    np.save("points.npy", rng.random((3, 20)))
    return lipcert


BOUND = ("bound", "m.npz", "--radius", "0.1", "--method", "closed-form", "--no-lower-bound")


def test_a_point_of_a_file(wide: Command) -> None:
    expected = np.load("test.npz")["x"][2].ravel().tolist()
    for how in (("--center", "test.npz:2"), ("--center", "test.npz", "--point", "2")):
        assert wide.json(*BOUND, *how)["region"]["center"] == expected
    assert wide(*BOUND, "--center", "points.npy:0").code == 0


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("--center test.npz:3", "there is no point 3; the file holds 3 points"),
        ("--center points.npy", "holds 3 points; say which, from 0, as in points.npy:7"),
        ("--center test.npz", "must hold one array, it holds x, y; of a file with x and y"),
        ("--center zeros --point 1", "--point 1 says which point of the file --center"),
        ("--center points.npy:0 --point 1", "--point 1 says which point"),
        ("--center none.npy:0", "there is no file none.npy"),
        ("--center zeros --clip 1 0", "--clip 1 0: the limits are swapped"),
    ],
)
def test_what_is_wrong_is_named(wide: Command, how: str, words: str) -> None:
    outcome = wide(*BOUND, *how.split())
    assert outcome.code == 2
    assert words in outcome.words


def test_help_does_not_say_that_what_is_needed_has_a_default(lipcert: Command) -> None:
    for verb in ("reach", "sweep"):
        assert "default: all inputs" not in lipcert(verb, "--help").out
    assert "default: all inputs" in lipcert("bound", "--help").out


def test_a_region_in_inspect(wide: Command) -> None:
    near = wide.json("inspect", "m.npz", "--center", "test.npz:0", "--radius", "1e-9")
    everywhere = wide.json("inspect", "m.npz")
    assert near["layers"][0]["open"] == 0
    assert everywhere["layers"][0]["open"] is None
    assert set(near["costs"]) == {"ClosedForm", "Scalar", "Diagonal", "Joint", "Auto"}
    assert all(near["costs"][name]["memory"] <= everywhere["costs"][name]["memory"] for name in near["costs"])
    assert "open slopes" in wide("inspect", "m.npz", "--center", "test.npz:0", "--radius", "0.1").out
    assert [_seconds(value) for value in (0.0123, 9.94, 110.0, 130.0)] == ["0.012 s", "9.9 s", "110 s", "2 minutes"]


def test_a_table_says_what_it_leaves_out(wide: Command) -> None:
    outcome = wide("sensitivity", "m.npz", "--center", "zeros", "--radius", "0.1", "--method", "closed-form")
    assert outcome.code == 0
    assert "left out: 13 of 20 inputs, those with the smallest bounds, none above" in outcome.words
