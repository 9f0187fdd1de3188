"""Compare methods on one network and region, each in its own process with a time limit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from lipcert.arguments.words import downward, upward
from lipcert.errors import Interrupted, InvalidInput, LipcertError
from lipcert.kernel.facts import Part
from lipcert.methods.joint import Anytime
from lipcert.methods.lower import LowerBound, lower_bound
from lipcert.methods.method import Method, Problem
from lipcert.model.network import Network
from lipcert.model.regions import Everywhere, Region
from lipcert.published import NotApplicable, Trivial
from lipcert.published.base import Published
from lipcert.questions.certify import METHODS, certify, explained, issued, method_of, question
from lipcert.questions.tables import Cell, Table
from lipcert.runtime.clock import Progress, timed
from lipcert.runtime.machine import Unguarded, suited_to, within
from lipcert.suggest.hints import BOTH

_SHARE = 0.7
"""Share of the limit that anytime methods plan with; their first bound may exceed it."""

Status = Literal["certified", "timeout", "does not apply", "failed"]


@dataclass(frozen=True)
class Row:
    """The result of one method.

    Attributes
    ----------
    name : name of the method, as on the command line.
    status : "certified", "timeout", "does not apply" or "failed".
    bound : the bound; None if there is none. A method of the literature has the number that it publishes.
    ratio : bound divided by the lower bound; None if there is no lower bound.
    seconds : time, proof included; for a timeout the limit.
    verified : whether the bound is proved with rounding accounted for.
    note : why there is no bound, or what had to be repaired for one.
    published : whether it is a method of the literature.
    """

    name: str
    status: Status
    bound: float | None = None
    ratio: float | None = None
    seconds: float | None = None
    verified: bool = False
    note: str = ""
    published: bool = False


@dataclass(frozen=True, eq=False)
class Comparison:
    """A row for each method, in the given order, and the lower bound.

    ``comparison["joint"]`` is the row of that name.
    """

    rows: tuple[Row, ...]
    lower: LowerBound | None

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        raise InvalidInput(f"there is no row {name!r}; rows are {', '.join(row.name for row in self.rows)}")

    def __repr__(self) -> str:
        known = [row for row in self.rows if row.bound is not None]
        best = min(known, key=lambda row: row.bound or 0.0, default=None)
        found = "none has a bound" if best is None else f"smallest bound {upward(best.bound or 0.0)} by {best.name}"
        below = "" if self.lower is None else f", lower bound {downward(self.lower.value)}"
        return f"Comparison({len(self.rows)} methods, {found}{below})"

    def table(self) -> Table:
        """A row per method, and the lower bound if there is one."""
        rows = [
            (
                Cell(row.name),
                Cell.bound(row.bound),
                Cell.bound(row.ratio),
                Cell.number(row.seconds, ".2f"),
                Cell("verified" if row.verified else row.status),
                Cell(row.note),
            )
            for row in self.rows
        ]
        if self.lower is not None:
            rows.append((Cell("lower bound"), Cell.below(self.lower.value), Cell("1", 1.0), Cell(), Cell(), Cell()))
        return Table(repr(self), ("method", "bound", "÷ lower bound", "seconds", "status", "note"), rows)

    def _repr_html_(self) -> str:
        return self.table().html()


def compare(
    network: Network,
    region: Region | None = None,
    methods: Iterable[str | Method] | Mapping[str, str | Method] | None = None,
    *,
    timeout: float = 60.0,
    lower: bool = True,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Run methods side by side: bound, ratio to a lower bound, seconds.

    Parameters
    ----------
    network, region
        As for :func:`certify`; global methods ignore the region.
    methods
        Names from ``METHODS``, or values such as ``Joint(seconds=5)``, also of your own classes; a dictionary gives
        names to values. Default: all of ``METHODS``.
    timeout
        Time limit in seconds of each method, without start-up. A method that takes longer is stopped.
    lower
        Also search a lower bound; only bounded regions have one.
    seconds
        Time limit for everything. Each method gets an equal share of the time that is left. Default: no limit.
    progress
        As for :func:`certify`.

    Notes
    -----
    Methods run one after another, each in a new process. A script that calls this needs the usual
    ``if __name__ == "__main__":``.
    """
    chosen = _named(list(METHODS) if methods is None else methods)
    if not (math.isfinite(timeout) and timeout > 0.0):
        raise InvalidInput(f"timeout must be a positive number of seconds, got {timeout}")
    region, _ = question(network, Everywhere() if region is None else region, "closed-form")
    rows: list[Row] = []
    starting = 0.0  # average time to start a process
    with timed(seconds, progress) as clock:
        below = lower_bound(network, region) if lower and region.bounded else None
        for number, (name, method) in enumerate(chosen, 1):
            clock.say(f"{number} of {len(chosen)}: {name}")
            limit = min(timeout, clock.left / (len(chosen) - number + 1) - starting)
            row, began = Row(name, "timeout", seconds=0.0, note="no time was left"), time.perf_counter()
            if limit > 0.0:
                try:
                    row = supervised(name, limit, run, method, network, region, limit)
                except KeyboardInterrupt as interrupt:
                    raise Interrupted(Comparison(tuple(rows), below) if rows else None) from interrupt
                spare = max(time.perf_counter() - began - (row.seconds or 0.0), 0.0)
                starting += (spare - starting) / number
            if below is not None and below.value > 0.0 and row.bound is not None:
                row = replace(row, ratio=row.bound / below.value)
            rows.append(replace(row, name=name, published=isinstance(method, Published)))
    return Comparison(tuple(rows), below)


def _named(methods: Iterable[str | Method] | Mapping[str, str | Method]) -> list[tuple[str, Method]]:
    """Names and methods. A value without a name is called as Python writes it."""
    if isinstance(methods, Mapping):
        pairs = [(str(name), method_of(one, "methods")) for name, one in methods.items()]
    else:
        several = [methods] if isinstance(methods, (str, Method)) else list(methods)
        pairs = [(one if isinstance(one, str) else repr(one), method_of(one, "methods")) for one in several]
    names = [name for name, _ in pairs]
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice or not pairs:
        raise InvalidInput(f"methods must be different ones, at least one; got {', '.join(twice) or 'none'}")
    return pairs


def supervised(name: str, timeout: float, function: Callable[..., Row], *arguments: Any) -> Row:
    """Run a function in a process of its own, stopped at the limit; a failure becomes a row too."""
    try:
        return within(timeout, function, *arguments)
    except TimeoutError as error:
        return Row(name, "timeout", seconds=timeout, note=str(error))
    except Unguarded:
        raise
    except (NotApplicable, InvalidInput) as error:
        return Row(name, "does not apply", note=str(error))
    except LipcertError as error:
        return Row(name, "failed", note=str(error))


def run(method: str | Method, network: Network, region: Region, timeout: float) -> Row:
    """Run one method in this process."""
    method, started, bound, remark = method_of(method), time.perf_counter(), 0.0, ""
    if isinstance(method, Anytime):  # it uses all the time it gets
        method = replace(method, seconds=_SHARE * timeout)  # type: ignore[type-var]
    if isinstance(method, Published) and not isinstance(method, Trivial):
        with explained(method), suited_to(max(network.sizes)):
            found = method.solve(Problem(network, region, BOTH))
            certificate = issued(network, region, Part((0, network.depth)), method, found, found)
        # multipliers may prove less than the method publishes; the published number counts
        bound, remark = found.bound, method.remark
    else:
        certificate = certify(network, region, method)
    note = "; ".join(filter(None, (remark, certificate.note)))
    took, bound = time.perf_counter() - started, max(bound, certificate.bound)
    return Row(repr(method), "certified", bound, None, took, certificate.verified, note, isinstance(method, Published))
