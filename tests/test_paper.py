"""The paper's networks and tables: what it printed, and what this engine reaches there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.model.arrays import dense
from lipcert.proof.hints import Lipschitz
from lipcert.reproduce.networks import RADIUS_STUDY, paper_center, paper_network
from lipcert.search.ellipsoid import Ellipsoid, activate
from lipcert.search.enclosing import Enclosing
from lipcert.search.folding import Image

PRINTED_RADIUS = math.sqrt(5)
"""The radius behind the paper's tables: δ·√d₀ with δ = 1 and 5 inputs."""


def agrees(value: float, printed: float) -> bool:
    """Whether a value rounds to the printed number: three decimals, or four digits of large numbers."""
    return abs(value - printed) <= 0.5001e-3 or f"{value:.3e}" == f"{printed:.3e}"


def trivial(network: lc.Network) -> float:
    return float(np.prod([np.linalg.norm(dense(layer.weight), 2) for layer in network.layers]))


def published_closed_form(network: lc.Network, radius: float) -> float:
    """The paper's CF from the engine's parts: Lipschitz intervals alone, T = tI on all neurons, slopes adjusted to
    touch zero, whole layers without a choice of slope merged into the next.
    """
    run = Enclosing(network, lc.Ball(paper_center(), radius), (Lipschitz(),))
    P, merged = Ellipsoid.ball(), np.eye(network.inputs)
    for index, layer in enumerate(network.layers[:-1]):
        assert layer.neurons is not None
        image = Image(P, dense(layer.weight) @ merged)
        interval = run.interval(index, image.axes())
        alpha, beta = layer.neurons.slope_range(*interval)
        if (alpha == beta).all():
            merged = alpha[:, None] * dense(image.weight)
            continue
        alpha, beta = np.where(alpha >= 0, 0.0, alpha), np.where(alpha >= 0, beta, 0.0)
        S = image.whole.matrix
        assert S is not None
        r = 0.5 * (beta - alpha)
        t = 2.0 * float(np.linalg.eigvalsh(r[:, None] * S * r)[-1])
        P, merged = activate(image.whole, alpha, beta, np.full(layer.size, t)), np.eye(layer.size)
    return float(P.through(dense(network.layers[-1].weight) @ merged).norm())


@pytest.mark.parametrize(("case", "activation"), [("case1_relu", "relu"), ("case2_elu", "elu")])
def test_trivial_bounds_of_both_tables(paper_tables: dict[str, Any], case: str, activation: str) -> None:
    wrong = [
        (width, layers, value)
        for width, row in paper_tables[case]["bounds"]["Trivial"].items()
        for layers, printed in row.items()
        if not agrees(value := trivial(paper_network(int(width), int(layers), activation)), printed)
    ]
    assert not wrong


@pytest.mark.parametrize("layers", [5, 30, 60])
def test_trivial_bounds_of_the_radius_study(paper_tables: dict[str, Any], layers: int) -> None:
    printed = paper_tables["radius_leakyrelu_128"]["layers"][str(layers)]
    network = paper_network(128, layers, "leaky_relu", RADIUS_STUDY)
    assert agrees(trivial(network), printed["trivial"])
    at_center = float(np.linalg.norm(network.jacobian(paper_center()), 2))
    assert at_center == pytest.approx(printed["autodiff"], rel=2.5e-3)


@pytest.mark.parametrize("width", [10, 20, 40, 60])
def test_closed_form_column_of_table_1a_to_every_digit(paper_tables: dict[str, Any], width: int) -> None:
    column = paper_tables["case1_relu"]["bounds"]["EClipsE-Gen-Local-CF"][str(width)]
    ours = {n: published_closed_form(paper_network(width, int(n), "relu"), PRINTED_RADIUS) for n in column}
    assert {n: round(value, 3) for n, value in ours.items()} == pytest.approx(column, abs=1.5e-9)


@pytest.mark.parametrize(
    ("activation", "width", "layers", "reached"),
    [("relu", 10, 25, 7.5e-5), ("relu", 40, 20, 2.7e-4), ("elu", 60, 60, 2.1e-12), ("elu", 100, 60, 2.7e-8)],
)
def test_scalar_on_the_papers_networks(activation: str, width: int, layers: int, reached: float) -> None:
    network = paper_network(width, layers, activation)
    bound = lc.certify(network, lc.Ball(paper_center(), PRINTED_RADIUS), lc.Scalar()).bound
    assert bound <= reached
    assert bound >= float(np.linalg.norm(network.jacobian(paper_center()), 2))


@pytest.mark.parametrize(("layers", "printed"), [(5, "0.2347"), (30, "0.001539"), (60, "6.324e-06")])
def test_closed_form_shrinks_to_the_jacobian_at_the_centre(layers: int, printed: str) -> None:
    network = paper_network(128, layers, "leaky_relu", RADIUS_STUDY)
    bound = lc.certify(network, lc.Ball(paper_center(), PRINTED_RADIUS / 3125), lc.ClosedForm()).bound
    assert f"{bound:.4g}" == printed
    assert bound == pytest.approx(float(np.linalg.norm(network.jacobian(paper_center()), 2)), rel=1e-6)


@pytest.mark.parametrize(("activation", "width", "layers"), [("relu", 10, 5), ("relu", 40, 10), ("elu", 60, 30)])
def test_below_every_method_of_the_paper(
    paper_tables: dict[str, Any], activation: str, width: int, layers: int
) -> None:
    table = paper_tables["case1_relu" if activation == "relu" else "case2_elu"]["bounds"]
    printed = [row[str(width)][str(layers)] for row in table.values()]
    best = min(value for value in printed if isinstance(value, (int, float)))
    network = paper_network(width, layers, activation)
    assert lc.certify(network, lc.Ball(paper_center(), PRINTED_RADIUS), lc.Diagonal()).bound < best
