"""Bounds of convolution stacks in Fourier space, against the dense engine and against Jacobians."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert import ProofFailed
from lipcert.importers import lowering
from lipcert.kernel import fourier
from lipcert.kernel.arithmetic import largest_eigenvalue_above
from lipcert.kernel.fourier import Torus, by_channel, prove_symbols, torus_of
from lipcert.kernel.neuron_bounds import all_slopes
from lipcert.methods import fourier as search
from lipcert.methods.fourier import FourierChain, FourierSearch, closed_form
from lipcert.model.arrays import Array
from lipcert.model.convolution import Convolution
from lipcert.model.network import Network
from lipcert.suggest.hints import Hints
from networks import named, proved_bound
from networks import spread as combinations

STACKS: dict[str, dict[str, Any]] = {
    "same": {"shapes": [(3, 2, 3, 3), (2, 3, 3, 3), (2, 2, 3, 3)]},
    "valid": {"shapes": [(3, 2, 3, 3), (2, 3, 2, 2)], "padding": 0, "image": (6, 5)},
    "uneven": {"shapes": [(3, 1, 2, 4), (2, 3, 4, 1)], "padding": ((0, 1), (2, 1)), "image": (5, 6)},
    "wide padding": {"shapes": [(2, 1, 3, 3), (2, 2, 3, 3)], "padding": 3, "image": (3, 4)},
    "stride": {
        "shapes": [(3, 1, 3, 3), (3, 3, 3, 3), (2, 3, 3, 3)],
        "stride": [1, 2, 1],
        "padding": 1,
        "image": (7, 6),
    },
    "strides": {"shapes": [(2, 1, 4, 4), (3, 2, 3, 3)], "stride": [2, 3], "padding": 1, "image": (9, 8)},
    "stride at the end": {"shapes": [(2, 2, 3, 3), (2, 2, 2, 2)], "stride": [1, 2], "padding": 0, "image": (6, 6)},
    "dilation": {"shapes": [(2, 2, 3, 3), (2, 2, 3, 2)], "dilation": [2, (1, 3)], "image": (6, 7)},
    "groups": {"shapes": [(4, 1, 3, 3), (4, 2, 3, 3), (2, 4, 1, 1)], "groups": [2, 2, 1]},
    "one axis": {"shapes": [(3, 1, 5), (2, 3, 3)], "image": (11,), "stride": [2, 1], "padding": 2},
    "three axes": {"shapes": [(2, 1, 2, 2, 2), (1, 2, 3, 3, 3)], "image": (3, 3, 2)},
}
ROUND: dict[str, dict[str, Any]] = {
    "circular": {"shapes": [(3, 2, 3, 3), (2, 3, 3, 3), (2, 2, 3, 3)], "image": (5, 4)},
    "circular strides": {"shapes": [(3, 1, 3, 3), (2, 3, 2, 4)], "image": (8, 10), "stride": [2, 1]},
    "circular stride 3": {"shapes": [(2, 1, 3, 3), (2, 2, 3, 3)], "image": (9, 6), "stride": [1, 3]},
    "circular groups": {"shapes": [(4, 1, 3, 3), (2, 2, 3, 3)], "image": (4, 6), "groups": 2, "dilation": [1, 1]},
}
LEAKY = lc.activation("leaky_relu", negative_slope=0.6)
ACTIVATIONS = ["relu", LEAKY, "silu"]


def stack(options: dict[str, Any], activation: Any = "relu", head: bool = False, **more: Any) -> Network:
    """A stack with random kernels; with a head, dense layers follow."""
    options = {"image": (5, 4)} | options | more
    shapes, random = options.pop("shapes"), np.random.default_rng(len(options))
    kernels = [random.standard_normal(shape) / np.sqrt(np.prod(shape[1:])) for shape in shapes]
    plain = lc.conv_stack(kernels, activation=activation, **options)
    if not head:
        return plain
    dense = [random.standard_normal(size) / 4.0 for size in ((5, plain.outputs), (4, 5), (3, 4))]
    return lc.conv_stack(kernels, activation=activation, head=dense, **options)


def block(head: bool, size: int = 6, channels: int = 3) -> lc.Network:
    """A convolution with stride and a residual block, whose skip is carried by identity channels."""
    rng = np.random.default_rng(4)
    first, second = rng.standard_normal((2, channels, channels, 3, 3)) / 3.0
    centre = np.zeros((channels, channels, 3, 3))
    centre[np.arange(channels), np.arange(channels), 1, 1] = 1.0
    start = rng.standard_normal((channels, 2, 3, 3)) / 3.0
    kernels = [start, np.concatenate([first, centre]), np.concatenate([second, centre], axis=1)]
    places = channels * size * size
    rows = ["relu", ["relu"] * places + ["identity"] * places, *(["relu", "tanh"] if head else [])]
    dense = [rng.standard_normal(shape) / 3.0 for shape in ((4, places), (3, 4))] if head else []
    return lc.conv_stack(kernels, (2 * size, 2 * size), rows, stride=[2, 1, 1], padding=1, head=dense)


def torus(network: Network) -> Torus:
    found = torus_of(network)
    assert found is not None
    return found


def chain_of(network: Network) -> FourierChain:
    space = torus(network)
    rest = network.layers[len(space.slopes) : -1]
    dense = [all_slopes(layer.neurons) for layer in rest if layer.neurons]
    return FourierChain(network, space, [*space.slopes, *dense])


def hints_of(network: Network, choose: Any = closed_form) -> Hints:
    """Multipliers by the closed form, a little different for each channel."""
    chain = chain_of(network)
    x = chain.greedy(choose).x
    return chain.at(x + np.random.default_rng(0).uniform(0.0, 0.3, x.size)).hints


def spread(network: Network, hints: Hints) -> Hints:
    """The same multipliers neuron by neuron."""
    found = [np.repeat(T, layer.size // T.size) for T, layer in zip(hints.multipliers, network.layers, strict=False)]
    return replace(hints, multipliers=tuple(found))


def largest_jacobian(network: Network) -> float:
    """The largest norm of a Jacobian at random points, and with random slopes that the activations have."""
    random = np.random.default_rng(3)
    points = random.standard_normal((60, network.inputs)) * random.choice([0.1, 1.0, 10.0], (60, 1))
    norms = [np.linalg.norm(network.jacobian(points), 2, axis=(-2, -1)).max()]
    for share in (0.5, 0.9, 1.0):
        slopes = []
        for layer in network.layers[:-1]:
            assert layer.neurons is not None
            low, high = all_slopes(layer.neurons)
            slopes.append(np.where(random.random((40, layer.size)) < share, high, low))
        norms.append(np.linalg.norm(network.jacobian_of(slopes, (40,)), 2, axis=(-2, -1)).max())
    return float(max(norms))


@pytest.mark.parametrize(
    ("name", "activation", "head"),
    combinations(
        3,
        named(*STACKS, *ROUND),
        dict(zip(("relu", "leaky", "silu"), ACTIVATIONS, strict=True)),
        {"plain": False, "head": True},
    ),
)
def test_no_bound_is_below_the_dense_one_or_a_jacobian(name: str, activation: Any, head: bool) -> None:
    network = stack(STACKS.get(name) or ROUND[name], activation, head, circular=name in ROUND)
    hints = hints_of(network)
    found = prove_symbols(network, hints)
    assert found >= largest_jacobian(network)
    if activation is LEAKY:  # its range was widened, and the same multipliers mean another thing for another range
        if head or max(alpha.max() for alpha, _ in torus(network).slopes) > 0.0:
            return
        network = stack(STACKS[name], "relu", head, circular=False)
    assert found >= proved_bound(network, lc.Everywhere(), [spread(network, hints)]) * (1.0 - 1e-12)


def _mutant(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    if what == "small torus":
        monkeypatch.setattr(fourier, "_sizes", lambda found: [*(one.image for one in found), found[-1].places])
    elif what == "no widening":
        monkeypatch.setattr(fourier, "_vanishing", lambda one, before, after: np.ones(one.outputs, dtype=bool))
    elif what == "aliases":
        plain = fourier.Torus.symbols
        monkeypatch.setattr(
            fourier.Torus, "symbols", lambda self, k, w: (plain(self, k, w)[0] * 0.9, plain(self, k, w)[1])
        )
    else:
        plain_step = fourier._step
        monkeypatch.setattr(fourier, "_step", lambda S, slopes, T: plain_step(S, (slopes[0] + 0.3, slopes[1] - 0.3), T))


@pytest.mark.parametrize("what", ["small torus", "no widening", "aliases", "narrow slopes"])
def test_planted_errors_are_seen(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for planted in (False, True):
        with monkeypatch.context() as patch:
            if planted:
                _mutant(patch, what)
            tight = [(network, hints_of(network)) for network in _tight()]
            found.append(sum(prove_symbols(*pair) < largest_jacobian(pair[0]) for pair in tight))
    assert found[0] == 0 < found[1]


def _tight() -> list[Network]:
    """Stacks whose bounds are near the truth: of few neurons, with identities, or with kernels that do not cancel."""
    positive = lc.conv_stack([np.ones((1, 1, 3)), np.ones((1, 1, 3))], (8,), circular=True)
    flipping = lc.conv_stack([[[[1.0, -1.0]]], [[[1.0, -1.0]]]], (1,), padding=((1, 0),))
    sums = lc.conv_stack([np.ones((1, 1, 8)), [[[1.0, -1.0]]]], (8,), "identity", padding=[0, 1])
    return [positive, flipping, sums]


@pytest.mark.parametrize("head", [False, True])
def test_whatever_the_multipliers_are_the_bound_holds(head: bool) -> None:
    network = stack(STACKS["stride"], "relu", head)
    hints, random = hints_of(network), np.random.default_rng(5)
    truth, proved = largest_jacobian(network), 0
    for number, scale in enumerate((-1.0, 0.0, 1e-300, 1e-3, 0.5, 0.9, 1.1, 1e3, 1e300)):
        for exponent in (0, (-300, 300, 2**20)[number % 3]):
            garbage = tuple(T * scale * random.uniform(0.5, 2.0, T.size) for T in hints.multipliers)
            try:
                moved = tuple(e + exponent for e in hints.exponents)
                found = proved_bound(network, lc.Everywhere(), [Hints((), garbage, moved)])
            except ProofFailed:
                continue
            proved += np.isfinite(found)
            assert not found < truth
    assert proved


def test_a_frequency_that_is_no_number_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    network = stack(STACKS["same"])
    hints, calls = hints_of(network), [0]

    def garbled(matrix: Array, guess: Array | None) -> Array:
        calls[0] += 1
        return np.full(len(matrix), np.nan) if calls[0] == 2 else largest_eigenvalue_above(matrix, guess)

    monkeypatch.setattr(fourier, "_portions", lambda *_: [slice(0, 5), slice(5, 9), slice(9, None)])
    monkeypatch.setattr(fourier, "largest_eigenvalue_above", garbled)
    assert np.isnan(prove_symbols(network, hints))
    assert calls[0] == 3


def test_a_residual_block_carries_its_channels_exactly() -> None:
    """Identity channels with a kernel of one tap are zero outside of the image and keep slope one."""
    network = block(head=False)
    alpha, beta = torus(network).slopes[1]
    np.testing.assert_array_equal([alpha, beta], [[0, 0, 0, 1, 1, 1], [1] * 6])
    hints = hints_of(network)
    dense = proved_bound(network, lc.Everywhere(), [spread(network, hints)])
    assert max(largest_jacobian(network), dense) <= prove_symbols(network, hints)


@pytest.mark.parametrize("pool", [(2,), (3, 2, 1), (3, 3)])
def test_pools_and_skips_are_convolutions(pool: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound over frequencies of a loaded network is above Jacobians, and above the dense bound of its neurons."""
    torch, modules = pytest.importorskip("torch"), pytest.importorskip("modules")
    monkeypatch.setattr(lowering, "KERNELS_FROM", 1)
    torch.manual_seed(0)
    stem = torch.nn.Conv2d(1, 3, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(*pool)
    blocks = modules.Block(3, 3), modules.Block(3, 4)
    module = torch.nn.Sequential(*stem, *blocks, torch.nn.Flatten(), torch.nn.LazyLinear(2)).eval()
    module(torch.zeros(1, 1, 6, 6))
    network = lc.load(module, input_shape=(1, 6, 6))
    assert [layer.convolution is None for layer in network.layers] == [False] * (network.depth - 1) + [True]
    x = np.random.default_rng(0).standard_normal((20, 1, 6, 6))
    np.testing.assert_allclose(network(x.reshape(20, -1)), module.double()(torch.tensor(x)).detach(), rtol=1e-12)
    hints = hints_of(network)
    found = prove_symbols(network, hints)
    assert found >= largest_jacobian(network)
    assert found >= proved_bound(network, lc.Everywhere(), [spread(network, hints)]) * (1.0 - 1e-12)
    assert found < 20.0 * largest_jacobian(network)


def test_networks_that_have_no_torus() -> None:
    one = Convolution.of(np.ones((2, 1, 3, 3)), (4, 4))
    circular = Convolution.of(np.ones((2, 2, 3, 3)), (4, 4), circular=True)
    open_end = Convolution.of(np.ones((2, 2, 3, 3)), (4, 4), circular=True, padding=0)
    flat = np.ones((1, 32))
    assert torus_of(Network.from_weights([one.sparse(), flat])) is None
    assert torus_of(Network.from_weights([one])) is None
    assert torus_of(Network.from_weights([open_end, np.ones((1, 8))])) is None
    mixed = torus(Network.from_weights([one, circular, flat]))
    assert len(mixed.convolutions) == 1
    assert not mixed.ends


def test_certificates_store_one_multiplier_per_channel(tmp_path: Path) -> None:
    network = stack({"shapes": [(8, 2, 3, 3), (8, 8, 3, 3), (4, 8, 3, 3)], "image": (10, 10)})
    dense = Network.from_weights([layer.weight for layer in network.layers], activation="relu")
    certificate = lc.certify(network, method=lc.Joint())
    assert [T.shape for T in certificate.sweeps[0].multipliers] == [(8,), (8,)]
    assert certificate.verified
    certificate.save(tmp_path / "c.json")
    read = lc.Certificate.load(tmp_path / "c.json")
    assert lc.verify(network, read) <= read.bound
    tampered = replace(read, bound=0.999 * read.bound)
    with pytest.raises(ProofFailed, match="claims"):
        lc.verify(network, tampered)
    assert by_channel(network, read.sweeps[0])
    assert dense.digest == network.digest
    with pytest.raises(ProofFailed, match="neurons"):
        lc.verify(dense, read)  # the same function, but nobody says that it is a convolution
    assert (
        certificate.bound
        <= lc.certify(network, method=lc.Scalar()).bound
        <= lc.certify(network, method=lc.ClosedForm()).bound
    )


def test_stacks_of_too_much_work_get_the_product_of_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    network = stack({"shapes": [(8, 2, 3, 3), (8, 8, 3, 3), (4, 8, 3, 3)], "image": (10, 10)})
    assert FourierSearch.of(network, lc.ClosedForm()) is not None
    for name, limit in (("_LONGEST", 1.0), ("available_memory", lambda: 1000)):
        with monkeypatch.context() as patch:
            patch.setattr(search, name, limit)
            assert FourierSearch.of(network, lc.ClosedForm()) is None
