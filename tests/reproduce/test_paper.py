"""The paper's networks and tables: what it printed, and what this engine reaches there."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lipcert as lc
from lipcert.published import EclipseGenLocal, Trivial
from lipcert.reproduce.cells import RADIUS_STUDY, paper_center, paper_network
from lipcert.reproduce.printed import agrees, paper_table

PRINTED_RADIUS = math.sqrt(5)
"""The radius behind the paper's tables: δ·√d₀ with δ = 1 and 5 inputs."""


@pytest.mark.parametrize(("table", "activation"), [("table1", "relu"), ("table2", "elu")])
def test_trivial_bounds_of_both_tables(table: str, activation: str) -> None:
    printed = {key: cell for key, cell in paper_table(table).items() if key[0] == "trivial"}
    assert len(printed) == 20
    wrong = [
        (width, layers, value)
        for (_, width, layers, _), cell in printed.items()
        if not agrees(value := Trivial().value(paper_network(width, layers, activation)), cell.bound)
    ]
    assert not wrong


@pytest.mark.parametrize("layers", [5, 30, 60])
def test_trivial_bounds_of_the_radius_study(layers: int) -> None:
    printed = paper_table("radius")
    network = paper_network(128, layers, "leaky_relu", RADIUS_STUDY)
    assert agrees(Trivial().value(network), printed["trivial", 128, layers, None].bound)
    at_center = float(np.linalg.norm(network.jacobian(paper_center()), 2))
    assert at_center == pytest.approx(printed["autodiff", 128, layers, None].value, rel=2.5e-3)


@pytest.mark.parametrize("width", [10, 20, 40, 60])
def test_closed_form_column_of_table_1a_to_every_digit(width: int) -> None:
    column = {
        layers: cell.value
        for (method, cell_width, layers, _), cell in paper_table("table1").items()
        if (method, cell_width) == ("eclipse-gen-local-cf", width)
    }
    assert len(column) == 5
    method, ball = EclipseGenLocal("CF"), lc.Ball(paper_center(), PRINTED_RADIUS)
    ours = {n: method.value(paper_network(width, n, "relu"), ball) for n in column}
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
def test_below_every_method_of_the_paper(activation: str, width: int, layers: int) -> None:
    table = paper_table("table1" if activation == "relu" else "table2")
    printed = [cell.value for (_, *cell_of, _), cell in table.items() if cell_of == [width, layers]]
    assert len(printed) >= 10
    best = min(value for value in printed if value is not None)
    network = paper_network(width, layers, activation)
    assert lc.certify(network, lc.Ball(paper_center(), PRINTED_RADIUS), lc.Diagonal()).bound < best
