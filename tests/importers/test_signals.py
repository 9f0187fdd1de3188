"""Networks that multiply signals, from PyTorch and ONNX: what is read is what the module computes, and has bounds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc

torch = pytest.importorskip("torch")
from test_zoo import fn  # noqa: E402 - needs PyTorch
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from modules import Wrapped  # noqa: E402 - needs PyTorch


def attention(s: Any, x: Any) -> Any:
    """Attention written by hand, with a class token and positions."""
    x = torch.cat([s.token.expand(len(x), 1, 4), x], 1) + s.place
    return torch.softmax(s.q(x) @ s.k(x).mT / 2.0, -1) @ s.v(x) + x


def causal(s: Any, x: Any) -> Any:
    """scaled_dot_product_attention that looks back only."""
    q, k, v = s.qkv(x).chunk(3, -1)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def by_hand(s: Any, x: Any) -> Any:
    """Causal attention as in small language models: scores of later places are replaced by -inf."""
    q, k, v = s.qkv(x).split(4, dim=-1)
    scores = (q @ k.transpose(-2, -1)).masked_fill(s.seen == 0, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def squeeze(s: Any, x: Any) -> Any:
    """Squeeze and excitation of channels."""
    x = torch.relu(s.conv(x))
    return x * torch.sigmoid(s.gate(x.mean((2, 3))))[:, :, None, None]


def last(layer: Any) -> Any:
    """The last output of a recurrent layer."""
    return Wrapped(lambda s, x: s.layer(x)[0][:, -1], layer=layer)


def cart_pole(x: Any) -> Any:
    """A step of the pole on a cart, with divisions."""
    angle, rate, force = x[..., 0], x[..., 1], x[..., 2]
    sine, cosine = torch.sin(angle), torch.cos(angle)
    push = (force + 0.05 * rate**2 * sine) / 1.1
    turn = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine * cosine / 1.1))
    return torch.stack([angle + 0.02 * rate, rate + 0.02 * turn, push - 0.05 * turn * cosine / 1.1], -1)


CASES: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "attention": (
        lambda: Wrapped(
            attention,
            **{name: nn.Parameter(torch.randn(n, 4)) for name, n in (("token", 1), ("place", 4))},
            **{name: nn.Linear(4, 4) for name in "qkv"},
        ),
        (1, 3, 4),
    ),
    "multihead": (
        lambda: Wrapped(
            lambda s, x: s.inner(x, x, x, need_weights=False)[0], inner=nn.MultiheadAttention(4, 2, batch_first=True)
        ),
        (1, 3, 4),
    ),
    "causal": (lambda: Wrapped(causal, qkv=nn.Linear(4, 12)), (1, 3, 4)),
    "causal by hand": (lambda: Wrapped(by_hand, qkv=nn.Linear(4, 12), seen=torch.tril(torch.ones(3, 3))), (1, 3, 4)),
    "a weight from the input": (lambda: fn(lambda x: F.linear(x[:, :2], x[0, 2:].view(3, 2))), (1, 8)),
    "encoder": (lambda: nn.TransformerEncoderLayer(4, 2, 6, batch_first=True), (1, 3, 4)),
    "norm first": (
        lambda: nn.TransformerEncoderLayer(4, 2, 6, batch_first=True, norm_first=True, activation="gelu"),
        (1, 2, 4),
    ),
    "layer norm": (lambda: nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.ReLU(), nn.Linear(5, 2)), (1, 3)),
    "rms norm": (lambda: nn.Sequential(nn.Linear(3, 5), nn.RMSNorm(5, eps=1e-5)), (1, 3)),
    "group norm": (lambda: nn.Sequential(nn.Conv2d(1, 4, 2), nn.GroupNorm(2, 4), nn.Tanh()), (1, 1, 3, 3)),
    "instance norm": (lambda: nn.Sequential(nn.Conv2d(1, 2, 2), nn.InstanceNorm2d(2, affine=True)), (1, 1, 4, 4)),
    "layer norm by hand": (
        lambda: fn(lambda x: (x - x.mean(-1, True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 0.1)),
        (1, 4),
    ),
    "deviations": (lambda: fn(lambda x: (x / (1.0 + x.std())) @ torch.ones(4, 1).to(x) + x.var((0, 1))), (1, 4)),
    "on the sphere": (lambda: fn(lambda x: F.normalize(x, dim=-1)), (1, 3)),
    "cosine": (lambda: fn(lambda x: torch.cosine_similarity(x, torch.ones(1, 3).to(x))), (1, 3)),
    "log sum exp": (lambda: fn(lambda x: x.logsumexp(-1) + torch.log1p(x * x).sum() + torch.expm1(x**4).sum()), (1, 3)),
    "swiglu": (
        lambda: Wrapped(
            lambda s, x: s.out(F.silu(s.w(x)) * s.v(x)), w=nn.Linear(4, 6), v=nn.Linear(4, 6), out=nn.Linear(6, 3)
        ),
        (1, 4),
    ),
    "glu": (lambda: nn.Sequential(nn.Linear(3, 8), nn.GLU(), nn.Linear(4, 2)), (1, 3)),
    "squeeze": (
        lambda: Wrapped(
            squeeze,
            conv=nn.Conv2d(1, 4, 3, padding=1),
            gate=nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 4)),
        ),
        (1, 1, 4, 4),
    ),
    "lstm": (lambda: last(nn.LSTM(3, 4, num_layers=2, batch_first=True)), (1, 4, 3)),
    "gru": (lambda: last(nn.GRU(3, 4, batch_first=True, bidirectional=True)), (1, 3, 3)),
    "rnn": (lambda: last(nn.RNN(3, 4, batch_first=True)), (1, 4, 3)),
    "cell": (lambda: Wrapped(lambda s, x: s.cell(x, s.cell(x))[0], cell=nn.LSTMCell(3, 4)), (1, 3)),
    "softmax": (lambda: nn.Sequential(nn.Linear(3, 4), nn.Softmax(-1)), (1, 3)),
    "log softmax": (lambda: nn.Sequential(nn.Linear(3, 4), nn.LogSoftmax(-1)), (1, 3)),
    "rbf": (lambda: fn(lambda x: torch.exp(-((x[..., None, :] - torch.ones(2, 3)) ** 2).sum(-1))), (1, 3)),
    "cart pole": (lambda: fn(cart_pole), (1, 3)),
    "scheduled": (lambda: fn(lambda x: x[..., :2] * torch.tanh(x[..., 2:3]) / (1.0 + x[..., 3:] ** 2)), (1, 4)),
    "length": (lambda: fn(lambda x: x / torch.sqrt((x * x).sum(-1, keepdim=True) + 0.1)), (1, 3)),
}


@pytest.mark.parametrize("name", list(CASES))
def test_modules_are_read_and_bounded(name: str) -> None:
    torch.manual_seed(0)
    make, shape = CASES[name]
    module = make().double().eval()
    network = lc.load(module, input_shape=shape[1:])
    x = 0.5 * np.random.default_rng(1).normal(size=shape)
    with torch.no_grad():
        assert np.allclose(network(x), module(torch.tensor(x)).numpy().ravel(), rtol=1e-9, atol=1e-11)
    for radius, ratio in ((1e-6, 1.01), (0.005, 3.0)):
        ball = lc.Ball(x.ravel(), radius)
        low = np.linalg.norm(network.jacobian(ball.sample(50, np.random.default_rng(2))), 2, axis=(1, 2)).max()
        bound = lc.certify(network, ball, "scalar").bound
        assert low * (1.0 - 1e-12) <= bound <= ratio * low


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
