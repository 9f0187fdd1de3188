"""``lipcert compare``: one network, one region, every method."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from lipcert.cli import options
from lipcert.cli.output import Later, aligned, network_record, region_record, show
from lipcert.errors import ProofFailed
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.questions.compare import Comparison
from lipcert.questions.compare import compare as run_all
from lipcert.questions.names import METHODS
from lipcert.show import plots
from lipcert.show.wording import describe_network, describe_region, downward, upward


def compare(
    model: options.ModelArgument,
    where: options.RegionOptions,
    reading: options.ReadingOptions,
    methods: Annotated[
        str | None, typer.Option(metavar="NAME,NAME,…", help=f"Which methods: {', '.join(METHODS)}. \\[default: all]")
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Limit for each method.")] = 60.0,
    seconds: options.SecondsOption = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw bound against time there: .png, .pdf or .svg.")
    ] = None,
    json: options.JsonOption = False,
) -> None:
    """Bound MODEL with every method of the literature and of lipcert, side by side.

    Each method runs in its own process with a time limit. A method that takes too long or does not apply says so in its
    row. Methods of the literature show the number that they publish; global methods ignore the region.

    [bold]Example[/bold]

      lipcert compare model.npz --activation relu --center zeros --radius 0.5 --timeout 20 --plot compare.png

      lipcert compare model.onnx --methods trivial,lipsdp-neuron,joint --json
    """
    options.check_figure("--plot", plot)
    names = None if methods is None else [name.strip() for name in methods.split(",")]
    with Later() as later:
        with options.limit(seconds):
            network = reading.network(model)
            region = where.region(network)
            comparison = later.best(run_all, network, region, names, timeout=timeout)
        later.attempt(show, json, _record, _print, network, region, comparison)
        if plot is not None:
            later.attempt(plots.save, plots.comparison(comparison), plot)
    if all(row.bound is None for row in comparison.rows):
        raise ProofFailed("no method found a bound; a longer --timeout or other --methods may help")


def _record(network: Network, region: Region, comparison: Comparison) -> dict[str, Any]:
    lower = comparison.lower
    return {
        "network": network_record(network),
        "region": region_record(region),
        "lower": None if lower is None else lower.value,
        "lower_point": None if lower is None else lower.point.tolist(),
        "rows": [dataclasses.asdict(row) for row in comparison.rows],
    }


def _print(console: Console, network: Network, region: Region, comparison: Comparison) -> None:
    console.print(f"network  {describe_network(network)}\nregion   {describe_region(region)}\n")
    table = aligned(1, "method", "bound", "÷ lower bound", "seconds")
    table.add_column("status", no_wrap=True)
    for row, following in zip(comparison.rows, [*comparison.rows[1:], None], strict=True):
        table.add_row(
            row.name,
            "" if row.bound is None else upward(row.bound, 4),
            "" if row.ratio is None else f"{row.ratio:.4g}",
            "" if row.seconds is None else f"{row.seconds:.2f}",
            "verified" if row.verified else row.status,
            end_section=following is None or row.published != following.published,
        )
    if comparison.lower is not None:
        table.add_row("lower bound", downward(comparison.lower.value, 4), "1", "", "")
    console.print(table)
    for row in comparison.rows:
        if row.note and row.status != "timeout":
            console.print(f"{row.name}: {row.note}", markup=False)
    console.print(
        "verified: proved, with rounding accounted for. certified: the bound of the method, in floating point."
    )
    if not region.bounded:
        console.print("All inputs: there is no lower bound to compare with. Give --center and --radius for one.")
