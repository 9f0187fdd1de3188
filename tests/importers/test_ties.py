"""Neurons that switch together: why their mixed pattern counts, and the network in which there is none."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import lipcert as lc
from networks import random_network

BALL = lc.Ball([0.0], 1.0)


def tied() -> lc.Network:
    """relu(v) - relu(v/2) with v = 3x + 1: slopes 0 and 1.5."""
    return lc.Network.from_weights([[[3.0], [1.5]], [[1.0, -1.0]]], [[1.0, 0.5], [0.0]])


def test_the_mixed_pattern_is_that_of_a_network_nearby() -> None:
    """A bias moved by 2⁻⁵³ of it, well within what a certificate allows, and between the kinks the slope is 3."""
    network = tied()
    bound = lc.certify(network, BALL, lc.Split(tolerance=1e-6, pieces=300)).bound
    assert bound >= 3.0
    first, last = network.layers
    biases = [Fraction(1), Fraction(1, 2) * (1 - Fraction(1, 2**53))]
    x = Fraction(-1, 3) + Fraction(1, 3 * 2**54)  # 3x + 1 > 0 > 1.5x + b
    signs = [Fraction(float(w)) * x + b for w, b in zip(first.weight[:, 0], biases, strict=True)]
    assert signs[0] > 0 > signs[1]
    assert float(last.weight[0, 0] * first.weight[0, 0]) == 3.0


def test_merged_the_constant_is_reached() -> None:
    merged = lc.merge_ties(tied())
    assert merged.sizes == (1, 1, 1)
    certificate = lc.certify(merged, BALL, lc.Split(tolerance=1e-6, pieces=300))
    assert certificate.bound == pytest.approx(1.5, rel=1e-6)
    assert lc.certify(merged, None, lc.Split(tolerance=1e-6, pieces=300)).bound == pytest.approx(1.5, rel=1e-6)


def test_the_function_is_the_same() -> None:
    """Three multiples in the first layer, two in the second, of different activations."""
    base = random_network(4, (3, 5, 6, 2), ["relu", "leaky_relu"])
    weights, biases = [np.array(layer.weight) for layer in base.layers], [np.array(layer.bias) for layer in base.layers]
    for place, factor in ((1, 2.0), (4, 3.0)):
        weights[0][place], biases[0][place] = factor * weights[0][0], factor * biases[0][0]
    weights[0][0], biases[0][0] = np.round(weights[0][0], 3), np.round(biases[0][0], 3)
    for place, factor in ((1, 2.0), (4, 0.25)):
        weights[0][place], biases[0][place] = factor * weights[0][0], factor * biases[0][0]
    weights[1][5], biases[1][5] = 8.0 * weights[1][2], 8.0 * biases[1][2]
    network = lc.Network.from_weights(weights, biases, ["relu", "leaky_relu"])
    merged = lc.merge_ties(network)
    assert merged.sizes == (3, 3, 5, 2)
    x = np.random.default_rng(0).normal(size=(200, 3))
    np.testing.assert_allclose(merged(x), network(x), rtol=1e-12, atol=1e-12)
    exact = sum(
        (Fraction(s) * Fraction(float(weights[1][0, k])) for k, s in ((0, 1.0), (1, 2.0), (4, 0.25))), Fraction(0)
    )
    assert float(merged.layers[1].weight[0, 0]) == float(exact)


def test_what_is_no_multiple_stays() -> None:
    for rows, bias, names in (
        ([[3.0], [1.5]], [1.0, 0.5 + 2.0**-53], "relu"),  # not exactly
        ([[3.0], [-1.5]], [1.0, -0.5], "relu"),  # negative
        ([[3.0], [1.5]], [1.0, 0.5], "tanh"),  # does not scale
        ([[3.0], [1.5]], [1.0, 0.5], [["relu", "identity"]]),
    ):
        network = lc.Network.from_weights([rows, [[1.0, -1.0]]], [bias, [0.0]], names)
        assert lc.merge_ties(network).sizes == (1, 2, 1)


def test_a_tie_of_rounded_rows_is_none() -> None:
    """Rows of the second layer that agree only after the first layer's columns were summed and rounded."""
    first = [[1.0], [2.0]]
    second = [[1.0, 2.0**-60], [1.0, 0.0]]
    network = lc.Network.from_weights([first, second, [[1.0, -1.0]]])
    assert lc.merge_ties(network).sizes == (1, 1, 2, 1)


def test_weights_at_the_end_of_floats_are_left_alone() -> None:
    for out in ([1.5e308, 1e308], [2.0**-1074, 2.0**-1074]):
        network = lc.Network.from_weights([[[1.0], [0.7]], [out]])
        scaled = lc.Network.from_weights([[[1.0], [1.5]], [out]])
        assert lc.merge_ties(network).sizes == (1, 2, 1) or out[0] < 1.0
        assert lc.merge_ties(scaled).sizes == (1, 2, 1)
