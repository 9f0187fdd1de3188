"""PyTorch modules in: the same function, the same Jacobian, or an error that lists what stands in the way."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.importers.faithful import DOUBLE, SINGLE, Original, confirm
from lipcert.model.arrays import Array

torch = pytest.importorskip("torch", reason="PyTorch is an extra")
from modules import Wrapped  # noqa: E402 - needs PyTorch

nn = torch.nn
F = torch.nn.functional


def _residual(s: Any, x: Any) -> Any:
    y = F.relu(s.bn(s.one(x)))
    return s.head((y + s.two(y)).flatten(1))


def _preactivation(s: Any, x: Any) -> Any:
    """Three blocks on one stream, as in pre-activation residual networks."""
    stream = s.stem(x)
    for k in range(3):
        stream = stream + getattr(s, f"b{k}")(torch.tanh(getattr(s, f"a{k}")(F.relu(stream))))
    return s.head(stream)


def _dense_block(s: Any, x: Any) -> Any:
    one = F.relu(s.a(x))
    two = F.relu(s.b(torch.cat([x, one], 1)))
    return s.c(torch.cat([x, one, two], dim=1).view(x.size(0), -1))


def _methods(s: Any, x: Any) -> Any:
    y = x.reshape(x.shape[0], 4, 3).transpose(1, 2).contiguous().permute(0, 2, 1)
    y = y.unsqueeze(1).squeeze(1).flatten(start_dim=1)
    y = 2.0 - 3.0 * y / 4.0 + (-y) * s.scale
    left, right = y.chunk(2, dim=1)
    return torch.cat([left.sigmoid() + right.tanh(), y[:, 1::3].clamp(min=-0.5), y[:, :2].clamp(-1.0, 0.3)], 1)


def _gates(s: Any, x: Any) -> Any:
    y = x * torch.sigmoid(1.5 * x) + s.a(x)
    y = y * 0.5 * (1.0 + torch.erf(y / 2.0**0.5))
    y = y * torch.tanh(F.softplus(y, threshold=40.0))
    return y * F.relu6(y + 3.0) / 6.0


def _extremes(s: Any, x: Any) -> Any:
    return torch.cat(
        [torch.maximum(x, s.a(x)), torch.minimum(x, s.a(x)), torch.max(x, s.limit), x.abs(), x.amax(1, keepdim=True)], 1
    )


def _statistics(s: Any, x: Any) -> Any:
    y = torch.cat([x.mean(dim=(2, 3)), x.sum(dim=3).flatten(1), x.mean(2).flatten(1)], dim=1)
    return F.linear(torch.atan(y), s.weight) + torch.sin(y).mean(dim=1, keepdim=True)


def _stack(*layers: Any) -> Any:
    return nn.Sequential(*layers)


SQUARE = (2, 6, 7)
CASES: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "linear only": (lambda: _stack(nn.Linear(4, 3), nn.Linear(3, 5, bias=False)), (4,)),
    "mlp relu": (lambda: _stack(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)), (4,)),
    "every layer another": (
        lambda: _stack(
            nn.Linear(4, 6), nn.ELU(0.5), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 5), nn.GELU("tanh"), nn.Linear(5, 2)
        ),
        (4,),
    ),
    "activation last": (lambda: _stack(nn.Linear(4, 6), nn.Mish(), nn.Linear(6, 3), nn.SiLU()), (4,)),
    "batch norm 1d": (lambda: _stack(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.SELU(), nn.Linear(6, 3)), (4,)),
    "batch norm first": (lambda: _stack(nn.BatchNorm1d(4, affine=False), nn.Linear(4, 3), nn.Softsign()), (4,)),
    "prelu per channel": (lambda: _stack(nn.Conv2d(2, 3, 2), nn.PReLU(3), nn.Flatten(), nn.Linear(90, 4)), SQUARE),
    "dropout, identity": (  # PyTorch's gradient of CELU keeps 1/alpha in single precision: take an alpha that fits
        lambda: _stack(nn.Identity(), nn.Linear(4, 6), nn.Dropout(0.4), nn.CELU(0.5), nn.Linear(6, 3)),
        (4,),
    ),
    "conv1d": (lambda: _stack(nn.Conv1d(3, 4, 3, stride=2, padding=2, dilation=2), nn.ReLU(), nn.Flatten()), (3, 11)),
    "conv1d circular": (lambda: _stack(nn.Conv1d(2, 3, 3, padding=2, padding_mode="circular"), nn.Tanh()), (2, 7)),
    "conv2d": (lambda: _stack(nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 0)), nn.LeakyReLU(0.2)), SQUARE),
    "conv2d groups": (lambda: _stack(nn.Conv2d(4, 6, 3, groups=2, bias=False), nn.ReLU6()), (4, 5, 5)),
    "conv2d depthwise": (lambda: _stack(nn.Conv2d(3, 6, 3, groups=3, padding=1), nn.Hardswish()), (3, 4, 5)),
    "conv2d same": (lambda: _stack(nn.Conv2d(2, 3, (4, 3), padding="same", dilation=(1, 2)), nn.Sigmoid()), SQUARE),
    "conv2d valid": (lambda: _stack(nn.Conv2d(2, 3, 3, padding="valid"), nn.Softplus(2.0, 40.0)), SQUARE),
    "conv2d reflect": (lambda: _stack(nn.Conv2d(2, 3, 3, padding=2, padding_mode="reflect"), nn.ELU()), SQUARE),
    "conv2d replicate": (lambda: _stack(nn.Conv2d(2, 3, 3, padding=(2, 1), padding_mode="replicate")), SQUARE),
    "conv2d same circular": (
        lambda: _stack(nn.Conv2d(2, 3, 3, padding="same", padding_mode="circular"), nn.Hardtanh(-0.5, 0.7)),
        SQUARE,
    ),
    "conv3d": (lambda: _stack(nn.Conv3d(2, 2, 2, padding=1), nn.ReLU(), nn.AvgPool3d(2)), (2, 3, 3, 3)),
    "average pools": (
        lambda: _stack(nn.AvgPool2d(3, 2, 1), nn.Tanh(), nn.AvgPool2d(2, 1, 1, count_include_pad=False)),
        SQUARE,
    ),
    "average pool ceil": (
        lambda: _stack(nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), nn.Tanh()),
        SQUARE,
    ),
    "average pool 1d": (lambda: _stack(nn.AvgPool1d(2, 2), nn.Tanh(), nn.Flatten()), (2, 9)),
    "adaptive pools": (
        lambda: _stack(nn.AdaptiveAvgPool2d((4, 3)), nn.GELU(), nn.AdaptiveMaxPool2d((3, None))),
        SQUARE,
    ),
    "global average": (lambda: _stack(nn.Conv2d(2, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()), SQUARE),
    "max pool": (
        lambda: _stack(nn.Conv2d(2, 3, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 3)),
        SQUARE,
    ),
    "max pool overlapping": (lambda: _stack(nn.MaxPool2d(3, 2, 1), nn.Conv2d(2, 2, 2), nn.MaxPool2d(2, 1)), SQUARE),
    "max pool dilated ceil": (lambda: _stack(nn.Tanh(), nn.MaxPool2d(2, 2, 1, dilation=2, ceil_mode=True)), SQUARE),
    "max pool of a non-monotone": (lambda: _stack(nn.SiLU(), nn.MaxPool1d(3, 2)), (2, 8)),
    "logsigmoid, rrelu": (lambda: _stack(nn.Linear(4, 5), nn.LogSigmoid(), nn.Linear(5, 4), nn.RReLU(0.1, 0.4)), (4,)),
    "padding modules": (
        lambda: _stack(nn.ReflectionPad2d((1, 2, 0, 1)), nn.Tanh(), nn.ConstantPad2d(1, 0.5), nn.ReplicationPad2d(1)),
        (1, 3, 4),
    ),
    "residual": (
        lambda: Wrapped(
            _residual,
            one=nn.Conv2d(2, 3, 3, padding=1),
            bn=nn.BatchNorm2d(3),
            two=nn.Conv2d(3, 3, 3, padding=1),
            head=nn.Linear(126, 4),
        ),
        SQUARE,
    ),
    "pre-activation residual": (
        lambda: Wrapped(
            _preactivation,
            stem=nn.Linear(5, 6),
            head=nn.Linear(6, 3),
            **{f"a{k}": nn.Linear(6, 9) for k in range(3)},
            **{f"b{k}": nn.Linear(9, 6) for k in range(3)},
        ),
        (5,),
    ),
    "dense block": (
        lambda: Wrapped(_dense_block, a=nn.Conv2d(2, 2, 1), b=nn.Conv2d(4, 3, 1), c=nn.Linear(7 * 42, 3)),
        SQUARE,
    ),
    "methods and operators": (lambda: Wrapped(_methods, scale=torch.linspace(-1, 1, 12)), (12,)),
    "gates": (lambda: Wrapped(_gates, a=nn.Linear(5, 5)), (5,)),
    "extremes": (lambda: Wrapped(_extremes, a=nn.Linear(5, 5), limit=torch.linspace(-1, 1, 5)), (5,)),
    "statistics": (lambda: Wrapped(_statistics, weight=torch.linspace(-1, 1, 26 * 4).reshape(4, 26)), (2, 6, 6)),
    "matrices": (
        lambda: Wrapped(
            lambda s, x: torch.matmul(torch.relu(x @ s.right), s.low) + s.left @ F.silu(x),
            right=torch.linspace(-1, 1, 12).reshape(3, 4),
            low=torch.linspace(0, 1, 12).reshape(4, 3),
            left=torch.linspace(-1, 2, 25).reshape(5, 5),
        ),
        (5, 3),
    ),
    "normalised input": (
        lambda: Wrapped(
            lambda s, x: s.net((x - s.mean) / s.std),
            mean=torch.rand(2, 1, 1),
            std=0.5 + torch.rand(2, 1, 1),
            net=_stack(nn.Conv2d(2, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(40, 3)),
        ),
        SQUARE,
    ),
    "weight norm": (
        lambda: _stack(nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), nn.ReLU(), nn.Linear(5, 2)),
        (4,),
    ),
}


def _made(name: str) -> tuple[Any, tuple[int, ...]]:
    """The module of a case with random parameters and statistics, in double precision and evaluation mode."""
    torch.manual_seed(sum(map(ord, name)))
    make, shape = CASES[name]
    module = make().double().eval()
    for part in module.modules():
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
            part.running_mean.normal_()
            part.running_var.uniform_(0.3, 3.0)
            if part.affine:
                nn.init.normal_(part.weight)
                nn.init.normal_(part.bias)
        elif isinstance(part, nn.PReLU):
            nn.init.uniform_(part.weight, -0.5, 1.5)
    return module, shape


@pytest.mark.parametrize("name", CASES)
def test_same_function_and_jacobian(name: str) -> None:
    module, shape = _made(name)
    network = lc.load(module, input_shape=shape)
    assert network.inputs == int(np.prod(shape))
    points = 1.3 * np.random.default_rng(5).standard_normal((4, *shape))
    for point in points:
        x = torch.from_numpy(point)[None]
        wanted = module(x).detach().numpy().ravel()
        np.testing.assert_allclose(network(point.ravel()), wanted, rtol=0, atol=1e-10 * (1 + np.abs(wanted).max()))
        slope = torch.autograd.functional.jacobian(module, x).numpy().reshape(wanted.size, point.size)
        found = network.jacobian(point.ravel())
        np.testing.assert_allclose(found, slope, rtol=0, atol=1e-10 * (1 + np.abs(slope).max()))


ACTIVATIONS: list[tuple[Any, str]] = [
    (nn.ReLU(), "relu"),
    (nn.LeakyReLU(0.3), "leaky_relu"),
    (nn.PReLU(init=0.4), "leaky_relu"),
    (nn.ReLU6(), "relu6"),
    (nn.Hardtanh(-0.3, 0.4), "hardtanh"),
    (nn.ELU(1.7), "elu"),
    (nn.CELU(0.6), "celu"),
    (nn.SELU(), "selu"),
    (nn.Sigmoid(), "sigmoid"),
    (nn.Tanh(), "tanh"),
    (nn.Softplus(3.0, 40.0), "softplus"),
    (nn.Softsign(), "softsign"),
    (nn.SiLU(), "silu"),
    (nn.GELU(), "gelu"),
    (nn.GELU("tanh"), "gelu_tanh"),
    (nn.Mish(), "mish"),
    (nn.Hardswish(), "hardswish"),
    (nn.Hardsigmoid(), "hardsigmoid"),
    (torch.relu_, "relu"),
    (lambda x: F.leaky_relu(x, 0.05), "leaky_relu"),
    (lambda x: F.leaky_relu(x, negative_slope=0.05, inplace=True), "leaky_relu"),
    (lambda x: F.hardtanh(x, min_val=-2.0, max_val=0.1), "hardtanh"),
    (lambda x: F.elu(x, 0.8), "elu"),
    (F.logsigmoid, "softplus"),
    (lambda x: F.threshold(x, 0.2, 0.2), "threshold"),
    (lambda x: F.softplus(x, beta=0.7, threshold=40.0), "softplus"),
    (F.softsign, "softsign"),
    (lambda x: F.gelu(x, approximate="tanh"), "gelu_tanh"),
    (F.hardsigmoid, "hardsigmoid"),
    (torch.arctan, "arctan"),
    (torch.sin, "sin"),
    (lambda x: x.relu().tanh(), "tanh"),
]


@pytest.mark.parametrize(("function", "row"), ACTIVATIONS, ids=[f"{k}-{row}" for k, (_, row) in enumerate(ACTIVATIONS)])
def test_every_activation_with_its_own_parameters(function: Any, row: str) -> None:
    torch.manual_seed(3)
    module = Wrapped(lambda s, x: s.b(function(s.a(x))), a=nn.Linear(6, 9), b=nn.Linear(9, 4)).double().eval()
    if isinstance(function, nn.Module):
        module = nn.Sequential(module.a, function, module.b).double().eval()
    network = lc.load(module)
    neurons = network.layers[-2].neurons
    assert neurons is not None
    assert neurons.describe() == row
    x = 3.0 * np.random.default_rng(1).standard_normal((50, 6))
    wanted = module(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(network(x), wanted, rtol=1e-10, atol=1e-10)


def test_the_shape_is_found_where_the_module_tells_it() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.ReLU(), nn.Linear(12, 2)).eval()
    assert lc.load(module).inputs == 12
    with pytest.raises(lc.InvalidInput, match=r"give input_shape, such as \(3, 32, 32\)"):
        lc.load(nn.Sequential(nn.Conv2d(1, 2, 3)).eval())
    with pytest.raises(lc.UnreadableModel, match=r"fails on an input of shape \(1, 3, 8, 8\)"):
        lc.load(nn.Sequential(nn.Conv2d(1, 2, 3)).eval(), input_shape=(3, 8, 8))
    with pytest.raises(lc.InvalidInput, match="positive sizes"):
        lc.load(nn.Linear(2, 2).eval(), input_shape=(0,))


def test_residual_streams_are_carried_at_their_own_width() -> None:
    """One copy of the stream (6) passes each activation, or the input (5) where that is enough."""
    module, shape = _made("pre-activation residual")
    assert lc.load(module, input_shape=shape).sizes == (5, 11, 14, 12, 15, 12, 15, 3)


def test_the_module_is_not_changed() -> None:
    module, shape = _made("residual")
    before = copy.deepcopy(module.state_dict())
    lc.load(module.float(), input_shape=shape)
    assert all(value.dtype == torch.float32 for value in module.state_dict().values() if value.is_floating_point())
    module.double()
    for key, value in before.items():
        assert torch.equal(module.state_dict()[key].to(value.dtype), value.float().to(value.dtype))


def test_single_precision_modules_are_read_exactly() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).eval()
    network = lc.load(module)
    assert np.array_equal(network.layers[0].weight, module[0].weight.detach().numpy().astype(float))


def test_training_mode_is_refused() -> None:
    with pytest.raises(lc.UnreadableModel, match=r"training mode .*call module\.eval\(\)"):
        lc.load(nn.Sequential(nn.Linear(2, 2), nn.Dropout()))


def test_every_offender_is_listed() -> None:
    def forward(s: Any, x: Any) -> Any:
        y = s.norm(s.a(x))
        y = y * s.b(x)
        z = torch.exp(y)
        return F.softmax(z / z.sum(), dim=1)

    module = Wrapped(forward, a=nn.Linear(4, 3), norm=nn.LayerNorm(3), b=nn.Linear(4, 3)).eval()
    with pytest.raises(lc.UnreadableModel) as caught:
        lc.load(module, input_shape=(4,))
    text = str(caught.value)
    assert text.startswith("5 operations have no exact translation")
    first = forward.__code__.co_firstlineno + 1
    for name, number, rest in (
        ("norm", first, "layer_norm of shape (1, 3): it divides by the spread"),
        ("exp", first + 2, "exp of shape (1, 3): unknown operation"),
        ("div", first + 3, "div of shape (1, 3): it divides by a value that depends on the input"),
        ("softmax", first + 3, "softmax of shape (1, 3): take the logits"),
        ("mul", first + 1, "mul of shape (1, 3): it multiplies two values that both depend on the input"),
    ):
        assert f"  {name} (test_torch.py:{number}): {rest}" in text


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (nn.LSTM(4, 3), "gates multiply signals"),
        (nn.BatchNorm2d(4, track_running_stats=False), "normalises by the batch"),
        (nn.Softplus(threshold=1.0), "threshold"),
        (nn.ELU(-1.0), "1e-6 <= alpha"),
        (nn.AvgPool1d(2, ceil_mode=True), "ceil_mode together with count_include_pad"),
    ],
)
def test_known_modules_used_in_unknown_ways(part: Any, reason: str) -> None:
    module = Wrapped(lambda s, x: s.part(x), part=part).eval()
    if isinstance(part, nn.LSTM):
        module.function = lambda s, x: s.part(x)[0]
    with pytest.raises(lc.UnreadableModel, match=reason):
        lc.load(module, input_shape=(4, 3, 3) if isinstance(part, nn.BatchNorm2d) else (4,))


def test_what_cannot_be_traced_or_has_several_ends() -> None:
    def decides(s: Any, x: Any) -> Any:
        return x if x.sum() > 0 else -x

    with pytest.raises(lc.UnreadableModel, match=r"cannot follow .*test_torch\.py:\d+.*looks at values"):
        lc.load(Wrapped(decides).eval(), input_shape=(3,))
    with pytest.raises(lc.UnreadableModel, match="returns a tuple"):
        lc.load(Wrapped(lambda s, x: (x, x)).eval(), input_shape=(3,))


def test_final_softmax_is_dropped_when_asked() -> None:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4))
    module = nn.Sequential(body, nn.Softmax(1)).double().eval()
    with pytest.raises(lc.UnreadableModel, match="drop_softmax=True"):
        lc.load(module)
    network = lc.load(module, drop_softmax=True)
    x = np.ones(3)
    np.testing.assert_allclose(network(x), body(torch.from_numpy(x)).detach().numpy())
    with pytest.raises(lc.InvalidInput, match="not a softmax"):
        lc.load(body.eval(), drop_softmax=True)


def test_a_dropped_bias_is_caught() -> None:
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((6, 4)), rng.standard_normal((3, 6))]
    biases = [0.01 * rng.standard_normal(6), 0.01 * rng.standard_normal(3)]
    full = lc.Network.from_weights(weights, biases, "tanh")
    for single in (False, True):
        run: Callable[[Array], Array] = lambda x: full(x).astype(np.float32 if single else float)  # noqa: B023, E731
        original = Original(run, SINGLE if single else DOUBLE, "the test")
        confirm(full, original)
        for k in range(2):
            without = [b if i != k else None for i, b in enumerate(biases)]
            with pytest.raises(lc.UnreadableModel, match="not faithful"):
                confirm(lc.Network.from_weights(weights, without, "tanh"), original)


def test_given_points_are_compared_too() -> None:
    """A difference that no random point shows is found at a given one."""
    network = lc.Network.from_weights([[[1.0]], [[1.0]]], [[-1e150], [0.0]], "relu")
    original = Original(lambda x: np.zeros(1), DOUBLE, "the test")
    confirm(network, original)
    with pytest.raises(lc.UnreadableModel, match="not faithful"):
        confirm(network, original, [[2e150]])
    with pytest.raises(lc.InvalidInput, match="points must have 2 numbers"):
        lc.load(nn.Linear(2, 1).eval(), points=[1.0, 2.0, 3.0])


def test_state_dicts(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2, bias=False)).eval()
    path = tmp_path / "model.pt"
    torch.save(module.state_dict(), path)
    x = np.ones(3)
    np.testing.assert_allclose(lc.load(path, "relu")(x), lc.load(module)(x))
    with pytest.raises(lc.UnreadableModel, match="which activation"):
        lc.load(path)
    torch.save(nn.Conv2d(1, 2, 3).state_dict(), path)
    with pytest.raises(lc.UnreadableModel, match=r"weight of shape \(2, 1, 3, 3\).*pass the module"):
        lc.load(path, "relu")
    with pytest.raises(lc.InvalidInput, match="input_shape has no meaning"):
        lc.load(path, "relu", input_shape=(1,))


class Payload:
    """Unpickling this would create a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (self.path, "w")


def test_nothing_in_a_file_is_executed(tmp_path: Path) -> None:
    path, trace = tmp_path / "model.pt", tmp_path / "executed"
    torch.save({"weight": Payload(str(trace))}, path)
    with pytest.raises(lc.UnreadableModel, match="without executing code"):
        lc.load(path, "relu")
    assert not trace.exists()


@pytest.mark.parametrize(("package", "call"), [("torch", "'model.pt', 'relu'"), ("onnx", "'model.onnx'")])
def test_a_missing_extra_says_what_to_install(package: str, call: str, tmp_path: Path) -> None:
    for name in ("model.pt", "model.onnx"):
        (tmp_path / name).touch()
    code = f"import sys; sys.modules['{package}'] = None\nimport lipcert\nlipcert.load({call})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert f'pip install "lipcert[{package}]"' in done.stderr
    assert "LipcertError" in done.stderr


@pytest.mark.parametrize("method", ["mean", "amax"])
def test_an_axis_of_a_number_without_axes_is_refused(method: str) -> None:
    """PyTorch takes it; the remainder by zero axes was an error of Python's."""
    module = Wrapped(lambda s, x: getattr(s.one(x).sum(), method)(0).reshape(1), one=nn.Linear(3, 2)).eval()
    with pytest.raises(lc.UnreadableModel, match=f"{method} of shape .*: it is called in an unknown way"):
        lc.load(module)
