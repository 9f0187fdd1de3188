"""Bounds for images of every size: never below what any one size has with the same multipliers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.errors import InvalidInput, ProofFailed
from lipcert.proof import every_size
from lipcert.proof.symbols import prove_symbols, stack_bound
from lipcert.proof.torus import torus_of

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


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few frequencies, so that much depends on what is said of those between."""
    monkeypatch.setattr(every_size, "_LOSS", 1.5)


@pytest.mark.parametrize("name", STACKS)
def test_no_size_is_above(name: str, coarse: None) -> None:
    network = stack(name, 8)
    hints = lc.certify(network, lc.EverySize(), lc.ClosedForm()).sweeps[0]
    bound = prove_symbols(network, hints, every_size=True)
    for image in (5, 6, 7, 9, 12, 17, 31):
        torus = torus_of(stack(name, image))
        assert torus is not None
        assert stack_bound(torus, hints.multipliers, hints.exponents) <= bound


@pytest.mark.parametrize("mistake", ["none", "slopes", "gain", "degree"])
def test_mistakes_would_be_seen(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The symbol 2i·sin θ is largest in the middle between two of six points, where all that is added is needed."""
    monkeypatch.setattr(every_size, "_LOSS", 0.488)
    network = lc.conv_stack([np.array([[[1.0, 0.0, -1.0]]])] * 2, (39,))
    torus = torus_of(network)
    assert torus is not None
    assert torus.sizes == ((40,),) * 3
    right = every_size.for_every_size(torus)
    assert right.sizes == ((6,),) * 3
    hints = lc.certify(network, lc.EverySize(), lc.Joint()).sweeps[0]
    wrong = {
        "none": right,
        "slopes": replace(right, slopes=torus.slopes),
        "gain": replace(right, gain=1.0),
        "degree": replace(right, gain=1.0 / np.cos(np.pi / 12), slopes=torus.slopes),
    }[mistake]
    truth, found = (stack_bound(one, hints.multipliers, hints.exponents) for one in (torus, wrong))
    assert (found < truth) == (mistake != "none")
    assert found < 1.001 * truth


def test_saved_and_verified(tmp_path: Path) -> None:
    network = stack("strides", 4)
    certificate = lc.certify(network, lc.EverySize(), lc.Joint())
    lc.save_answer(certificate, tmp_path / "answer.json")
    again = lc.load_answer(tmp_path / "answer.json")
    assert isinstance(again, lc.Certificate)
    assert isinstance(again.region, lc.EverySize)
    assert lc.verify(network, again) == pytest.approx(certificate.bound)
    with pytest.raises(ProofFailed):
        lc.verify(network, replace(again, bound=0.9 * again.bound))
    with pytest.raises(ProofFailed, match="one multiplier per channel"):
        lc.verify(network, replace(again, sweeps=lc.certify(network, method=lc.ClosedForm()).sweeps))


def test_it_is_larger_than_bounds_of_one_size_and_not_much() -> None:
    network = lc.conv_stack([np.random.default_rng(k).standard_normal((4, 4, 3, 3)) for k in range(3)], (20, 20))
    one, every = (lc.certify(network, region, lc.Joint()).bound for region in (lc.Everywhere(), lc.EverySize()))
    assert one <= every <= 1.03 * one


@pytest.mark.parametrize("way", [lc.ClosedForm(), lc.Joint()])
def test_one_very_large_image_is_looked_at_like_every_size(way: lc.Method, monkeypatch: pytest.MonkeyPatch) -> None:
    network = stack("one axis", 700)
    plain = lc.certify(network, None, way).bound
    monkeypatch.setattr(every_size, "_MUCH", 0.0)
    spared, every = (lc.certify(network, region, way) for region in (None, lc.EverySize()))
    assert plain <= spared.bound == every.bound <= 1.03 * plain
    assert lc.verify(network, spared) == pytest.approx(spared.bound)


@pytest.mark.parametrize("name", ["circular", "leaky", "one axis"])
def test_it_is_not_where_little_is_spared_or_much_is_lost(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few frequencies; slopes that would have to be widened; work that is not much."""
    monkeypatch.setattr(every_size, "_MUCH", 0.0 if name != "one axis" else 1e11)
    network = stack("circular", 40) if name == "circular" else stack("one axis", 700)
    if name == "leaky":
        rng = np.random.default_rng(5)
        kernels = [rng.standard_normal((2, 2, 3)) for _ in range(3)]
        network = lc.conv_stack(kernels, (700,), "leaky_relu", circular=True)
    torus = torus_of(network)
    assert torus is not None
    assert every_size.sparing(torus) is torus


def test_what_it_is_not_for() -> None:
    network, small, rng = stack("plain", 6), stack("one axis", 4), np.random.default_rng(0)
    with_head = lc.conv_stack([rng.standard_normal((2, 1, 3, 3))], (4, 4), head=[rng.standard_normal((2, 32))])
    with pytest.raises(InvalidInput, match="from the first layer to the last"):
        lc.certify(with_head, lc.EverySize())
    with pytest.raises(InvalidInput, match="from the first layer to the last"):
        lc.certify(lc.Network.from_weights([np.eye(2), np.eye(2)]), lc.EverySize())
    for method in (lc.Split(), lc.published.Trivial()):
        with pytest.raises(InvalidInput, match="ClosedForm, Scalar, Joint or Auto"):
            lc.certify(network, lc.EverySize(), method)
    for part in ({"layers": (1, 3)}, {"inputs": [0]}, {"input_norm": lc.LInf()}):
        with pytest.raises((InvalidInput, ProofFailed), match="EverySize"):
            lc.certify(network, lc.EverySize(), lc.ClosedForm(), **part)
    for ask in (lc.reach, lc.sensitivity):
        with pytest.raises((InvalidInput, ProofFailed)):
            ask(small, lc.EverySize())
    assert lc.lower_bound(small, lc.EverySize()).value <= lc.certify(small, lc.EverySize()).bound


def test_circular_padding_with_a_stride_is_refused_since_it_is_another_stack_where_the_stride_does_not_divide() -> None:
    """Of size 4 the stack has a bound of √5 or so; of size 3 it stretches by √6."""

    def strided(size: int) -> lc.Network:
        kernels = [np.ones((1, 1, 3)), np.ones((1, 1, 1))]
        return lc.conv_stack(kernels, (size,), "relu", stride=[2, 1], padding=[1, 0], circular=True)

    x, y = np.ones(3), 2.0 * np.ones(3)
    stretch = np.linalg.norm(strided(3)(x) - strided(3)(y)) / np.linalg.norm(x - y)
    assert stretch == pytest.approx(np.sqrt(6.0))
    one = lc.certify(strided(4), None, lc.ClosedForm())
    assert one.bound < stretch
    with pytest.raises(InvalidInput, match=r"EverySize.. is not for circular padding together with a stride"):
        lc.certify(strided(4), lc.EverySize())
    plain = lc.conv_stack([np.ones((1, 1, 3)), np.ones((1, 1, 1))], (4,), "relu", padding=[1, 0], circular=True)
    forged = replace(lc.certify(plain, lc.EverySize()), network=strided(4).digest)
    with pytest.raises(ProofFailed, match="circular padding together with a stride"):
        lc.verify(strided(4), forged)
