"""The loop: kinds take turns until the time is up."""

from __future__ import annotations

import time
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from attack.answers import campaigns, radius, reach
from attack.bounds import lower, norms, parameters, parts, scales, sensitivity, ties
from attack.cancel import cancel
from attack.couplings import couplings
from attack.edges import edges
from attack.evaluations import evaluations
from attack.importers import onnx, torch
from attack.log import Log
from attack.mutants import digest, files, mutants
from attack.rules import rules
from attack.trees import trees

Kind = Callable[[np.random.Generator, Log], None]

_ALL: tuple[Kind, ...] = (
    *(cancel, scales, parameters, ties, trees, edges, mutants, norms, rules, files, lower, reach, radius, campaigns),
    *(parts, sensitivity, evaluations, digest, torch, onnx, couplings),
)
KINDS: Final[Mapping[str, Kind]] = {kind.__name__: kind for kind in _ALL}
"""A kind takes a random generator, makes one case, and tells the log what it asked."""

SHARES: Final[Mapping[str, float]] = {"cancel": 3.0, "parameters": 1.5, "trees": 1.5, "digest": 0.1, "onnx": 0.5}
"""Of the time, where it is not one."""


def run(
    kinds: Sequence[str],
    seed: int,
    seconds: float,
    case: int | None = None,
    cases: int | None = None,
) -> list[Log]:
    """Attack until the time is up; print violations as they come, at most ten of a kind.

    The kind that has had the least of its share of the time is next. A case depends on the seed,
    its kind and its number only. ``cases`` ends every kind after so many.
    """
    logs = {name: Log(name, seed) for name in kinds}
    end = time.perf_counter() + seconds
    open_ = list(logs.values())
    while open_ and time.perf_counter() < end:
        log = min(open_, key=lambda one: one.seconds / SHARES.get(one.kind, 1.0))
        log.case = log.cases if case is None else case
        started, before = time.perf_counter(), len(log.violations)
        rng = np.random.default_rng([seed, zlib.crc32(log.kind.encode()), log.case])
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            KINDS[log.kind](rng, log)
        log.seconds += time.perf_counter() - started
        log.cases += 1
        for found in log.violations[before:10]:
            print(found, flush=True)
        if case is not None or log.cases == cases:
            open_.remove(log)
    return list(logs.values())


def table(logs: Sequence[Log]) -> str:
    """Counts by kind."""
    columns = ("cases", "answers", "refusals", "checks", "violations")
    lines = [f"{'kind':<12}" + "".join(f"{name:>12}" for name in columns) + f"{'seconds':>10}"]
    for log in logs:
        lines.append(f"{log.kind:<12}" + "".join(f"{count:>12}" for count in log.counts) + f"{log.seconds:>10.1f}")
    totals = map(sum, zip(*(log.counts for log in logs)))
    lines.append(f"{'all':<12}" + "".join(f"{count:>12}" for count in totals))
    return "\n".join(lines)
