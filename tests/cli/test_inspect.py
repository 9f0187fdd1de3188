"""``lipcert inspect``, and what is said of memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from command import Command
from onnx_graphs import model_of, node, single

onnx = pytest.importorskip("onnx", reason="onnx is an extra")


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Convolution, batch norm, residual, max-pool, softmax."""
    rng = np.random.default_rng(0)
    shapes = {"w": (2, 1, 3, 3), "u": (2, 2, 1, 1), "h": (18, 3)}
    stored = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    stored |= {"s": np.ones(2), "b": np.zeros(2), "m": np.zeros(2), "v": np.ones(2)}
    pool = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 1, 1]}
    nodes = [
        node("Conv", "x w", "c", name="conv", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c s b m v", "n", name="norm"),
        node("Relu", "n", "r", name="rectify"),
        node("Conv", "r u", "k", name="skip"),
        node("Tanh", "k", "t", name="squash"),
        node("Add", "t r", "a", name="sum"),
        node("MaxPool", "a", "p", name="pool", **pool),
        node("Flatten", "p", "f", name="flat"),
        node("MatMul", "f h", "l", name="head"),
        node("Softmax", "l", name="probabilities"),
    ]
    path = tmp_path / "model.onnx"
    onnx.save(model_of(nodes, single(stored), shape=("N", 1, "H", "W")), path)
    return str(path)


OPTIONS = ("--input-shape", "1x5x5", "--drop-softmax")


def test_layers_and_what_was_folded(model: str, lipcert: Command) -> None:
    record = lipcert.json("inspect", model, *OPTIONS)
    assert record["input_shape"] == [1, 5, 5]
    assert record["parameters"] == 18 + 8 + 4 + 54
    first, second = record["layers"][:2]
    assert first["folded"] == ["conv (Conv)", "norm (BatchNormalization)"]
    assert first["applied"] == ["rectify (Relu)"]
    assert first["activations"] == {"relu": 50}
    assert second["applied"] == ["squash (Tanh)"]
    assert second["activations"] == {"tanh": 50, "identity": 50}
    assert second["carried"] == 50
    assert record["layers"][-1]["folded"][-1] == "head (MatMul)"


def test_wrong_use_is_told(model: str, lipcert: Command) -> None:
    outcome = lipcert("inspect", model)
    assert outcome.code == 2
    assert "leaves sizes of its input x open" in outcome.err


def test_unstable_neurons_over_a_region(lipcert: Command) -> None:
    np.savez("arrays.npz", W1=np.eye(4, 3), W2=np.ones((2, 4)), b1=np.ones(4), activation="relu")
    ball = ("inspect", "arrays.npz", "--center", "zeros", "--radius")
    assert [lipcert.json(*ball, radius)["layers"][0]["unstable"] for radius in ("1e-9", "2")] == [0, 3]
    assert lipcert.json("inspect", "arrays.npz")["layers"][0]["unstable"] is None
    assert "unstable" in lipcert(*ball, "0.1").out


def test_softmax_and_products_are_counted(lipcert: Command) -> None:
    coupling = lc.Coupling.of(1, 8, [(1, 3)], [([[4, 5]], [[6, 7]])])
    weights = [np.ones((8, 2)), np.ones((2, coupling.width))]
    lc.Network.from_weights(weights, None, [(["relu"], coupling)]).save("coupled.npz")
    assert lipcert.json("inspect", "coupled.npz")["layers"][0]["activations"] == {
        "relu": 1,
        "softmax": 3,
        "products": 1,
    }


def test_norms_of_layers_and_blocks(lipcert: Command) -> None:
    """A skip and a pool are blocks: 1 + ‖C‖‖B‖, and one; sorting ends blocks, and what has no norm is no number."""
    skip = np.array([[0.5, 0.0], [0.0, 0.5], [1.0, 0.0], [0.0, 1.0]]), np.hstack([0.5 * np.eye(2), np.eye(2)])
    pool = np.array([[1.0, -1.0], [0.0, 1.0]]), np.array([[1.0, 1.0]])
    rows: list[Any] = [["relu"] * 2 + ["identity"] * 2, "relu", ["relu", "identity"]]
    lc.Network.from_weights([*skip, *pool], None, rows).save("blocks.npz")
    record = lipcert.json("inspect", "blocks.npz", "--norms")
    assert [block["layers"] for block in record["blocks"]] == [[1, 2], [3, 4]]
    np.testing.assert_allclose([block["norm"] for block in record["blocks"]], [1.25, 1.0], rtol=1e-9)
    np.testing.assert_allclose([layer["norm"] for layer in record["layers"]][:2], [1.25**0.5] * 2, rtol=1e-9)
    assert 1.25 <= record["norm"] < 1.2500001
    assert "1–2: 1.25" in lipcert("inspect", "blocks.npz", "--norms").out
    half = 0.5**0.5
    turns = [np.array([[half, half], [half, -half]])] * 3
    lc.Network.from_weights(turns, None, [["identity", "abs"]] * 2).save("sorting.npz")
    assert len(lipcert.json("inspect", "sorting.npz", "--norms")["blocks"]) == 3
    lc.Network.from_weights([np.eye(2)] * 2, None, "square").save("square.npz")
    record = lipcert.json("inspect", "square.npz", "--norms")
    assert record["norm"] is None
    assert 1.0 <= record["blocks"][0]["norm"] < 1.0 + 1e-9
