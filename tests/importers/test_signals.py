"""Networks that multiply signals, from PyTorch and ONNX: what is read is what the module computes, and has bounds."""

from pathlib import Path

import numpy as np
import pytest

import lipcert as lc

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402


def test_a_dropped_epsilon_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from lipcert.importers import signals

    plain = signals.normalised
    monkeypatch.setattr(signals, "normalised", lambda b, x, axes, epsilon, *rest: plain(b, x, axes, 0.0, *rest))
    with pytest.raises(lc.UnreadableModel, match="not faithful"):
        lc.load(nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)).double().eval(), input_shape=(3,))


def test_onnx_models_multiply_signals(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=(4, 4)).astype(np.float32) for name in "qkv"}
    weights |= {name: np.ones(4, dtype=np.float32) for name in ("scale", "shift")}
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["n"]),
        *(helper.make_node("MatMul", ["n", name], [f"n{name}"]) for name in "qkv"),
        helper.make_node("Transpose", ["nk"], ["kt"], perm=[1, 0]),
        helper.make_node("MatMul", ["nq", "kt"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"]),
        helper.make_node("MatMul", ["p", "nv"], ["a"]),
        helper.make_node("Add", ["a", "x"], ["y"]),
    ]
    ends = [[helper.make_tensor_value_info(name, kind, [3, 4])] for name in "xy"]
    given = [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "g", *ends, given), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(model, tmp_path / "a.onnx")
    network = lc.load(tmp_path / "a.onnx", input_shape=(3, 4))
    x = rng.normal(size=12)
    bound = lc.certify(network, lc.Ball(x, 1e-6)).bound
    assert bound == pytest.approx(np.linalg.norm(network.jacobian(x), 2), rel=1e-3)
