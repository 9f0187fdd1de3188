"""Figures: what they show is what the tables say."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.questions.certify import METHODS, PUBLISHED
from lipcert.questions.compare import Comparison, Row
from lipcert.show import plots
from networks import random_network

pytest.importorskip("matplotlib", reason="matplotlib is an extra")


def row(point: int, radius: float, certified: float, broken: float | None = None) -> Any:
    found = {"point": point, "radius": radius, "certified": certified, "plain": certified, "broken": broken}
    return SimpleNamespace(method="M", correct=True, **found)


def test_survival_curves_fall_where_that_is_known_and_end_where_nothing_is() -> None:
    rows = [row(k, 0.5, 0.5) for k in range(10)] + [row(10, 0.5, 0.2, 0.3)]
    for line in plots.certified_share(rows, attacked=True).get_lines():
        radii, shares = (np.asarray(part) for part in line.get_data())
        assert (radii[-1], shares[-1]) == (0.5, pytest.approx(10 / 11))
    radii, shares = plots.certified_share([row(0, 0.5, 0.1), row(1, 0.5, 0.2)]).get_lines()[0].get_data()
    assert (list(radii), list(shares)) == ([0.0, 0.1, 0.2, 0.2, 0.5], [1.0, 1.0, 0.5, 0.0, 0.0])
    searched = plots.certified_share([row(0, 0.0, 0.1, 0.4), row(1, 0.0, 0.2)], attacked=True)
    assert searched.get_lines()[0].get_data()[1][-1] == 0.0
    assert max(searched.get_lines()[-1].get_data()[0]) == 0.4


def test_every_method_has_a_name_and_a_look_of_its_own() -> None:
    rows = [Row(name, "certified", 2.0 + k, None, 1.0, published=name in PUBLISHED) for k, name in enumerate(METHODS)]
    lower = lc.lower_bound(random_network(0, (2, 3, 2)), lc.Ball([0.0, 0.0], 1.0))
    ax = plots.comparison(Comparison((*rows, Row("Mine()", "certified", 1.0, None, 1.0)), lower))
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == [*list(METHODS)[::-1], "Mine()", "lower bound"]
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert lines["joint"].get_markerfacecolor() != "none"
    assert lines["eclipse-fast"].get_markerfacecolor() == "none"
    assert len({(line.get_marker(), line.get_color(), line.get_markerfacecolor()) for line in lines.values()}) == len(
        labels
    )
    assert plots.comparison(Comparison((), None)).get_legend() is None


def test_heat_maps_of_many_inputs_say_how_many(tmp_path: Path) -> None:
    found = lc.sensitivity(random_network(0, (50, 4, 12)), lc.Ball(np.zeros(50), 0.1), "closed-form")
    ax = plots.sensitivity_map(found)
    assert ax.get_xlabel() == "input, 50 in all, one in 2 is named"
    assert ax.get_ylabel() == "output"
    assert len(ax.get_xticks()) == 25
    small = lc.sensitivity(random_network(0, (12, 4, 3)), lc.Ball(np.zeros(12), 0.1), "closed-form")
    few = plots.sensitivity_map(small)
    assert len(few.texts) == 36
