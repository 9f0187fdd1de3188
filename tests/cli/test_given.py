"""Models of several inputs and outputs on the command line: --fixed and --output."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from command import Command
from lipcert.cli import parsing
from lipcert.errors import InvalidInput
from onnx_graphs import model_of, node


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Y = x·mask and z = relu(y)."""
    made = model_of([node("Mul", "x mask"), node("Relu", "y", "z")], shape=("batch", 3))
    for name, ends in (("mask", made.graph.input), ("z", made.graph.output)):
        ends.add().CopyFrom(ends[0])
        ends[1].name = name
    path = tmp_path / "two.onnx"
    onnx.save(made, path)
    return str(path)


def test_inputs_are_held_and_an_output_is_chosen(model: str, tmp_path: Path, lipcert: Command) -> None:
    command, mask = lipcert, tmp_path / "mask.npy"
    np.save(mask, np.array([[0.1, -3.0, 2.0]], dtype=np.float32))
    bounds = [
        command.json("bound", model, "--fixed", f"mask={value}", "--output", output)["bound"]
        for value, output in (("0.1,-3,2", "z"), (str(mask), "z"), ("0.1,-3,2", "1"), ("0.1,0,0", "y"))
    ]
    assert bounds[:3] == pytest.approx([3.0] * 3, rel=1e-9)
    assert bounds[3] == pytest.approx(float(np.float32(0.1)), rel=1e-9)  # a number of the model's own type
    shown = command.json("inspect", model, "--fixed", "mask=1,1,1", "--output", "y")
    assert shown["outputs"] == 3


def test_a_certificate_of_such_a_model_is_verified(model: str, lipcert: Command) -> None:
    command, saved = lipcert, "bound.json"
    options = ("--fixed", "mask=1,2,3", "--output", "z")
    assert command("bound", model, *options, "--certificate", saved).code == 0
    assert command("verify", saved, model, *options).code == 0
    assert "the certificate comes first" in command("verify", model, saved).err
    other = command("verify", saved, model, "--fixed", "mask=1,2,4", "--output", "z")
    assert other.code == 1
    assert "another network" in other.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fixed", "mask"], "NAME=FILE or NAME=NUMBERS"),
        (["--fixed", "mask=1,2", "--output", "z"], "must be of shape"),
        (["--fixed", "mask=1,2,3", "--fixed", "mask=1,2,3"], "twice"),
        (["--fixed", "mask=1,a,3", "--output", "z"], "--fixed mask must be numbers"),
        (["--fixed", "mask=1,2,3"], "--output NAME"),
        (["--output", "z"], "--fixed NAME"),
        (["--fixed", "mask=1,2,3", "--output", "7"], "output must be one of y, z"),
    ],
)
def test_what_does_not_fit_is_said(model: str, options: list[str], message: str, lipcert: Command) -> None:
    outcome = lipcert("bound", model, *options)
    assert outcome.code != 0
    assert message in outcome.err


def test_files_keep_their_type_and_numbers_have_none(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", np.ones((1, 2), dtype=np.float32))
    found = parsing.fixed_values([f"mask={tmp_path / 'm.npy'}", "scale=2,0.5"])
    assert found is not None
    assert found["mask"].shape == (1, 2)
    assert found["scale"] == [2.0, 0.5]
    assert parsing.fixed_values(None) is None
    with pytest.raises(InvalidInput, match="there is no file"):
        parsing.fixed_values(["mask=missing.npy"])
