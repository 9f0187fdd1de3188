"""The zoo: each module is read as the same function, with bounds that hold, or refused with a sentence."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc

torch = pytest.importorskip("torch", reason="PyTorch is an extra")
import zoo  # noqa: E402 - needs PyTorch
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from modules import GroupSort2, Wrapped  # noqa: E402

SQUARE = (2, 6, 7)
Case = tuple[Callable[[], Any], tuple[int, ...]]


def fn(function: Callable[..., Any], **parts: Any) -> Any:
    """A function as a module."""
    return Wrapped(lambda _, x: function(x), **parts)


def stack(*layers: Any, shape: tuple[int, ...] = SQUARE) -> Case:
    return lambda: nn.Sequential(*(layer() if isinstance(layer, type) else layer for layer in layers)), shape


LINEAR = nn.Linear(4, 6), nn.Linear(6, 3)
READ: dict[str, Case] = {
    **{name: (kind, kind.shape) for name, kind in zoo.Zoo.kinds.items() if not kind.says},
    "group sort": (GroupSort2, (4,)),
    # stacks
    "linear only": stack(nn.Linear(4, 3), nn.Linear(3, 5, bias=False), shape=(4,)),
    "mlp": stack(nn.Linear(4, 8), nn.ReLU, nn.Linear(8, 6), nn.ReLU, nn.Linear(6, 3), shape=(4,)),
    "every layer another": stack(
        LINEAR[0], nn.ELU(0.5), nn.Linear(6, 6), nn.Tanh, LINEAR[1], nn.GELU("tanh"), shape=(4,)
    ),
    "activation last": stack(LINEAR[0], nn.Mish, LINEAR[1], nn.SiLU, shape=(4,)),
    "batch norm 1d": stack(LINEAR[0], nn.BatchNorm1d(6), nn.SELU, LINEAR[1], shape=(4,)),
    "batch norm first": stack(nn.BatchNorm1d(4, affine=False), nn.Linear(4, 3), nn.Softshrink, shape=(4,)),
    # PyTorch's gradient of CELU keeps 1/alpha in single precision: take an alpha that fits
    "dropout, identity": stack(nn.Identity, LINEAR[0], nn.Dropout(0.4), nn.CELU(0.5), LINEAR[1], shape=(4,)),
    "logsigmoid, rrelu": stack(nn.Linear(4, 5), nn.LogSigmoid, nn.Linear(5, 4), nn.RReLU(0.1, 0.4), shape=(4,)),
    "weight norm": stack(nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), nn.ReLU, nn.Linear(5, 2), shape=(4,)),
    "spectral norm": stack(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)), shape=(4,)),
    "parallel": (lambda: nn.DataParallel(nn.Sequential(nn.Linear(4, 2), nn.ReLU())), (4,)),
    # images
    "prelu per channel": stack(nn.Conv2d(2, 3, 2), nn.PReLU(3), nn.Flatten, nn.Linear(90, 4)),
    "conv1d": stack(nn.Conv1d(3, 4, 3, stride=2, padding=2, dilation=2), nn.ReLU, nn.Flatten, shape=(3, 11)),
    "conv1d circular": stack(nn.Conv1d(2, 3, 3, padding=2, padding_mode="circular"), nn.Tanh, shape=(2, 7)),
    "conv2d": stack(nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 0)), nn.LeakyReLU(0.2)),
    "conv2d groups": stack(nn.Conv2d(4, 6, 3, groups=2, bias=False), nn.ReLU6, shape=(4, 5, 5)),
    "conv2d depthwise": stack(nn.Conv2d(3, 6, 3, groups=3, padding=1), nn.Hardswish, shape=(3, 4, 5)),
    "conv2d same": stack(nn.Conv2d(2, 3, (4, 3), padding="same", dilation=(1, 2)), nn.Sigmoid),
    "conv2d valid": stack(nn.Conv2d(2, 3, 3, padding="valid"), nn.Softplus(2.0, 40.0)),
    "conv2d reflect": stack(nn.Conv2d(2, 3, 3, padding=2, padding_mode="reflect"), nn.ELU),
    "conv2d replicate": stack(nn.Conv2d(2, 3, 3, padding=(2, 1), padding_mode="replicate")),
    "conv2d same circular": stack(nn.Conv2d(2, 3, 3, padding="same", padding_mode="circular"), nn.Hardtanh(-0.5, 0.7)),
    "conv3d": stack(nn.Conv3d(2, 2, 2, padding=1), nn.ReLU, nn.AvgPool3d(2), shape=(2, 3, 3, 3)),
    "transposed": stack(
        nn.ConvTranspose2d(2, 4, 3, stride=2, padding=1, output_padding=1, groups=2), nn.ReLU, shape=(2, 4, 5)
    ),
    "transposed 1d": stack(nn.ConvTranspose1d(2, 3, 3, stride=2, dilation=2), shape=(2, 5)),
    "transposed 3d": stack(nn.ConvTranspose3d(1, 2, 2, stride=2), shape=(1, 2, 3, 2)),
    "average pools": stack(nn.AvgPool2d(3, 2, 1), nn.Tanh, nn.AvgPool2d(2, 1, 1, count_include_pad=False)),
    "average pool ceil": stack(nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), nn.Tanh),
    "average pool 1d": stack(nn.AvgPool1d(2, 2), nn.Tanh, nn.Flatten, shape=(2, 9)),
    "adaptive pools": stack(nn.AdaptiveAvgPool2d((4, 3)), nn.GELU, nn.AdaptiveMaxPool2d((3, None))),
    "global average": stack(nn.Conv2d(2, 5, 3), nn.ReLU, nn.AdaptiveAvgPool2d(1), nn.Flatten),
    "max pool": stack(nn.Conv2d(2, 3, 2), nn.ReLU, nn.MaxPool2d(2), nn.Flatten, nn.Linear(18, 3)),
    "max pool overlapping": stack(nn.MaxPool2d(3, 2, 1), nn.Conv2d(2, 2, 2), nn.MaxPool2d(2, 1)),
    "max pool dilated ceil": stack(nn.Tanh, nn.MaxPool2d(2, 2, 1, dilation=2, ceil_mode=True)),
    "max pool of a non-monotone": stack(nn.SiLU, nn.MaxPool1d(3, 2), shape=(2, 8)),
    "padding modules": stack(
        nn.ReflectionPad2d((1, 2, 0, 1)), nn.Tanh, nn.ConstantPad2d(1, 0.5), nn.ReplicationPad2d(1), shape=(1, 3, 4)
    ),
    "nearest": stack(nn.Upsample(scale_factor=2), shape=(1, 3, 4)),
    "shuffle": stack(nn.PixelShuffle(2), shape=(8, 3, 2)),
    "unshuffle": stack(nn.PixelUnshuffle(2), shape=(2, 4, 6)),
    "conv3d dilated": stack(nn.Conv3d(2, 2, 2, dilation=(1, 2, 1), groups=2), nn.ReLU, shape=(2, 3, 4, 3)),
    "conv3d circular": stack(nn.Conv3d(1, 2, 3, padding=1, padding_mode="circular"), shape=(1, 3, 3, 4)),
    "rnn cell": stack(nn.RNNCell(4, 3), nn.Linear(3, 2), shape=(4,)),
    # products of signals
    "layer norm": stack(nn.Linear(3, 5), nn.LayerNorm(5), nn.ReLU, nn.Linear(5, 2), shape=(3,)),
    "rms norm": stack(nn.Linear(3, 5), nn.RMSNorm(5, eps=1e-5), shape=(3,)),
    "group norm": stack(nn.Conv2d(1, 4, 2), nn.GroupNorm(2, 4), nn.Tanh, shape=(1, 3, 3)),
    "instance norm": stack(nn.Conv2d(1, 2, 2), nn.InstanceNorm2d(2, affine=True), shape=(1, 4, 4)),
    "glu": stack(nn.Linear(3, 8), nn.GLU, nn.Linear(4, 2), shape=(3,)),
    "softmax": stack(nn.Linear(3, 4), nn.Softmax(-1), shape=(3,)),
    "log softmax": stack(nn.Linear(3, 4), nn.LogSoftmax(-1), shape=(3,)),
    "encoder": stack(nn.TransformerEncoderLayer(4, 2, 6, batch_first=True), shape=(3, 4)),
}
COUPLED = [
    kind.__name__ for group in (zoo.Gates, zoo.Attention, zoo.Norms, zoo.Recurrent) for kind in zoo.members(group)
]
COUPLED = [name for name in COUPLED if name not in ("Rnn", "Relu", "Cell")]
COUPLED += ["CartPole", "Scheduled", *list(READ)[-8:]]
"""Modules that multiply signals."""

FUNCTIONS: dict[str, list[Any]] = {
    "relu": [nn.ReLU(), torch.relu_],
    "leaky_relu": [
        *(nn.LeakyReLU(0.3), nn.PReLU(init=0.4), torch.abs, lambda x: F.leaky_relu(x, 0.05)),
        lambda x: F.leaky_relu(x, negative_slope=0.05, inplace=True),
    ],
    "relu6": [nn.ReLU6()],
    "hardtanh": [nn.Hardtanh(-0.3, 0.4), lambda x: F.hardtanh(x, min_val=-2.0, max_val=0.1)],
    "elu": [nn.ELU(1.7), lambda x: F.elu(x, 0.8)],
    "celu": [nn.CELU(0.6)],
    "selu": [nn.SELU()],
    "sigmoid": [nn.Sigmoid()],
    "tanh": [nn.Tanh(), lambda x: x.relu().tanh()],
    "softplus": [nn.Softplus(3.0, 40.0), F.logsigmoid, lambda x: F.softplus(x, beta=0.7, threshold=40.0)],
    "silu": [nn.SiLU(), lambda x: x * torch.sigmoid(1.702 * x)],
    "gelu": [nn.GELU()],
    "gelu_tanh": [nn.GELU("tanh"), lambda x: F.gelu(x, approximate="tanh")],
    "mish": [nn.Mish()],
    "hardswish": [nn.Hardswish()],
    "hardsigmoid": [nn.Hardsigmoid(), F.hardsigmoid],
    "threshold": [nn.Threshold(0.2, 0.2), lambda x: F.threshold(x, 0.2, 0.2)],
    "softshrink": [nn.Softshrink(0.3)],
    "arctan": [torch.arctan],
    "sin": [torch.sin],
    "cos": [torch.cos],
    "erf": [torch.erf],
    "square": [lambda x: x**2, lambda x: x * x],
    "cube": [lambda x: x.pow(3)],
}
"""Row of the table → what is read as it."""

SPELT: dict[str, list[Callable[[Any], Any]]] = {
    "silu": [lambda x: x * torch.sigmoid(x), lambda x: torch.sigmoid(-1.7 * x) * (3.0 * x)],
    "mish": [lambda x: x * torch.tanh(F.softplus(x, threshold=40.0))],
    "gelu": [
        lambda x: x * (torch.erf(x * 0.5**0.5) + 1.0) * 0.5,
        lambda x: 0.5 * x * (1.0 + torch.erf(x / 2.0**0.5)),
        lambda x: x * (0.5 * torch.erf(x * 0.5**0.5) + 0.5),
        lambda x: 0.5 * x * (1.0 + torch.erf(x / float(np.float32(2.0**0.5)))),
    ],
    "hardswish": [
        lambda x: x * F.hardsigmoid(x),
        lambda x: x * F.relu6(x + 3.0) / 6.0,
        lambda x: (x + 3.0).clamp(0.0, 6.0) * x,
    ],
    "square": [lambda x: (2.0 * x) * (3.0 * x)],
}
"""Row of the table → products that spell it out."""

OTHERS: tuple[Callable[[Any], Any], ...] = (
    lambda x: x * torch.sigmoid(x + 0.1),
    lambda x: (x + 0.1) * torch.sigmoid(x),
    lambda x: x * (torch.sigmoid(x) + 0.1),
    lambda x: x * torch.tanh(x),
    lambda x: x * torch.tanh(F.softplus(x, 2.0, 40.0)),
    lambda x: x * torch.sigmoid(x * torch.arange(1.0, 10.0)),
    lambda x: x * (torch.erf(x * 0.5**0.5) + 0.9),
    lambda x: x * (torch.erf(x * 0.5**0.5) + 1.0 + 1e-7),
    lambda x: x * (torch.erf(x * 0.5**0.5 + 1e-9) + 1.0),
    lambda x: x * torch.relu(x),
    lambda x: x * (x + 3.5).clamp(0.0, 6.0),
    lambda x: x * (x + 1.0),
)
"""Products that are no activation that is known, some of them only just."""

EXPORTED = (
    *("transposed", "transposed 1d", "transposed 3d", "nearest", "shuffle"),
    *(
        "unshuffle",
        "conv2d same",
        "Residual",
        "SpeltOut",
        "average pools",
        "max pool overlapping",
        "mlp",
        "batch norm 1d",
    ),
)
"""Modules that are read from PyTorch's own ONNX export too."""


def made(case: Case) -> Any:
    """The module of a case with random parameters and statistics, in double precision and evaluation mode."""
    torch.manual_seed(5)
    module = case[0]().double().eval()
    part: Any
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.get_buffer("running_mean").normal_()
            part.get_buffer("running_var").uniform_(0.3, 3.0)
        if isinstance(part, (nn.modules.batchnorm._BatchNorm, nn.PReLU)) and getattr(part, "weight", None) is not None:
            nn.init.uniform_(part.weight, -0.5, 1.5)
    return module


def same(network: lc.Network, module: Any, shape: tuple[int, ...], jacobian: bool = True, near: float = 1e-10) -> None:
    """Network and module agree at random points, and so do their derivatives."""
    assert network.inputs == int(np.prod(shape))
    dtype = next((p.dtype for p in module.parameters()), torch.float64)
    for point in 1.3 * np.random.default_rng(5).standard_normal((4, *shape)):
        x = torch.from_numpy(point)[None].to(dtype)
        wanted = module(x.clone()).detach().numpy().ravel()
        point = x.numpy().astype(float).ravel()
        np.testing.assert_allclose(network(point), wanted, rtol=0, atol=near * (1 + np.abs(wanted).max()))
        if jacobian:
            slope = torch.autograd.functional.jacobian(module, x).numpy().reshape(wanted.size, point.size)
            found = network.jacobian(point)
            np.testing.assert_allclose(found, slope, rtol=0, atol=near * (1 + np.abs(slope).max()))


@pytest.mark.parametrize("name", READ)
def test_the_same_function_and_jacobian(name: str) -> None:
    module = made(READ[name])
    shape = READ[name][1]
    same(lc.load(module, input_shape=shape), module, shape)


@pytest.mark.parametrize("name", COUPLED)
def test_products_of_signals_have_bounds(name: str) -> None:
    module, shape = made(READ[name]), READ[name][1]
    network = lc.load(module, input_shape=shape)
    x = 0.5 * np.random.default_rng(1).normal(size=network.inputs)
    for radius, ratio in ((1e-6, 1.01), (0.005, 3.0)):
        ball = lc.Ball(x, radius)
        low = np.linalg.norm(network.jacobian(ball.sample(50, np.random.default_rng(2))), 2, axis=(1, 2)).max()
        bound = lc.certify(network, ball, "scalar").bound
        assert low * (1.0 - 1e-12) <= bound <= ratio * low


@pytest.mark.parametrize("name", EXPORTED)
def test_the_same_function_from_onnx(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    module, shape = made(READ[name]).float(), READ[name][1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = tmp_path / "m.onnx"
        torch.onnx.export(module, (torch.zeros(1, *shape),), str(file), dynamo=False, opset_version=17)
    same(lc.load(file), module, shape, jacobian=False, near=3e-5)


@pytest.mark.parametrize(
    ("function", "row"),
    [pytest.param(f, row, id=f"{row}-{k}") for row, fs in FUNCTIONS.items() for k, f in enumerate(fs)],
)
def test_every_activation_with_its_own_parameters(function: Any, row: str) -> None:
    module, network = between(function)
    assert network.layers[-2].neurons is not None
    assert network.layers[-2].neurons.describe() == row
    same(network, module, (6,), jacobian=False)


def between(function: Any) -> tuple[Any, lc.Network]:
    """A function between two linear layers, and what is read of it."""
    torch.manual_seed(3)
    module: Any = Wrapped(lambda s, x: s.b(function(s.a(x))), a=nn.Linear(6, 9), b=nn.Linear(9, 4)).double().eval()
    if isinstance(function, nn.Module):
        module = nn.Sequential(module.a, function, module.b).double().eval()
    return module, lc.load(module, input_shape=(6,))


@pytest.mark.parametrize("row", SPELT)
def test_activations_that_are_spelt_out(row: str) -> None:
    """A factor and a shift that all elements share do not hide them; one of its own for each element neither."""
    for function in SPELT[row]:
        for factor in (1.5, torch.linspace(-1.0, 3.0, 9)):
            module, network = between(lambda x: function(factor * x + 0.3))  # noqa: B023
            assert [layer.neurons and layer.neurons.describe() for layer in network.layers] == [row, None]
            same(network, module, (6,), jacobian=False)


def test_products_that_are_no_activation() -> None:
    for function in OTHERS:
        assert between(function)[1].coupled


REFUSED: dict[str, tuple[Any, tuple[int, ...], str]] = {
    "script": (lambda: torch.jit.script(nn.Linear(4, 2)), (4,), "pass the nn.Module that it was made from"),
    "batch": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)),
        (4,),
        "track_running_stats=True",
    ),
    "batch 2d": (lambda: nn.BatchNorm2d(4, track_running_stats=False), (4, 3, 3), "normalises by the batch"),
    "hardshrink": (nn.Hardshrink(), (4,), "jumps at its limits"),
    "threshold": (nn.Threshold(0.2, 0.0), (4,), "jumps from 0.0 to 0.2"),
    "softplus": (nn.Softplus(threshold=1.0), (4,), "at its threshold of 1.0 it jumps by 0.37; give a threshold of 20"),
    "elu": (nn.ELU(-1.0), (4,), "1e-6 <= alpha"),
    "ceil": (nn.AvgPool1d(2, ceil_mode=True), (1, 4), "ceil_mode together with count_include_pad"),
}
"""Modules, or functions that make one; shape of the input; what the message says."""


def refusal(model: Any, shape: tuple[int, ...]) -> str:
    with pytest.raises(lc.UnreadableModel) as caught:
        lc.load(model.eval(), input_shape=shape)
    return str(caught.value)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_the_reason_and_the_next_step_are_said(name: str) -> None:
    model, shape, expected = REFUSED[name]
    assert re.search(expected, refusal(model if isinstance(model, nn.Module) else model(), shape))


@pytest.mark.parametrize("name", [name for name, kind in zoo.Zoo.kinds.items() if kind.says])
@pytest.mark.filterwarnings("ignore")
def test_what_is_refused_says_why_and_where(name: str) -> None:
    """A number in braces stands for a line of forward, the first of which is 0."""
    kind = zoo.Zoo.kinds[name]
    first = kind.forward.__code__.co_firstlineno + 1
    expected = re.sub(r"\{(\d)\}", lambda found: str(first + int(found[1])), kind.says)
    assert re.search(expected, refusal(kind(), kind.shape))


def test_the_zoo_is_large() -> None:
    kinds = [kind for group in vars(zoo).values() if isinstance(group, type) for kind in zoo.members(group)]
    assert len(set(kinds)) == len(zoo.Zoo.kinds) >= 100
