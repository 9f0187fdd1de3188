"""``lipcert sweep``: the bound against the radius."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from lipcert.cli import options, parsing
from lipcert.cli.output import Later, aligned, method_record, network_record, norms_record, region_record, show
from lipcert.errors import InvalidInput
from lipcert.methods.joint import Joint
from lipcert.methods.method import Method
from lipcert.model.network import Network
from lipcert.model.regions import Ball
from lipcert.questions.answers import save_answer
from lipcert.questions.sweep import SweepRow
from lipcert.questions.sweep import sweep as bounds
from lipcert.show import plots
from lipcert.show.wording import describe_network, describe_region, downward, measured, upward

RADII = "Radii (as a list, or evenly on a logarithmic scale)"
_PANEL = {"rich_help_panel": RADII}


def sweep(
    model: options.ModelArgument,
    where: options.CenterOptions,
    norms: options.NormOptions,
    reading: options.ReadingOptions,
    radii: Annotated[str | None, typer.Option(metavar="R,R,…", help="Radii, in any order.", **_PANEL)] = None,
    start: Annotated[float | None, typer.Option("--from", metavar="NUMBER", help="Smallest radius.", **_PANEL)] = None,
    stop: Annotated[float | None, typer.Option("--to", metavar="NUMBER", help="Largest radius.", **_PANEL)] = None,
    count: Annotated[int | None, typer.Option(metavar="N", help="How many, both ends included.", **_PANEL)] = None,
    method: options.SweepMethodOption = None,
    seconds: options.SecondsOption = None,
    lower: options.LowerOption = True,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the curve: .png, .pdf or .svg.")] = None,
    certificate_file: options.CertificateOption = None,
    json: options.JsonOption = False,
) -> None:
    """Bound the Lipschitz constant of MODEL over balls of several radii.

    Prints bound and lower bound for each radius, and draws them with --plot. Each radius starts from the multipliers of
    the next larger one. --method is used for each radius.

    [bold]Example[/bold]

      lipcert sweep model.npz --center zeros --radii 1,0.5,0.1

      lipcert sweep model.npz --center zeros --from 0.001 --to 1 --count 13 --plot curve.png
    """
    sizes = _radii(radii, start, stop, count)
    chosen = parsing.limited(method, seconds, Joint())
    assert chosen is not None
    options.check_figure("--plot", plot)
    options.check_output("--certificate", certificate_file, model)
    if where.center is None:
        raise InvalidInput("sweep needs --center: a file, numbers separated by commas, or zeros")
    with Later() as later:
        with options.limit(seconds):
            network = reading.network(model)
            largest = where.ball(network, max(sizes))
            rows = later.best(
                bounds, network, largest, sizes, chosen, lower=lower, **norms.arguments(where.input_scale)
            )
        if certificate_file is not None:
            later.attempt(save_answer, rows, certificate_file)
        later.attempt(show, json, _record, _print, network, largest, chosen, rows)
        if plot is not None:
            ax = plots.radius_curve(rows)
            ax.set_title(describe_network(network), fontsize=10)
            later.attempt(plots.save, ax, plot)


def _radii(text: str | None, start: float | None, stop: float | None, count: int | None) -> list[float]:
    span = start, stop, count
    if text is not None:
        if span != (None, None, None):
            raise InvalidInput("--radii lists the radii; leave out --from, --to and --count")
        return parsing.numbers("--radii", text)
    if start is None or stop is None:
        raise InvalidInput("sweep needs --radii, as in 1,0.5,0.1, or --from and --to")
    if not 0 < start <= stop < np.inf:
        raise InvalidInput(f"--from and --to must be numbers with 0 < from <= to, got {start} and {stop}")
    number = 10 if count is None else count
    if number < 1:
        raise InvalidInput(f"--count must be at least 1, got {number}")
    spaced = np.geomspace(start, stop, number).tolist() if number > 1 else [stop]
    return list(reversed(spaced))


def _record(network: Network, largest: Ball, method: Method, rows: Sequence[SweepRow]) -> dict[str, Any]:
    return {
        "rows": [
            {
                "radius": row.radius,
                "bound": row.bound,
                "lower": row.lower,
                "seconds": row.seconds,
                "verified": row.certificate.verified,
            }
            for row in rows
        ],
        "trivial": rows[0].trivial if np.isfinite(rows[0].trivial) else None,
        **norms_record(rows[0].certificate.part.norms),
        "method": method_record(method),
        "region": region_record(largest),
        "network": network_record(network),
    }


def _print(console: Console, network: Network, largest: Ball, _: Method, rows: Sequence[SweepRow]) -> None:
    console.print(f"network  {describe_network(network)}\nregion   up to the {describe_region(largest)}")
    table = aligned(0, "radius", "bound", "lower bound", "ratio", "seconds")
    for row in rows:
        times = f"{row.bound / row.lower:.4g}" if row.lower > 0 else ""
        table.add_row(f"{row.radius:g}", upward(row.bound), downward(row.lower), times, f"{row.seconds:.2f}")
    console.print(table)
    norms = rows[0].certificate.part.norms
    if not norms.plain:
        console.print(f"bounds {measured(norms)}")
    if np.isfinite(rows[0].trivial):
        console.print(f"trivial bound, for any radius: {upward(rows[0].trivial)}")
