"""The paper's experiments into a folder: tables, figures, and a record of what was run."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from lipcert import __version__
from lipcert.errors import InvalidInput, UnreadableResults
from lipcert.files.whole import write_whole
from lipcert.questions.names import METHODS
from lipcert.reproduce import documents, figures, mnist, tables
from lipcert.reproduce.cells import STUDIES
from lipcert.reproduce.classifiers import classifiers, read_images, require_torch
from lipcert.reproduce.store import Store
from lipcert.runtime.clock import Progress, timed
from lipcert.show import plots

SECTIONS: Final = (*STUDIES, "mnist")
RECORD: Final = "run.json"
KIND: Final = "lipcert reproduce"
TIMEOUT, QUICK_TIMEOUT = 600.0, 20.0
"""Seconds for each method in each cell: the paper's limit, and that of a quick run."""
_POINTS, _QUICK_POINTS = 20, 5
_PACKAGES: Final = ("numpy", "scipy", "torch", "matplotlib", "cvxpy", "clarabel", "scikit-learn")


def reproduce(
    sections: Sequence[str],
    out: Path,
    *,
    quick: bool = False,
    methods: Sequence[str] | None = None,
    timeout: float | None = None,
    data: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run experiments of the paper, into a folder.

    Every number is stored as it is found, in results.jsonl; the same call goes on where another was stopped, and a
    call with other sections or methods adds to the folder. Of each section there are CSV and Markdown files,
    and figures.

    Parameters
    ----------
    sections
        Some of "table1", "table2", "radius", "mnist".
    out
        The folder, new or from an earlier run.
    quick
        A part that takes minutes.
    methods
        Names from ``lipcert.questions.names.METHODS``; default those that the paper has in the section, and lipcert's.
    timeout
        Seconds for each method in each cell; default 600, and 20 for a quick run.
    data
        A folder with MNIST's four files; without one, scikit-learn's digits stand in.
    progress
        Told, in short lines, what is being done. Default: a line on the terminal.

    Returns
    -------
    dict
        What run.json holds.
    """
    limit = (QUICK_TIMEOUT if quick else TIMEOUT) if timeout is None else timeout
    _check(sections, methods, limit)
    images = read_images(data) if "mnist" in sections else None
    (out / "figures").mkdir(parents=True, exist_ok=True)
    store = Store(out / "results.jsonl")
    record = _record(out, quick, limit, methods, None if images is None else images.name)
    with timed(None, progress) as clock:
        for section in sections:
            write_whole(out / RECORD, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
            if section == "mnist":
                assert images is not None
                models = classifiers(out, images, clock.say)
                names = tuple(name for name in mnist.BOUNDS if methods is None or name in methods)
                work = mnist.Work(store, clock.say, _QUICK_POINTS if quick else _POINTS, names)
                record["sections"]["mnist"] = _study(out, mnist.run(images, models, work))
            else:
                plan = tables.Plan.of(section, quick=quick, methods=methods, timeout=limit)
                record["sections"][section] = _table(out, plan, store, clock.say)
    record["finished"] = _now()
    record["sections"] = {name: record["sections"][name] for name in SECTIONS if name in record["sections"]}
    write_whole(out / RECORD, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return record


def _table(out: Path, plan: tables.Plan, store: Store, report: Progress) -> dict[str, Any]:
    def so_far(results: tables.Results) -> None:
        documents.write_table(out, plan, list(tables.lines(plan, results)))

    found = list(tables.lines(plan, tables.run(plan, store, report, so_far)))
    drawn = figures.draw_table(out / "figures", plan, found)
    title = STUDIES[plan.study].title
    return _section(title, documents.table_summary(found), [f"{plan.study}.csv"], f"{plan.study}.md", drawn)


def _study(out: Path, study: mnist.Study) -> dict[str, Any]:
    documents.write_study(out, study)
    drawn = figures.draw_study(out / "figures", study)
    files = ["mnist.csv", "mnist_radii.csv", "mnist_points.csv"]
    return _section(documents.TITLE, documents.study_summary(study), files, "mnist.md", drawn)


def _section(title: str, summary: str, files: list[str], markdown: str, drawn: list[figures.Figure]) -> dict[str, Any]:
    shown = [{"file": f"figures/{one.stem}.svg", "caption": one.caption} for one in drawn]
    return {"title": title, "summary": summary, "csv": files, "markdown": markdown, "figures": shown}


def _check(sections: Sequence[str], methods: Sequence[str] | None, timeout: float) -> None:
    """What is wrong is said before the work, and what is missing."""
    strange = [name for name in sections if name not in SECTIONS]
    if strange or not sections:
        raise InvalidInput(f"sections must be some of {', '.join(SECTIONS)}; got {', '.join(strange) or 'none'}")
    unknown = [name for name in methods or () if name not in METHODS]
    if unknown:
        raise InvalidInput(f"methods: {', '.join(map(repr, unknown))} unknown; known are {', '.join(METHODS)}")
    if not (math.isfinite(timeout) and timeout > 0.0):
        raise InvalidInput(f"timeout must be a positive number of seconds, got {timeout}")
    plots.figure(1.0, 1.0)
    if "mnist" in sections:
        require_torch()


def _record(out: Path, quick: bool, timeout: float, methods: Sequence[str] | None, data: str | None) -> dict[str, Any]:
    """The record of this run, with the sections of earlier ones in the same folder."""
    earlier: dict[str, Any] = {}
    path = out / RECORD
    if path.exists():
        try:
            earlier = json.loads(path.read_text(encoding="utf-8"))["sections"]
        except (ValueError, KeyError, TypeError):
            raise UnreadableResults(f"{path} is damaged; remove it and run again, results are kept") from None
    return {
        "kind": KIND,
        "format": 1,
        "started": _now(),
        "finished": None,
        "quick": quick,
        "timeout": timeout,
        "methods": None if methods is None else list(methods),
        "data": data,
        "versions": _versions(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "sections": earlier,
    }


def _versions() -> dict[str, str]:
    found = {"lipcert": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
