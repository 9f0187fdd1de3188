"""Where a search for a certified radius looks first."""

from __future__ import annotations

import numpy as np
import pytest

import lipcert as lc
from lipcert.questions import radius_certifier, radius_search


def test_the_first_guess_is_the_distance_to_the_boundary_of_a_linear_network() -> None:
    network = lc.Network.from_weights([[[1.0, 0.0], [0.0, 2.0]]], biases=[[0.5, 0.0]])
    point = np.array([3.0, 0.25])
    certifier = radius_certifier.RadiusCertifier(network, point, 0, 0, lc.ClosedForm(), radius_certifier.Rules())
    normal, margin = np.array([1.0, -2.0]), 3.5 - 0.5
    assert radius_search.first_guess(certifier) == pytest.approx(margin / np.linalg.norm(normal), rel=1e-9)
    assert lc.certified_radius(network, point).radius == pytest.approx(margin / np.linalg.norm(normal), rel=1e-2)
