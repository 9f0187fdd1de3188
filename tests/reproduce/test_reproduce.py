"""The paper's tables again: what is printed, what is stored, what is run, what is written."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.published import EclipseGenLocal, Trivial
from lipcert.questions.compare import Row
from lipcert.reproduce import documents, tables
from lipcert.reproduce.cells import LOWER, RADIUS_STUDY, STUDIES, Cell, paper_center, paper_network
from lipcert.reproduce.printed import agrees, paper_table
from lipcert.reproduce.store import Store
from lipcert.reproduce.tables import Plan, Result, rows, run

PRINTED = {
    "paper.csv": "e86c6d75fce0bc4a8db9f0bd7caed0d220f220e2d22b4081b3d227a25addf369",
    "paper_mnist.csv": "2c9195811c1749eaa50c0d6a9fe84cdc73427d84e452e5af94f6d4ae463a6503",
}
"""SHA-256 of the embedded tables as they were when every entry was compared with the paper."""


@pytest.mark.parametrize("name", PRINTED)
def test_the_embedded_tables_are_those_that_were_compared(name: str) -> None:
    lines = (resources.files("lipcert.reproduce") / name).read_text(encoding="utf-8").splitlines()
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest() == PRINTED[name]


def test_a_store_survives_what_kills_a_process(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    store = Store(path)
    store.add({"cell": 1}, {"value": 1.0})
    store.add({"cell": 2, "method": "a"}, {"value": 2.0})
    store.add({"cell": 1}, {"value": 3.0})
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"key": {"cell": 4}, "fou')
    again = Store(path)
    assert path.read_bytes() == whole
    assert again.find({"cell": 1}) == {"value": 3.0}
    assert again.find({"method": "a", "cell": 2}) == {"value": 2.0}
    assert again.find({"cell": 4}) is None
    path.write_bytes(b"nonsense\n" + whole)
    with pytest.raises(lc.errors.UnreadableResults, match="line 1"):
        Store(path)
    with pytest.raises(ValueError, match="JSON"):
        again.add({"cell": 5}, {"value": float("nan")})


def test_a_real_cell(tmp_path: Path) -> None:
    plan = Plan.of("table1", quick=True, methods=["trivial", "eclipse-gen-local-cf", "scalar"], timeout=60.0)
    plan = replace(plan, cells=plan.cells[:1])
    assert plan.methods == ("trivial", "eclipse-gen-local-cf", "scalar", LOWER)
    seen: list[Any] = []
    found = {row["method"]: row for row in rows(plan, run(plan, Store(tmp_path / "s"), seen.append))}
    assert len(seen) == 4
    (cell,) = plan.cells
    assert (cell.width, cell.layers, cell.delta) == (10, 10, 1.0)
    agreements = {name: row["agrees"] for name, row in found.items()}
    assert agreements == {"trivial": "yes", "eclipse-gen-local-cf": "yes", "scalar": "", LOWER: ""}
    scalar = found["scalar"]
    assert scalar["ours"] == scalar["value"] == lc.certify(cell.network(), cell.ball(), lc.Scalar()).bound
    assert scalar["best_paper"] == "2.049"
    assert scalar["lower"] <= scalar["ours"]
    assert scalar["ratio"] == scalar["ours"] / 2.049


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def pretend(name: str, timeout: float, function: Any, cell: Cell, method: str, seconds: float) -> Row:
        asked.append((cell.width, cell.layers))
        needed = 50.0 if cell.width >= 20 and cell.layers >= 10 else 1.0
        if timeout < needed:
            return Row(name, "timeout", seconds=timeout, note="stopped")
        return Row(name, "certified", 1.0, None, needed, False)

    monkeypatch.setattr(tables, "supervised", pretend)
    store = Store(tmp_path / "s")

    def at(timeout: float) -> dict[tuple[int, int], str]:
        asked.clear()
        plan = replace(Plan.of("table1", quick=False, methods=None, timeout=timeout), methods=("geolip",))
        results = run(plan, store)
        return {(cell.width, cell.layers): result.status for (cell, _), result in results.items()}

    first = at(20.0)
    assert first[20, 10] == "timeout"
    assert first[20, 15] == first[60, 25] == "not started"
    assert first[10, 25] == first[60, 5] == "ok"
    assert sorted(asked) == [(10, 5), (10, 10), (10, 15), (10, 20), (10, 25), (20, 5), (20, 10), (40, 5), (60, 5)]
    second = at(60.0)
    assert set(second.values()) == {"ok"}
    assert set(asked) == {(width, layers) for width, layers in second if width >= 20 and layers >= 10}
    at(60.0)
    assert not asked
    third = at(40.0)  # what took 50 s is known, and is too long now
    assert not asked
    assert (third[20, 10], third[60, 25], third[10, 25]) == ("timeout", "not started", "ok")


def read_csv(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def reproduce(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lipcert", "reproduce", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_killed_run_goes_on_and_everything_is_written(tmp_path: Path) -> None:
    for extra in ("matplotlib", "torch", "sklearn"):
        pytest.importorskip(extra)
    store, arguments = tmp_path / "results.jsonl", ("all", "--quick", "--out", str(tmp_path))
    first = reproduce(*arguments)
    while first.poll() is None and (not store.exists() or store.read_text().count("\n") < 3):
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    kept = store.read_text()
    assert kept.count("\n") >= 3
    second = reproduce(*arguments)
    _, problems = second.communicate()
    assert second.returncode == 0, problems
    assert store.read_text().startswith(kept)
    record = json.loads((tmp_path / "run.json").read_text())
    assert list(record["sections"]) == ["table1", "table2", "radius", "mnist"]
    assert record["finished"] >= record["started"]
    for section in record["sections"].values():
        assert all((tmp_path / name).stat().st_size > 100 for name in section["csv"])
        assert section["figures"]
        assert all((tmp_path / figure["file"]).stat().st_size > 1000 for figure in section["figures"])
    table = read_csv(tmp_path / "table1.csv")
    assert len([row for row in table if row["agrees"]]) > 30
    assert {row["method"] for row in table if row["agrees"] == "no"} <= {"seqlip"}
    for row in table:
        assert float(row["radius"]) == pytest.approx(math.sqrt(5.0), rel=1e-5)  # that of the ball, √5·δ
        if row["ours"] and row["lower"]:
            assert float(row["lower"]) <= float(row["ours"])
            assert float(row["ratio"]) == float(row["ours"]) / float(row["best_paper"])


# the paper's networks and tables: what it printed, and what this engine reaches there


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


@pytest.mark.parametrize(("activation", "width", "layers"), [("relu", 10, 5), ("relu", 40, 10), ("elu", 60, 30)])
def test_below_every_method_of_the_paper(activation: str, width: int, layers: int) -> None:
    table = paper_table("table1" if activation == "relu" else "table2")
    printed = [cell.value for (_, *cell_of, _), cell in table.items() if cell_of == [width, layers]]
    assert len(printed) >= 10
    best = min(value for value in printed if value is not None)
    network = paper_network(width, layers, activation)
    assert lc.certify(network, lc.Ball(paper_center(), PRINTED_RADIUS), lc.Diagonal()).bound < best


# the tables of a study as files


def test_a_table_says_what_was_computed_and_what_took_too_long(tmp_path: Path) -> None:
    cell = next(one for one in STUDIES["table2"].cells if (one.width, one.layers) == (60, 30))
    plan = Plan("table2", (cell,), ("trivial", "closed-form", LOWER, "glipsdp"), 300.0)
    results = {
        (cell, "trivial"): Result("ok", 50682.053, 0.1),
        (cell, "closed-form"): Result("ok", 1.0e-6, 0.1),
        (cell, LOWER): Result("ok", 0.5e-6, 0.1),
        (cell, "glipsdp"): Result("timeout", None, 300.0),
    }
    found = rows(plan, results)
    assert "below the smallest printed figure in 1 of 1 cells" in documents.table_summary(found)
    assert "It is 2 times the lower bound" in documents.table_summary(found)
    documents.write_csv(tmp_path / "table2.csv", found)
    written = {row["method"]: row for row in read_csv(tmp_path / "table2.csv")}
    assert written["trivial"]["agrees"] == "yes"
    assert (written["glipsdp"]["status"], written["glipsdp"]["value"]) == ("timeout", "")
