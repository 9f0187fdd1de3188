"""Methods of the literature, each held against a case where its answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lipcert as lc
from lipcert.errors import InvalidInput
from lipcert.published.eclipse import EclipseGen, EclipseGenLocal
from lipcert.published.lipsdp import LipDiff
from lipcert.published.norms import JacobianBox
from networks import random_network

NETWORK = random_network(2, (3, 6, 5, 2), "tanh", gain=1.5)


def test_jacobian_box_is_exact_where_every_slope_is_known() -> None:
    network = lc.Network.from_weights([[[1.0, 2.0], [0.0, 1.0]], [[1.0, -1.0]]], activation="relu")
    for center, row in (([3.0, 3.0], [1.0, 1.0]), ([-9.0, 3.0], [0.0, -1.0])):
        found = JacobianBox().value(network, lc.Ball(center, 0.1))
        assert found == pytest.approx(float(np.linalg.norm(row)), rel=1e-9)


def test_lipdiff_begins_with_the_product_of_norms_and_never_exceeds_it() -> None:
    product = math.prod(float(np.linalg.norm(np.asarray(layer.weight), 2)) for layer in NETWORK.layers)
    start = LipDiff(steps=0).value(NETWORK, lc.Everywhere())
    later = LipDiff(steps=60).value(NETWORK, lc.Everywhere())
    assert start == pytest.approx(product, rel=1e-6)
    assert lc.certify(NETWORK, method=lc.Joint()).bound * 0.999 <= later < 0.999 * start
    with pytest.raises(InvalidInput, match="steps"):
        LipDiff(steps=-1)


@pytest.mark.parametrize("variant", ["CF", "Fast"])
def test_local_slopes_never_loosen_eclipse(variant: str) -> None:
    ball = lc.Ball(np.zeros(3), 0.3)
    local = EclipseGenLocal(variant=variant).value(NETWORK, ball)
    everywhere = EclipseGen(variant=variant).value(NETWORK, ball)
    assert lc.lower_bound(NETWORK, ball).value <= local < everywhere
    with pytest.raises(InvalidInput):
        EclipseGenLocal(variant="Slow").value(NETWORK, ball)
