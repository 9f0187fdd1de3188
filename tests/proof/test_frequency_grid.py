"""A grid of frequencies in place of all: never below what any image size has with the same multipliers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.proof import frequency_grid
from lipcert.proof.hints import Hints
from lipcert.proof.symbols import stack_bound
from lipcert.proof.torus import Torus, torus_of
from lipcert.search.fourier import FourierChain, closed_form

STACKS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one axis": {"axes": 1},
    "strides": {"stride": [2, 1, 2], "padding": 1},
    "even windows": {"window": 4, "padding": 1},
    "dilated": {"dilation": 2, "axes": 1},
    "groups": {"groups": 2, "channels": [2, 4, 4, 2]},
    "circular": {"circular": True, "axes": 1},
    "gelu": {"activation": "gelu"},
    "leaky": {"activation": "leaky_relu", "axes": 1},
    "one place": {"window": 1},
}


def stack(name: str, image: int) -> lc.Network:
    """Three convolutions of two channels or so; ``image`` is the size of the last one's result, about."""
    asked: dict[str, Any] = {"axes": 2, "window": 3, "channels": [1, 2, 2, 2], "activation": "relu"} | STACKS[name]
    axes, window, channels = asked.pop("axes"), asked.pop("window"), asked.pop("channels")
    rng, groups = np.random.default_rng(5), asked.get("groups", 1)
    kernels = [
        rng.standard_normal((outputs, inputs // groups, *[window] * axes)) for inputs, outputs in pairwise(channels)
    ]
    stretch = int(np.prod(asked.get("stride", [1])))
    return lc.conv_stack(kernels, [image * stretch] * axes, **asked)


def multipliers(network: lc.Network, torus: Torus) -> Hints:
    """Those of the closed form at the frequencies of a torus."""
    return FourierChain(network, torus, torus.slopes).greedy(closed_form).hints


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few frequencies, so that much depends on what is said of those between."""
    monkeypatch.setattr(frequency_grid, "_LOSS", 1.5)


@pytest.mark.parametrize("name", STACKS)
def test_no_size_is_above(name: str, coarse: None) -> None:
    network = stack(name, 8)
    torus = torus_of(network)
    assert torus is not None
    hints = multipliers(network, grid := frequency_grid.on_grid(torus))
    bound = stack_bound(grid, hints.multipliers, hints.exponents)
    for image in (5, 6, 7, 9, 12, 17, 31):
        torus = torus_of(stack(name, image))
        assert torus is not None
        assert stack_bound(torus, hints.multipliers, hints.exponents) <= bound


@pytest.mark.parametrize("mistake", ["none", "slopes", "gain", "degree"])
def test_mistakes_would_be_seen(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The symbol 2i·sin θ is largest in the middle between two of six points, where all that is added is needed."""
    monkeypatch.setattr(frequency_grid, "_LOSS", 0.488)
    network = lc.conv_stack([np.array([[[1.0, 0.0, -1.0]]])] * 2, (39,))
    torus = torus_of(network)
    assert torus is not None
    assert torus.sizes == ((40,),) * 3
    right = frequency_grid.on_grid(torus)
    assert right.sizes == ((6,),) * 3
    hints = multipliers(network, right)
    wrong = {
        "none": right,
        "slopes": replace(right, slopes=torus.slopes),
        "gain": replace(right, gain=1.0),
        "degree": replace(right, gain=1.0 / np.cos(np.pi / 12), slopes=torus.slopes),
    }[mistake]
    truth, found = (stack_bound(one, hints.multipliers, hints.exponents) for one in (torus, wrong))
    assert (found < truth) == (mistake != "none")
    assert found < 1.001 * truth


@pytest.mark.parametrize("way", [lc.ClosedForm(), lc.Joint()])
def test_a_grid_is_enough_for_a_very_large_image(way: lc.Method, monkeypatch: pytest.MonkeyPatch) -> None:
    network = stack("one axis", 700)
    plain = lc.certify(network, None, way).bound
    monkeypatch.setattr(frequency_grid, "_MUCH", 0.0)
    spared = lc.certify(network, None, way)
    assert plain < spared.bound <= 1.03 * plain
    assert lc.verify(network, spared) == pytest.approx(spared.bound)


@pytest.mark.parametrize("name", ["circular", "leaky", "one axis"])
def test_it_is_not_where_little_is_spared_or_much_is_lost(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few frequencies; slopes that would have to be widened; work that is not much."""
    monkeypatch.setattr(frequency_grid, "_MUCH", 0.0 if name != "one axis" else 1e11)
    network = stack("circular", 40) if name == "circular" else stack("one axis", 700)
    if name == "leaky":
        rng = np.random.default_rng(5)
        kernels = [rng.standard_normal((2, 2, 3)) for _ in range(3)]
        network = lc.conv_stack(kernels, (700,), "leaky_relu", circular=True)
    torus = torus_of(network)
    assert torus is not None
    assert frequency_grid.sparing(torus) is torus
