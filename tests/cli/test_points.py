"""Regions on the command line: points of files, limits that are swapped, help that is true."""

from __future__ import annotations

import numpy as np
import pytest

from command import Command

BOUND = ("bound", "model.npz", "--radius", "0.1", "--method", "closed-form", "--no-lower-bound")


def test_a_point_of_a_file(lipcert: Command) -> None:
    np.save("points.npy", np.load("data.npz")["x"].reshape(6, 3, 1))
    for file in ("data.npz", "points.npy"):
        record = lipcert.json(*BOUND, "--center", f"{file}:2")
        assert record["region"]["center"] == np.load("data.npz")["x"][2].tolist()


@pytest.mark.parametrize(
    ("verb", "default"),
    [("bound", "auto"), ("reach", "auto"), ("sweep", "joint"), ("sensitivity", "auto"), ("compare", "all")],
)
def test_the_help_has_an_example_and_says_what_is_default(lipcert: Command, verb: str, default: str) -> None:
    words = lipcert(verb, "--help").words
    assert f"lipcert {verb} " in words.split("Example")[1]
    assert f"[default: {default}]" in words
    assert ("default region is all inputs" in words) == (verb == "bound")  # others need a region, or say so elsewhere


def test_a_table_says_what_it_leaves_out(lipcert: Command) -> None:
    rng = np.random.default_rng(0)
    np.savez("wide.npz", W1=rng.standard_normal((9, 20)), W2=rng.standard_normal((2, 9)), activation="relu")
    outcome = lipcert("sensitivity", "wide.npz", "--center", "zeros", "--radius", "0.1", "--method", "closed-form")
    assert outcome.code == 0
    assert "7 of 20 inputs and 2 of 2 outputs, those with the largest bounds" in outcome.out.replace("\n", " ")
