"""Choices between lines: which are activations, and which are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import lipcert as lc
from onnx_graphs import model_of, node, single

X = np.random.default_rng(0).normal(size=(200, 3)) * 2.0
KNOWN: dict[str, tuple[Callable[[Any], Any], str]] = {
    "leaky": (lambda x: torch.where(x > 0, x, 0.125 * x), "leaky_relu"),
    "threshold": (lambda x: torch.where(x >= 0.5, x, torch.full_like(x, 0.5)), "relu"),
    "from below": (lambda x: torch.where(x < 0.25, x, 0.25 * torch.ones_like(x)), "relu"),
    "method": (lambda x: x.where(x > 0, -2 * x), "leaky_relu"),
    "meeting elsewhere": (lambda x: torch.where(x < 0.25, 3 * x, 2 * x + 0.25), "leaky_relu"),
    "scaled": (lambda x: torch.where(2 * x - 1 > 0, x, torch.tensor(0.5)), "relu"),
    "turned": (lambda x: torch.where(-x > 0, torch.zeros_like(x), 3 * x), "relu"),
    "two neurons": (lambda x: torch.where(x > 0, 3 * x, 0.1 * x), "relu"),
    "a constant decides": (lambda x: torch.where(torch.tensor([True, False, True]), x.relu(), -x), "identity"),
    "softshrink": (
        lambda x: torch.where(x > 0.5, x - 0.5, torch.zeros_like(x)) + torch.where(x < -0.5, x + 0.5, 0.0),
        "softshrink",
    ),
}
REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "jump": (lambda x: torch.where(x > 0, x + 1, x), "jumps"),
    "half a softshrink": (lambda x: torch.where(x > 0.5, x, torch.zeros_like(x)), "jumps"),
    "as a factor": (lambda x: x * (x > 0), "comparison as a number"),
    "two values": (lambda x: torch.where(x > x.flip(-1), x, x.flip(-1)), "not lines"),
    "a curve": (lambda x: torch.where(x > 0, x, x.tanh()), "not lines"),
    "a comparison": (lambda x: x > 0, "comparison as a number|dtype|type"),
}


class Model(nn.Module):
    """A function between two linear layers."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.before, self.after, self.function = nn.Linear(3, 3), nn.Linear(3, 2), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.function(self.before(x)))


@pytest.mark.parametrize("name", KNOWN)
def test_a_choice_between_lines_that_meet_is_an_activation(name: str) -> None:
    function, row = KNOWN[name]
    module = Model(function).double().eval()
    network = lc.load(module, input_shape=(3,))
    assert row in repr(network)
    with torch.no_grad():
        assert network(X) == pytest.approx(module(torch.tensor(X)).numpy(), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", REFUSED)
def test_what_jumps_or_is_not_known_is_refused(name: str) -> None:
    function, reason = REFUSED[name]
    with pytest.raises(lc.LipcertError, match=reason):
        lc.load(Model(function).eval(), input_shape=(3,))


def _shrink(limit: float, step: float) -> Any:
    """Softshrink as PyTorch exports it, with the limits ±limit and the steps ±step."""
    constants = single({"l": limit, "s": step, "minus": -limit, "zero": 0.0})
    nodes = [
        *(node("Greater", "x l", "up"), node("Sub", "x s", "less"), node("Where", "up less zero", "right")),
        *(node("Less", "x minus", "down"), node("Add", "x s", "more"), node("Where", "down more zero", "left")),
        node("Add", "right left", "y"),
    ]
    return model_of(nodes, constants)


def test_softshrink_as_it_is_exported(tmp_path: Path) -> None:
    path = tmp_path / "shrink.onnx"
    path.write_bytes(_shrink(0.3, 0.3).SerializeToString())
    network = lc.load(path)
    x = np.array([-2.0, -0.1, 0.7])
    assert network(x) == pytest.approx([-1.7, 0.0, 0.4], abs=1e-6)
    assert network.sizes == (3, 3, 3)  # one neuron each
    assert lc.certify(network, lc.Ball(np.zeros(3), 0.29), lc.ClosedForm()).bound < 1e-100
    path.write_bytes(_shrink(1e-7, 1e-7).SerializeToString())  # smaller than that row allows: two kinks
    assert lc.load(path).sizes == (3, 6, 3)
    path.write_bytes(_shrink(0.3, float(np.nextafter(np.float32(0.3), np.float32(1.0)))).SerializeToString())
    with pytest.raises(lc.UnreadableModel, match="jumps"):  # by one digit in the last place
        lc.load(path)


@pytest.mark.parametrize(
    ("nodes", "values", "reason"),
    [
        ([node("Greater", "x l", "c"), node("Not", "c", "d"), node("Where", "d x x")], {"l": 0.0}, "comparison"),
        ([node("Greater", "x l", "c"), node("Where", "c x x")], {"l": [0.0, 1.0, 2.0]}, "not all one"),
        ([node("Greater", "x l", "y")], {"l": 0.0}, "comparison|type"),
        ([node("Greater", "x l", "c"), node("Where", "c x l")], {"l": np.inf}, "not all one finite"),
    ],
    ids=["not", "limits", "output", "infinite"],
)
def test_conditions_elsewhere_are_refused(
    nodes: list[Any], values: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(nodes, single(values)).SerializeToString())
    with pytest.raises(lc.UnreadableModel, match=reason):
        lc.load(path)
