"""Bounds in other norms than ℓ2, from a sweep."""

from __future__ import annotations

import numpy as np
import pytest

import lipcert as lc
from lipcert.model.norms import Norms
from lipcert.proof.domain import Domain
from lipcert.proof.guide import given
from lipcert.proof.norm_bounds import interval_bounds, norm_bounds
from lipcert.proof.sweep import Sweep, proving
from networks import random_network


@pytest.mark.parametrize("ends", [("l1", "linf"), ("l1", "l2"), ("l2", "linf")])
def test_a_bound_in_other_norms_lies_between_the_jacobian_and_its_box(ends: tuple[str, str]) -> None:
    network, ball = random_network(4, (3, 6, 2), "tanh"), lc.Ball(np.zeros(3), 0.05)
    norms = Norms(*({"l1": lc.L1, "l2": lc.L2, "linf": lc.LInf}[name]() for name in ends))
    hints = lc.certify(network, ball, lc.ClosedForm(), input_norm=norms.input, output_norm=norms.output).sweeps[-1]
    with proving():
        sweep = Sweep(network, Domain.of([ball]), given(hints, network, True), norms=norms).run()
        found, box = float(norm_bounds(sweep)[0]), float(interval_bounds(sweep)[0])
    jacobian = network.jacobian(ball.center)
    attained = {
        ("l1", "linf"): np.abs(jacobian).max(),
        ("l1", "l2"): np.linalg.norm(jacobian, axis=0).max(),
        ("l2", "linf"): np.linalg.norm(jacobian, axis=1).max(),
    }[ends]
    assert attained <= found <= box
    assert found <= 1.1 * attained  # slopes hardly change in so small a ball
