"""Neurons that switch together: why their mixed pattern counts."""

from __future__ import annotations

from fractions import Fraction

import lipcert as lc

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
