"""Convolutions are recognised in what models were folded to, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import lipcert as lc
from lipcert.importers.convolutions import recognised
from lipcert.kernel.fourier import torus_of
from lipcert.model.convolution import Convolution

torch = pytest.importorskip("torch", reason="PyTorch is an extra")
from modules import Block  # noqa: E402 - needs PyTorch

nn = torch.nn

OPTIONS: dict[str, dict[str, Any]] = {
    "same": {"padding": 1},
    "valid": {},
    "stride": {"stride": 2, "padding": 1},
    "stride and a wide window": {"window": 4, "stride": 2, "padding": 1},
    "uneven stride": {"stride": (1, 3), "padding": (2, 0)},
    "dilation": {"dilation": 2, "padding": 2},
    "groups": {"groups": 2, "padding": 1},
    "depthwise": {"groups": 4, "padding": 1},
    "circular": {"padding": 1, "padding_mode": "circular"},
    "circular and dilated": {"padding": 2, "dilation": 2, "padding_mode": "circular"},
    "one tap": {"window": 1},
}


def conv(channels: int, outputs: int, window: int = 3, **options: Any) -> Any:
    return nn.Conv2d(channels, outputs, window, **options)


def read(*layers: Any, image: tuple[int, ...] = (4, 8, 9)) -> lc.Network:
    """The network, which computes what the module does."""
    torch.manual_seed(0)
    module = nn.Sequential(*layers).double().eval()
    module(torch.zeros(1, *image, dtype=torch.float64))  # lazy layers find their size
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.uniform_(-1.0, 1.0)
            layer.running_var.uniform_(0.5, 2.0)
            nn.init.uniform_(layer.weight, -1.0, 1.0)
    network = lc.load(module, input_shape=image)
    x = torch.randn(3, *image, dtype=torch.float64)
    expected = module(x).detach().numpy().reshape(3, -1)
    np.testing.assert_allclose(network(x.numpy().reshape(3, -1)), expected, rtol=1e-12, atol=1e-12)
    return network


def kernels(network: lc.Network) -> list[Convolution | None]:
    return [layer.convolution for layer in network.layers]


@pytest.mark.parametrize("name", OPTIONS)
def test_a_convolution_is_read_as_one(name: str) -> None:
    options = dict(OPTIONS[name])
    window = options.pop("window", 3)
    original = conv(4, 8, window, **options)
    found = kernels(read(original, nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)))[0]
    assert found is not None
    pair = {key: options.get(key, 1) for key in ("stride", "dilation")}
    for key, value in pair.items():
        assert getattr(found, key) == (value if isinstance(value, tuple) else (value, value)) or window == 1
    assert found.groups == options.get("groups", 1)
    assert found.circular == ("padding_mode" in options)
    np.testing.assert_array_equal(found.kernel, original.weight.detach().numpy())


def test_average_pools_and_batch_norms_join_the_kernel() -> None:
    layers = conv(4, 8, padding=1), nn.BatchNorm2d(8), nn.AvgPool2d(2), nn.ReLU(), conv(8, 16), nn.ReLU()
    network = read(*layers, image=(4, 12, 14))
    first, second, *_ = kernels(network)
    assert first is not None
    assert second is not None
    assert (first.window, first.stride, first.places) == ((4, 4), (2, 2), (6, 7))
    assert second.window == (3, 3)


def test_a_skip_is_more_channels_and_the_whole_network_has_a_torus() -> None:
    network = read(conv(4, 8, padding=1), nn.ReLU(), Block(8, 8), Block(8, 16, 2), nn.Flatten(), nn.LazyLinear(3))
    space = torus_of(network)
    assert space is not None
    assert [one.outputs for one in space.convolutions] == [8, 16, 8, 32, 16]
    for alpha, beta in space.slopes[1::2]:  # half of the channels carry the skip exactly
        np.testing.assert_array_equal(np.sort(alpha), np.repeat([0.0, 1.0], alpha.size // 2))
        assert (beta == 1.0).all()
    certificate = lc.certify(network, method=lc.ClosedForm())
    assert [T.size for T in certificate.sweeps[0].multipliers] == [8, 16, 8, 32, 16]
    points = np.random.default_rng(0).standard_normal((20, network.inputs))
    assert certificate.bound >= np.linalg.norm(network.jacobian(points), 2, axis=(-2, -1)).max()


def test_wide_layers_on_small_images_are_convolutions_too() -> None:
    network = read(conv(4, 64, padding=1), nn.ReLU(), conv(64, 32, padding=1), nn.ReLU(), image=(4, 4, 4))
    assert all(one is not None for one in kernels(network)[:2])
    assert isinstance(network.layers[0].weight, np.ndarray)


@pytest.mark.parametrize(
    "layer",
    [
        conv(4, 8, padding=1, padding_mode="reflect"),
        conv(4, 8, padding=1, padding_mode="replicate"),
        nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        nn.AvgPool2d(3, 2, ceil_mode=True, count_include_pad=False),
    ],
    ids=["reflect", "replicate", "uneven divisor", "windows cut off"],
)
def test_what_is_no_convolution_stays_a_matrix(layer: Any) -> None:
    network = read(nn.Conv2d(4, 4, 1), nn.ReLU(), layer, nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    assert kernels(network)[1] is None


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize("change", ["none", "one entry", "one bit", "one entry lost", "one entry more", "two rows"])
def test_one_number_out_of_place_is_seen(change: str, circular: bool) -> None:
    kernel = np.random.default_rng(1).standard_normal((3, 2, 3, 3))
    one = Convolution.of(kernel, (7, 6), circular=circular)
    matrix = one.sparse().tolil()
    row, column = 50, int(matrix.rows[50][5])
    if change == "one entry":
        matrix[row, column] *= 2.0
    elif change == "one bit":
        matrix[row, column] = np.nextafter(matrix[row, column], np.inf)
    elif change == "one entry lost":
        matrix[row, column] = 0.0
    elif change == "one entry more":
        matrix[row, (set(range(42)) - set(matrix.rows[row])).pop()] = 1.0
    elif change == "two rows":
        matrix[[50, 51]] = matrix[[51, 50]]
    found = recognised(sparse.csr_array(matrix), [(1, 3, 7, 6)], [(1, 2, 7, 6)])
    if change != "none":
        assert found is None
        return
    assert found is not None
    assert found.circular == circular
    np.testing.assert_array_equal(found.sparse().toarray(), one.sparse().toarray())


def test_shapes_that_are_no_images_are_left_alone() -> None:
    matrix = Convolution.of(np.ones((1, 1, 3)), (8,)).sparse()
    assert recognised(matrix, [(1, 8)], [(1, 8)]) is None
    assert recognised(matrix, [(1, 1, 8)], [(1, 1, 8)]) is not None
    assert recognised(matrix, [(2, 1, 4)], [(1, 1, 8)]) is None


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.MaxPool2d(3), nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2, 1)])
def test_pools_whose_winners_are_decided_are_affine(pool: Any) -> None:
    """A bound over a small ball is the norm of the Jacobian, although losers may change places among themselves."""
    network = read(conv(2, 3, padding=1), nn.ReLU(), pool, nn.Flatten(), nn.LazyLinear(3), image=(2, 6, 6))
    random, found = np.random.default_rng(2), []
    for _ in range(4):
        x = random.standard_normal(network.inputs)
        certificate = lc.certify(network, lc.Ball(x, 1e-3), lc.ClosedForm())
        found.append(certificate.bound / np.linalg.norm(network.jacobian(x), 2) - 1.0)
    assert min(found) >= 0.0
    assert min(found) < 1e-6


def test_the_digest_does_not_depend_on_how_a_layer_is_kept() -> None:
    network = read(conv(4, 8, padding=1), nn.ReLU(), conv(8, 2), nn.ReLU())
    plain = lc.Network(tuple(replace(layer, linear=layer.weight) for layer in network.layers))
    assert plain.digest == network.digest


def test_loading_says_what_it_does_and_makes_no_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Convolution) -> None:
        raise AssertionError("a matrix was made")

    lines: list[str] = []
    module = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)).eval()
    monkeypatch.setattr(Convolution, "matrix", refuse)
    network = lc.load(module, input_shape=(2, 12, 12), progress=lines.append)
    assert all(layer.convolution is not None for layer in network.layers)
    assert "reading the model: layer 1" in lines
    assert any(line.startswith("comparing with PyTorch: point 1 of") for line in lines)
