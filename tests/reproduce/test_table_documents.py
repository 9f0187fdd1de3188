"""The tables of a study as files."""

from __future__ import annotations

import csv
from pathlib import Path

from lipcert.reproduce import documents, tables
from lipcert.reproduce.cells import LOWER, STUDIES
from lipcert.reproduce.tables import Plan, Result


def test_a_table_says_what_was_computed_and_what_took_too_long(tmp_path: Path) -> None:
    cell = next(one for one in STUDIES["table2"].cells if (one.width, one.layers) == (60, 30))
    plan = Plan("table2", (cell,), ("trivial", "closed-form", LOWER, "glipsdp"), 300.0)
    results = {
        (cell, "trivial"): Result("ok", 50682.053, 0.1),
        (cell, "closed-form"): Result("ok", 1.0e-6, 0.1),
        (cell, LOWER): Result("ok", 0.5e-6, 0.1),
        (cell, "glipsdp"): Result("timeout", None, 300.0),
    }
    found = list(tables.lines(plan, results))
    documents.write_table(tmp_path, plan, found)
    text = (tmp_path / "table2.md").read_text(encoding="utf-8")
    assert "longer than 300 s" in text
    assert "| 60 × 30 | trivial | 50682.053 | 50682.1 |" in text
    assert "| glipsdp | 1 | 0 | 0 |  | 1 |" in text  # printed once, not computed, over the limit
    assert "below the smallest printed figure in 1 of 1 cells" in documents.table_summary(found)
    assert "It is 2 times the lower bound" in documents.table_summary(found)
    with (tmp_path / "table2.csv").open(newline="", encoding="utf-8") as stream:
        rows = {row["method"]: row for row in csv.DictReader(stream)}
    assert rows["trivial"]["agrees"] == "yes"
    assert (rows["glipsdp"]["status"], rows["glipsdp"]["value"]) == ("timeout", "")
