"""Laws between methods: more effort is never worse, and a part of a region never gets a larger bound than the whole."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import lipcert as lc
from lipcert.model.regions import Region
from lipcert.search.method import Method
from networks import named, random_network, spread

ROUNDING = 1.0 + 1e-9
NETWORKS = {
    "relu": random_network(0, (4, 12, 12, 3), "relu", gain=2.0),
    "tanh": random_network(1, (4, 12, 12, 2), "tanh", gain=2.0),
    "softplus": random_network(2, (3, 10, 10, 10, 2), "softplus", gain=1.5),
    "leaky": random_network(3, (5, 8, 8, 8, 1), "leaky_relu", gain=2.0),
    "wide": random_network(4, (30, 16, 10), "silu", gain=1.5),
}
JOINT = lc.Joint()
AUTO = lc.Auto(seconds=np.inf, pieces=40)
SPLIT = lc.Split(method=JOINT, seconds=np.inf, pieces=40)


def regions(network: lc.Network) -> dict[str, Region]:
    center = np.random.default_rng(0).normal(0.0, 0.5, network.inputs)
    return {
        "ball": lc.Ball(center, 0.7),
        "box": lc.Box(center - 0.5, center + 0.3),
        "clipped": lc.Ball(center, 0.7, clip=(center - 0.3, center + 0.5)),
        "everywhere": lc.Everywhere(),
    }


@pytest.mark.parametrize(("name", "kind"), spread(4, named(*NETWORKS), named(*regions(NETWORKS["relu"]))))
def test_more_effort_is_never_worse(name: str, kind: str) -> None:
    network = NETWORKS[name]
    region = regions(network)[kind]

    def bound(method: Method) -> float:
        return lc.certify(network, region, method).bound

    joint = bound(JOINT)
    assert joint <= min(bound(lc.Scalar()), bound(lc.ClosedForm())) * ROUNDING
    assert bound(AUTO) <= joint * ROUNDING
    if region.bounded:
        assert bound(SPLIT) <= joint * ROUNDING


@pytest.mark.parametrize(
    ("name", "method"),
    spread(4, named(*NETWORKS), {repr(one): one for one in (lc.ClosedForm(), lc.Scalar(), JOINT, AUTO)}),
)
def test_a_part_of_a_region_never_gets_more(name: str, method: Method) -> None:
    """Slack: methods choose for each region anew, and a better choice for the whole may be missed for the part.

    Formulas that choose layer by layer miss more of that: 4 % were seen.
    """
    slack = 1.05 if isinstance(method, lc.ClosedForm) else 1.01
    network = NETWORKS[name]
    center = np.random.default_rng(1).normal(0.0, 0.5, network.inputs)
    bounds = [lc.certify(network, lc.Ball(center, radius), method).bound for radius in (0.1, 0.3, 0.9, 2.7)]
    bounds.append(lc.certify(network, method=method).bound)
    assert all(part <= whole * slack for part, whole in itertools.pairwise(bounds)), bounds
    assert bounds[0] < bounds[-1]


def test_every_answer_says_who_found_it() -> None:
    network = NETWORKS["relu"]
    ball = regions(network)["ball"]
    assert lc.certify(network, ball, lc.ClosedForm()).found_by in ("", "ClosedForm")
    assert lc.certify(network, ball, lc.Scalar()).found_by == "Scalar"
    assert lc.certify(network, ball, JOINT).found_by == "Joint"
    assert lc.certify(network, ball, SPLIT).found_by == "Split"
    assert lc.certify(network, ball, lc.Auto(seconds=0.0)).found_by == "ClosedForm"
