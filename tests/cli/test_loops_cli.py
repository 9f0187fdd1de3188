"""``lipcert tube`` and ``contraction``: what they print, save and draw, and their exit codes."""

from __future__ import annotations

import json

import numpy as np

import lipcert as lc
from command import Command, Outcome

LOOP = ("plant.npz", "--controller", "u.npz")


def files() -> None:
    np.savez("plant.npz", A=[[1.0, 0.05], [0.5, 1.0]], B=[[0.0], [0.25]])
    np.savez("u.npz", W1=[[-4, -1.5]], W2=[[1.0]], activation="tanh")


def refused(found: Outcome, code: int, words: str) -> None:
    assert found.code == code
    assert words in found.words


def test_a_tube_is_printed_saved_drawn_proved_again_and_on_a_page(lipcert: Command) -> None:
    files()
    asked = (*LOOP, "--box", "0.1,-0.1", "0.2,0.1", "--steps", "4")
    found = lipcert("tube", *asked, "--certificate", "t.json", "--plot", "t.png", "--avoid", "0.3,-9", "9,9")
    assert "no state is in the box of --avoid" in found.out
    record = json.loads(lipcert("tube", *asked, "--json", "--inside", "-0.3,-0.3", "0.3,0.3").out)
    assert len(record["lower"]) == 5
    assert (record["verified"], record["inside_after"], record["disturbance"]) == (True, 0, None)
    assert "plant.npz in a loop with u.npz" in lipcert("verify", "t.json", *LOOP).out
    lc.feedback([[1, 0.05], [0.5, 1]], [[0], [0.25]], lc.load("u.npz")).save("loop.npz")
    assert "step 4" in lipcert("verify", "t.json", "loop.npz").out
    lipcert("report", "t.json", "--model", "loop.npz", "-o", "page.html")
    with open("page.html", encoding="utf-8") as page:
        assert "proved boxes over time" in page.read()
    refused(lipcert("verify", "t.json", "u.npz"), 1, "another step")
    for more in (("--avoid", "0.1,-9", "9,9"), ("--inside", "0.5,5", "0.6,6")):
        refused(lipcert("tube", *asked, *more), 1, "not proved")


def test_a_rate_and_an_ellipsoid(lipcert: Command) -> None:
    files()
    found = lipcert("contraction", *LOOP, "--box", "-0.1,-0.1", "0.1,0.1", "--certificate", "r.json")
    assert "rate  0.94" in found.out
    assert json.loads(lipcert("verify", "r.json", *LOOP, "--json").out)["rate"] < 0.96
    asked = (*LOOP, "--box", "-0.3,-0.9", "0.3,0.9", "--invariant", "--seconds", "1", "--certificate", "e.json")
    assert json.loads(lipcert("contraction", *asked, "--json").out)["rate"] < 1.0
    assert "f(x) is in it again" in lipcert("verify", "e.json", *LOOP).out
    np.savez("u.npz", W1=[[0.1, 0.1]], W2=[[1.0]], activation="tanh")
    refused(lipcert("contraction", *LOOP, "--box", "-0.1,-0.1", "0.1,0.1"), 1, "no contraction")


def test_wrong_plants_and_controllers(lipcert: Command) -> None:
    files()
    np.savez("odd.npz", A=[[1.0]], B=[[1.0]], C=[[1.0]])
    refused(lipcert("tube", "odd.npz", *LOOP[1:], "--box", "0", "1", "--steps", "2"), 2, "it also has ['C']")
    refused(lipcert("tube", "u.npz", "--box", "0", "1", "--steps", "2"), 2, "needs a disturbance")
    asked = ("--box", "0", "1", "--steps", "2")
    refused(lipcert("tube", "plant.npz", *asked), 2, "name its controller with --controller")
    refused(lipcert("tube", *LOOP, *asked, "--disturbance", "-1", "1"), 2, "no inputs after its states")
    refused(lipcert("contraction", *LOOP, "--invariant"), 2, "--invariant needs --box")
