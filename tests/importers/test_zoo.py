"""A zoo of PyTorch modules as people write them: read as the same function, or refused with a sentence."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc

torch = pytest.importorskip("torch", reason="PyTorch is an extra")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from modules import GroupSort2, Wrapped  # noqa: E402 - needs PyTorch

SQUARE = (2, 6, 7)
Case = tuple[Callable[[], Any], tuple[int, ...]]


def fn(function: Callable[..., Any], **parts: Any) -> Any:
    """A function as a module."""
    return Wrapped(lambda _, x: function(x), **parts)


def stack(*layers: Any, shape: tuple[int, ...] = SQUARE) -> Case:
    return lambda: nn.Sequential(*(layer() if isinstance(layer, type) else layer for layer in layers)), shape


def wrapped(function: Callable[..., Any], shape: tuple[int, ...], **parts: Any) -> Case:
    return lambda: Wrapped(
        function, **{name: p() if callable(p) and not isinstance(p, nn.Module) else p for name, p in parts.items()}
    ), shape


def calls(function: Callable[..., Any], shape: tuple[int, ...] = (4,)) -> Case:
    return lambda: fn(function), shape


def residual(s: Any, x: Any) -> Any:
    y = F.relu(s.bn(s.one(x)))
    return s.head((y + s.two(y)).flatten(1))


def preactivation(s: Any, x: Any) -> Any:
    """Three blocks on one stream, as in pre-activation residual networks."""
    stream = s.stem(x)
    for k in range(3):
        stream = stream + getattr(s, f"b{k}")(torch.tanh(getattr(s, f"a{k}")(F.relu(stream))))
    return s.head(stream)


def dense_block(s: Any, x: Any) -> Any:
    one = F.relu(s.a(x))
    two = F.relu(s.b(torch.cat([x, one], 1)))
    return s.c(torch.cat([x, one, two], dim=1).view(x.size(0), -1))


def methods(s: Any, x: Any) -> Any:
    y = x.reshape(x.shape[0], 4, 3).transpose(1, 2).contiguous().permute(0, 2, 1)
    y = y.unsqueeze(1).squeeze(1).flatten(start_dim=1)
    y = 2.0 - 3.0 * y / 4.0 + (-y) * s.scale
    left, right = y.chunk(2, dim=1)
    return torch.cat([left.sigmoid() + right.tanh(), y[:, 1::3].clamp(min=-0.5), y[:, :2].clamp(-1.0, 0.3)], 1)


def gates(s: Any, x: Any) -> Any:
    y = x * torch.sigmoid(1.5 * x) + s.a(x)
    y = y * 0.5 * (1.0 + torch.erf(y / 2.0**0.5))
    y = y * torch.tanh(F.softplus(y, threshold=40.0))
    return y * F.relu6(y + 3.0) / 6.0


def extremes(s: Any, x: Any) -> Any:
    pairs = torch.maximum(x, s.a(x)), torch.minimum(x, s.a(x)), torch.max(x, s.limit)
    return torch.cat([*pairs, x.abs(), x.amax(1, keepdim=True)], 1)


def statistics(s: Any, x: Any) -> Any:
    y = torch.cat([x.mean(dim=(2, 3)), x.sum(dim=3).flatten(1), x.mean(2).flatten(1)], dim=1)
    return F.linear(torch.atan(y), s.weight) + torch.sin(y).mean(dim=1, keepdim=True)


def einsums(s: Any, x: Any) -> Any:
    y = torch.einsum("bij,njk->bnik", x, s.heads).flatten(1)
    return torch.einsum("bi,oi->bo", y, s.last) + (x @ s.stacked).sum((0, 1, 2))


def set_items(x: Any) -> Any:
    y = x.clone()
    y[:, 0] = 2.0 * y[:, 1]
    y[:, 2:] += 1.0
    y[:, torch.tensor([1])] = x[:, [3]]
    return y


def loops(x: Any) -> Any:
    return torch.stack([x[:, k] * (k + 1) / len(x) for k in range(x.shape[1])], 1).view(len(x), -1)


def masks(x: Any) -> Any:
    return torch.where(torch.arange(4) % 2 == 0, x, -x).masked_fill(torch.arange(4) > 2, 1.5)


def nested(x: Any) -> Any:
    place = torch.arange(4)
    return torch.where(place < 1, x, torch.where(place < 3, 0.5 * torch.relu(x), torch.zeros(())))


def unrolled(s: Any, x: Any) -> Any:
    h = x.new_zeros(len(x), 3)
    for step in range(x.shape[1]):
        h = s.cell(x[:, step], h)
    return s.head(h)


def max_min(x: Any) -> Any:
    a, b = x.chunk(2, 1)
    return torch.cat([torch.maximum(a, b), torch.minimum(a, b)], 1)


def recurrent(part: Any) -> Any:
    return Wrapped(lambda s, x: s.part(x)[0][:, -1], part=part)


def rows(*shape: int) -> Any:
    return torch.linspace(-1.0, 1.0, int(np.prod(shape))).reshape(shape)


LINEAR = nn.Linear(4, 6), nn.Linear(6, 3)
READ: dict[str, Case] = {
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
    "pictures as a batch": calls(lambda x: F.conv2d(x.view(2, 1, 4, 5), rows(3, 1, 2, 2).to(x)).relu(), (2, 4, 5)),
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
    "pool with indices": calls(lambda x: F.max_pool1d(x, 2, return_indices=True)[0], (2, 4)),
    "padding modules": stack(
        nn.ReflectionPad2d((1, 2, 0, 1)), nn.Tanh, nn.ConstantPad2d(1, 0.5), nn.ReplicationPad2d(1), shape=(1, 3, 4)
    ),
    "nearest": stack(nn.Upsample(scale_factor=2), shape=(1, 3, 4)),
    "nearest exact": calls(lambda x: F.interpolate(x, (6, 12), mode="nearest-exact"), (1, 3, 4)),
    "nearest, uneven": calls(lambda x: F.interpolate(x, (5, 4), mode="nearest"), (1, 3, 4)),
    "area": calls(lambda x: F.interpolate(x, (6, 8), mode="area"), (1, 3, 4)),
    "shuffle": stack(nn.PixelShuffle(2), shape=(8, 3, 2)),
    "unshuffle": stack(nn.PixelUnshuffle(2), shape=(2, 4, 6)),
    "residual": wrapped(
        residual,
        SQUARE,
        one=nn.Conv2d(2, 3, 3, padding=1),
        bn=nn.BatchNorm2d(3),
        two=nn.Conv2d(3, 3, 3, padding=1),
        head=nn.Linear(126, 4),
    ),
    "pre-activation residual": wrapped(
        preactivation,
        (5,),
        stem=nn.Linear(5, 6),
        head=nn.Linear(6, 3),
        **{f"{one}{k}": layer for k in range(3) for one, layer in (("a", nn.Linear(6, 9)), ("b", nn.Linear(9, 6)))},
    ),
    "dense block": wrapped(dense_block, SQUARE, a=nn.Conv2d(2, 2, 1), b=nn.Conv2d(4, 3, 1), c=nn.Linear(7 * 42, 3)),
    "normalised input": wrapped(
        lambda s, x: s.net((x - s.mean) / s.std),
        SQUARE,
        mean=rows(2, 1, 1),
        std=1.5 + rows(2, 1, 1),
        net=nn.Sequential(nn.Conv2d(2, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(40, 3)),
    ),
    # operations and methods
    "methods and operators": wrapped(methods, (12,), scale=rows(12)),
    "gates": wrapped(gates, (5,), a=nn.Linear(5, 5)),
    "extremes": wrapped(extremes, (5,), a=nn.Linear(5, 5), limit=rows(5)),
    "statistics": wrapped(statistics, (2, 6, 6), weight=rows(4, 26)),
    "matrices": wrapped(
        lambda s, x: torch.matmul(torch.relu(x @ s.right), s.low) + s.left @ F.silu(x),
        (5, 3),
        right=rows(3, 4),
        low=rows(4, 3),
        left=rows(5, 5),
    ),
    "einsum": wrapped(einsums, (3, 4), heads=rows(2, 4, 3), last=rows(2, 18), stacked=rows(2, 1, 4, 2)),
    "other names of the same": calls(
        lambda x: (
            torch.subtract(torch.multiply(x, 2.0), torch.negative(x).absolute()).divide(3.0).clip(-1.0, 2.0)
            + torch.rsub(x, 1.0).fliplr().arctan()
            + torch.hstack([x[:, 1:], x[:, :1]])
        )
    ),
    "taken apart by PyTorch": calls(
        lambda x: (
            torch.addcmul(x, x, torch.arange(4.0).to(x), value=0.5).diag_embed().tril().flatten(1)
            + torch.trapezoid(x)[:, None]
            + torch.kron(x, torch.ones(1, 4).to(x))
        )
    ),
    "sizes and loops": calls(loops, (3, 2)),
    "masks": calls(masks),
    "nested masks": calls(nested),
    "items set": calls(set_items),
    "largest and its place": calls(lambda x: x.max(1)[0] + x.view(-1, 2).max(-1).values.sum() + x.min()),
    "cumulative": calls(lambda x: torch.lerp(x, torch.relu(x), 0.25).cumsum(1).roll(1, 1).repeat(1, 2)),
    "layer made in forward": calls(lambda x: nn.ReLU()(x)),
    "layer of a constant": wrapped(
        lambda s, x: s.a(x) + s.b(s.held), (3,), a=nn.Linear(3, 2), b=nn.Linear(3, 2), held=rows(3)
    ),
    "index, size, stride": wrapped(
        lambda s, x: s.a(x)[:, [2, 0, 1]] * x.shape.numel() * x.stride(1) + x.shape.index(3), (3,), a=nn.Linear(3, 3)
    ),
    "mask of bool, named input": wrapped(
        lambda s, x: s.a(input=F.relu(x * s.mask)), (3,), a=nn.Linear(3, 2), mask=torch.tensor([True, False, True])
    ),
    "max and min": calls(max_min),
    "group sort": (GroupSort2, (4,)),
    "sorted pairs": calls(lambda x: torch.sort(x.reshape(-1, 2))[0].reshape(x.shape)),
    "rnn": (lambda: recurrent(nn.RNN(4, 3, num_layers=2, bidirectional=True, batch_first=True)), (5, 4)),
    "rnn relu": (lambda: recurrent(nn.RNN(4, 3, nonlinearity="relu", bias=False)), (5, 4)),
    "rnn cell in a loop": wrapped(unrolled, (5, 4), cell=nn.RNNCell(4, 3), head=nn.Linear(3, 2)),
    "conv3d dilated": stack(nn.Conv3d(2, 2, 2, dilation=(1, 2, 1), groups=2), nn.ReLU, shape=(2, 3, 4, 3)),
    "conv3d circular": stack(nn.Conv3d(1, 2, 3, padding=1, padding_mode="circular"), shape=(1, 3, 3, 4)),
    "linear of a heads' axis": wrapped(lambda s, x: torch.einsum("bhd,hdk->bhk", x, s.w), (2, 3), w=rows(2, 3, 4)),
    "batched product": wrapped(lambda s, x: torch.bmm(s.w, x), (3, 4), w=rows(1, 2, 3)),
    "rnn cell": stack(nn.RNNCell(4, 3), nn.Linear(3, 2), shape=(4,)),
}

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
    *("unshuffle", "conv2d same", "residual", "gates", "average pools", "max pool overlapping", "mlp", "batch norm 1d"),
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
    same(lc.load(module, input_shape=shape), module, shape, jacobian="rnn" not in name and name != "items set")


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


def decided() -> Any:
    return Wrapped(lambda s, x: s.part(x) if x.sum() > 0 else -s.part(x), part=nn.Linear(4, 2))


def broken() -> Any:
    module = nn.Sequential(nn.Linear(4, 2))
    nn.init.constant_(module[0].weight, float("nan"))  # type: ignore[arg-type]
    return module


def positions(x: Any) -> Any:
    return x[:, :2].sort(-1)[1].to(x.dtype) + x[:, :2]


REFUSED: dict[str, tuple[Any, tuple[int, ...], str]] = {
    "branch": (decided, (4,), r"test_zoo\.py:\d+.*looks at values.*load the part of the module that does not decide"),
    "script": (lambda: torch.jit.script(nn.Linear(4, 2)), (4,), "pass the nn.Module that it was made from"),
    "embedding": (lambda: nn.Sequential(nn.Embedding(5, 4)), (3,), "takes whole numbers"),
    "batch": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)),
        (4,),
        "track_running_stats=True",
    ),
    "batch 2d": (lambda: nn.BatchNorm2d(4, track_running_stats=False), (4, 3, 3), "normalises by the batch"),
    "nan": (broken, (4,), r"0\.weight: it holds 8 NaN"),
    "hardshrink": (nn.Hardshrink(), (4,), "jumps at its limits"),
    "threshold": (nn.Threshold(0.2, 0.0), (4,), "jumps from 0.0 to 0.2"),
    "softplus": (nn.Softplus(threshold=1.0), (4,), "at its threshold of 1.0 it jumps by 0.37; give a threshold of 20"),
    "silent choice": (lambda x: torch.where(x > 0, x, torch.where(x < -1, -x, 0 * x)), (4,), "4 operations have no"),
    "elu": (nn.ELU(-1.0), (4,), "1e-6 <= alpha"),
    "ceil": (nn.AvgPool1d(2, ceil_mode=True), (1, 4), "ceil_mode together with count_include_pad"),
    "choice": (lambda x: torch.where(x > 0, x, 0.1 * x), (4,), "2 operations have no exact translation"),
    "comparison": (lambda x: x * (x > 0), (4,), "gt of shape .*it jumps where its operand"),
    "four sorted": (lambda x: x.sort(-1)[0], (4,), "only the sorting of pairs"),
    "positions": (positions, (4,), "positions of sorted values"),
    "only positions": (lambda x: x[:, :2].sort(-1).indices, (4,), "positions of sorted values|rounds|float"),
    "mask of values": (lambda x: x[x > 0], (4,), "which elements it takes depends on their values"),
    "bicubic": (lambda x: F.interpolate(x[None, None], scale_factor=2.0, mode="bicubic"), (4,), "interpolations only"),
    "grid": (
        lambda x: F.grid_sample(x, torch.zeros(1, 2, 2, 2).to(x)),
        (1, 3, 4),
        "grid_sampler_2d .*unknown operation; load",
    ),
    "another norm": (lambda x: x.norm(p=3, dim=1), (4,), "of norms only that of order 2"),
    "an odd power": (lambda x: x**7, (4,), "of powers only 1, 2, 3.* and even ones"),
    "bilinear": (lambda x: F.interpolate(x, (6, 8), mode="bilinear"), (1, 3, 4), "only nearest is read; a transposed"),
    "several ends": (lambda x: (x, x), (4,), "returns a tuple"),
    "an axis of a number": (lambda x: x.sum().mean(0).reshape(1), (4,), "mean of shape .*: it is called in an"),
    "an axis of a number, max": (lambda x: x.sum().amax(0).reshape(1), (4,), "amax of shape .*: it is called in an"),
}
"""Functions, modules, or functions that make one; shape of the input; what the message says."""


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_the_reason_and_the_next_step_are_said(name: str) -> None:
    torch.manual_seed(0)
    model, shape, expected = REFUSED[name]
    if not isinstance(model, nn.Module):
        try:
            model = model()
        except TypeError:  # a function of a tensor
            model = fn(model)
    with pytest.raises(lc.UnreadableModel, match=expected):
        lc.load(model.eval(), input_shape=shape)


def test_the_zoo_is_large() -> None:
    assert len(READ) + sum(map(len, FUNCTIONS.values())) + len(REFUSED) >= 100
