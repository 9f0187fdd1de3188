"""The paper's experiments into a folder: tables, figures, and a record of what was run."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from lipcert import __version__
from lipcert.errors import InvalidInput, UnreadableResults
from lipcert.files.whole import write_whole
from lipcert.questions.certify import METHODS
from lipcert.reproduce import documents, figures, mnist, tables
from lipcert.reproduce.cells import STUDIES
from lipcert.reproduce.classifiers import Images, classifiers, read_images, require_torch
from lipcert.reproduce.store import Store
from lipcert.runtime.clock import Progress, timed
from lipcert.show import plots

SECTIONS: Final = (*STUDIES, "mnist")
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
    """Run sections of :data:`SECTIONS` into a folder, new or from an earlier run; returns what run.json holds.

    Every number is stored as it is found, in results.jsonl; the same call goes on where another was stopped, and a call
    with other sections or methods adds to the folder. Of each section there are CSV files and figures;
    report.html has all of them. ``data`` is a folder with MNIST's four files; scikit-learn's digits stand in for them.
    """
    limit = (QUICK_TIMEOUT if quick else TIMEOUT) if timeout is None else timeout
    _check(sections, methods, limit)
    images = read_images(data) if "mnist" in sections else None
    (out / "figures").mkdir(parents=True, exist_ok=True)
    store, path = Store(out / "results.jsonl"), out / "run.json"
    record: dict[str, Any] = {
        "started": _now(),
        "finished": None,
        "quick": quick,
        "timeout": limit,
        "methods": None if methods is None else list(methods),
        "data": None if images is None else images.name,
        "versions": _versions(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "sections": _earlier(path),
    }
    with timed(None, progress):
        for section in sections:
            write_whole(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
            if images is not None and section == "mnist":
                record["sections"][section] = _study(out, images, quick, methods, store)
            else:
                plan = tables.Plan.of(section, quick=quick, methods=methods, timeout=limit)
                record["sections"][section] = _table(out, plan, store)
    record["finished"] = _now()
    record["sections"] = {name: record["sections"][name] for name in SECTIONS if name in record["sections"]}
    write_whole(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    documents.write_page(out, record)
    return record


def _table(out: Path, plan: tables.Plan, store: Store) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def so_far(results: tables.Results) -> None:
        found[:] = tables.rows(plan, results)
        documents.write_csv(out / f"{plan.study}.csv", found)

    tables.run(plan, store, so_far)
    drawn = figures.draw_table(out, plan.study, found)
    return _section(STUDIES[plan.study].title, documents.table_summary(found), [plan.study], drawn)


def _study(out: Path, images: Images, quick: bool, methods: Sequence[str] | None, store: Store) -> dict[str, Any]:
    models = classifiers(out, images, store)
    names = tuple(name for name in mnist.BOUNDS if methods is None or name in methods)
    study = mnist.run(images, models, mnist.Work(store, _QUICK_POINTS if quick else _POINTS, names))
    documents.write_study(out, study)
    summary, drawn = documents.study_summary(study), figures.draw_study(out, study)
    return _section("A plain and a regularised classifier", summary, ["mnist", "mnist_radii"], drawn)


def _section(title: str, summary: str, stems: list[str], drawn: list[figures.Drawn]) -> dict[str, Any]:
    return {"title": title, "summary": summary, "csv": [f"{stem}.csv" for stem in stems], "figures": drawn}


def _check(sections: Sequence[str], methods: Sequence[str] | None, timeout: float) -> None:
    if not sections or not set(sections) <= set(SECTIONS):
        raise InvalidInput(f"sections must be some of {', '.join(SECTIONS)}; got {', '.join(sections) or 'none'}")
    unknown = [name for name in methods or () if name not in METHODS]
    if unknown:
        raise InvalidInput(f"methods: {', '.join(map(repr, unknown))} unknown; known are {', '.join(METHODS)}")
    if not (math.isfinite(timeout) and timeout > 0.0):
        raise InvalidInput(f"timeout must be a positive number of seconds, got {timeout}")
    plots.figure()  # raises if matplotlib is missing
    if "mnist" in sections:
        require_torch()


def _earlier(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))["sections"])
    except (ValueError, KeyError, TypeError):
        raise UnreadableResults(f"{path} is damaged; remove it and run again, results are kept") from None


def _versions() -> dict[str, str]:
    found = {"lipcert": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
