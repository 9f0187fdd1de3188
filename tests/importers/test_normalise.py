"""A normalisation in front of a model: the same function, each number rounded once."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import lipcert as lc
from lipcert.errors import InvalidInput
from lipcert.importers.normalise import normalised
from lipcert.model.arrays import dense
from networks import random_network

ONCE = Fraction(1, 2**53) * (1 + Fraction(1, 2**19))


@pytest.mark.parametrize("sparsely", [False, True])
def test_each_number_is_rounded_once(sparsely: bool) -> None:
    network = random_network(1, (6, 5, 2), "tanh")
    if sparsely:
        weights = [sparse.csr_array(layer.weight) for layer in network.layers]
        network = lc.Network.from_weights(weights, [layer.bias for layer in network.layers], "tanh")
    mean, std = [0.485, 0.456], [0.229, 0.225]  # two channels of three
    found = normalised(network, mean, std)
    assert found.depth == network.depth
    m, s = (np.repeat(part, 3) for part in (mean, std))
    first, layer = dense(network.layers[0].weight), found.layers[0]
    for row, (old, new) in enumerate(zip(first, dense(layer.weight), strict=True)):
        exact = [Fraction(w) / Fraction(d) for w, d in zip(old.tolist(), s.tolist(), strict=True)]
        assert all(abs(Fraction(w) - e) <= ONCE * abs(Fraction(w)) for w, e in zip(new.tolist(), exact, strict=True))
        shift = sum(e * Fraction(c) for e, c in zip(exact, m.tolist(), strict=True))
        bias = Fraction(float(network.layers[0].bias[row])) - shift
        assert abs(Fraction(float(layer.bias[row])) - bias) <= ONCE * abs(bias) * 2
    x = np.random.default_rng(0).random((10, 6))
    assert found(x) == pytest.approx(network((x - m) / s), rel=1e-12)


def test_numbers_that_cannot_be_rounded_once_are_a_layer_of_their_own() -> None:
    """The bias cancels to far below what three floats hold of its terms."""
    network = lc.Network.from_weights([[[1.0, 1.0]], [[1.0]]], [[-(1.0 / 3.0) * 2.0], None], "tanh")
    found = normalised(network, [1.0, 1.0], [3.0, 3.0])
    x = np.array([[1.5, 2.0], [1.0, 1.0]])
    assert found(x) == pytest.approx(network((x - 1.0) / 3.0), rel=1e-12)


def test_load_normalises(tmp_path: Path) -> None:
    network = random_network(1, (4, 5, 2), "relu")
    arrays = {f"W{k}": layer.weight for k, layer in enumerate(network.layers, 1)}
    np.savez(tmp_path / "model.npz", activation="relu", **arrays)  # type: ignore[arg-type]
    plain, found = lc.load(tmp_path / "model.npz"), lc.load(tmp_path / "model.npz", mean=0.5, std=[0.1, 0.2])
    x = np.array([0.1, 0.9, 0.4, 0.2])
    assert found(x) == pytest.approx(plain((x - 0.5) / [0.1, 0.1, 0.2, 0.2]), rel=1e-12)
    assert lc.load(tmp_path / "model.npz", mean=None, std=None).digest == plain.digest


@pytest.mark.parametrize(("mean", "std"), [(0.0, 0.0), ([1.0, 2.0, 3.0], 1.0), (0.0, -1.0), (np.nan, 1.0)])
def test_wrong_numbers_are_refused(mean: object, std: object) -> None:
    with pytest.raises(InvalidInput, match=r"mean|std"):
        normalised(random_network(1, (4, 5, 2), "relu"), mean, std)


@pytest.mark.parametrize("apart", [False, True])
def test_images_stay_images_and_have_as_many_means_as_channels(apart: bool) -> None:
    network = lc.conv_stack([np.ones((2, 3, 3, 3))], (4, 4))
    assert normalised(network, [0.1, 0.2, 0.3], 2.0, apart=apart).input_shape == (3, 4, 4)
    with pytest.raises(lc.InvalidInput, match=r"mean must be .* got 2 for 48 inputs of shape \(3, 4, 4\)"):
        normalised(network, [0.1, 0.2], apart=apart)
