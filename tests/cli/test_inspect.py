"""``lipcert inspect``, and what it says of costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.cli import main
from lipcert.runtime.costs import available_memory, costs
from networks import random_network

onnx = pytest.importorskip("onnx", reason="onnx is an extra")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Convolution, batch norm, residual, max-pool, softmax."""
    rng = np.random.default_rng(0)
    stored = {
        "w": rng.standard_normal((2, 1, 3, 3)),
        "s": np.ones(2),
        "b": np.zeros(2),
        "m": np.zeros(2),
        "v": np.ones(2),
        "u": rng.standard_normal((2, 2, 1, 1)),
        "h": rng.standard_normal((18, 3)),
    }
    make = onnx.helper.make_node
    nodes = [
        make("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        make("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], "norm"),
        make("Relu", ["n"], ["r"], "rectify"),
        make("Conv", ["r", "u"], ["k"], "skip"),
        make("Tanh", ["k"], ["t"], "squash"),
        make("Add", ["t", "r"], ["a"], "sum"),
        make("MaxPool", ["a"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 1, 1]),
        make("Flatten", ["p"], ["f"], "flat"),
        make("MatMul", ["f", "h"], ["l"], "head"),
        make("Softmax", ["l"], ["y"], "probabilities"),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 1, "H", "W"])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(value.astype(np.float32), name) for name, value in stored.items()],
    )
    whole = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    path = tmp_path / "model.onnx"
    onnx.save(whole, path)
    return path


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


def test_layers_and_what_was_folded(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run(capsys, "inspect", str(model), "--input-shape", "1,5,5", "--drop-softmax", "--json")
    assert (code, err) == (0, "")
    record: dict[str, Any] = json.loads(out)
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
    assert set(record["costs"]) == {"ClosedForm", "Scalar", "Diagonal", "Joint", "Auto"}


def test_what_people_see(model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    code, out, _ = _run(capsys, "inspect", str(model), "--input-shape", "1x5x5", "--drop-softmax")
    assert code == 0
    for text in ("25 inputs (1 × 5 × 5), 3 outputs", "norm (BatchNormalization)", "tanh 50, identity 50", "ClosedForm"):
        assert text in out


def test_wrong_use_is_told(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = _run(capsys, "inspect", str(model))
    assert code == 2
    assert "leaves sizes of its input x open" in err
    code, _, err = _run(capsys, "inspect", str(model), "--input-shape", "1,5,5")
    assert code == 2
    assert "probabilities: Softmax" in err
    assert "--drop-softmax" in err


def test_bounds_of_models_from_the_command_line(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--input-shape", "1,5,5", "--drop-softmax", "--center", "zeros", "--radius", "0.1", "--json")
    code, out, _ = _run(capsys, "bound", str(model), "--method", "scalar", *arguments)
    assert code == 0
    record = json.loads(out)
    assert record["lower"] <= record["bound"]


def test_arrays_are_inspected_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.npz"
    np.savez(path, W1=np.ones((4, 3)), W2=np.ones((2, 4)))
    code, out, _ = _run(capsys, "inspect", str(path), "--activation", "tanh", "--json")
    assert code == 0
    record = json.loads(out)
    assert record["parameters"] == 12 + 4 + 8 + 2
    assert record["layers"][0]["activations"] == {"tanh": 4}


def test_costs_grow_with_size_and_rung() -> None:
    small, large = (costs(random_network(0, (4, n, n, 2))) for n in (20, 400))
    assert all(small[name].seconds < large[name].seconds for name in small)
    assert all(small[name].memory < large[name].memory for name in small)
    seconds = [large[name].seconds for name in ("ClosedForm", "Scalar", "Diagonal", "Joint")]
    assert seconds == sorted(seconds)
    assert costs(lc.Network.from_weights([np.eye(3)]))["Scalar"].seconds < 1.0


def test_free_memory_is_known_here() -> None:
    free = available_memory()
    assert free is None or 2**20 < free < 2**50


def test_too_little_memory_is_said_before_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    network = random_network(0, (4, 2500, 2), "tanh")
    monkeypatch.setattr("lipcert.runtime.costs.available_memory", lambda: 10**8)
    for region in (None, lc.Ball(np.zeros(4), 1.0)):
        found = lc.certify(network, region, lc.ClosedForm())
        assert found.found_by == "Trivial"
        assert "layer 1 has 2500 neurons to carry, 2500 of them" in found.note
        assert "about 0.45 GB are needed" in found.note
