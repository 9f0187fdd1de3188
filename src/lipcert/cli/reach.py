"""``lipcert reach``: enclose the outputs over a region."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from lipcert.cli import options, parsing
from lipcert.cli.output import Later, aligned, region_record, show
from lipcert.errors import InvalidInput
from lipcert.kernel.reach import Reach
from lipcert.model.network import Network
from lipcert.questions.reach import reach as enclose
from lipcert.show import plots
from lipcert.show.wording import describe_network, describe_region, downward, upward

_SHOWN = 40


def reach(
    model: options.ModelArgument,
    where: options.RegionOptions,
    reading: options.ReadingOptions,
    method: options.MethodOption = None,
    layer: Annotated[
        int | None, typer.Option(metavar="I", help="An inner layer, from 1: its values before the activation.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw two outputs, their box, ellipsoid and samples: .png, .pdf or .svg."),
    ] = None,
    axes: Annotated[str, typer.Option(metavar="I,J", help="The two outputs to draw.")] = "0,1",
    values: Annotated[
        bool, typer.Option("--values", help="Also bound each output by value functions: ℓ2 balls only, slower.")
    ] = False,
    seconds: options.SecondsOption = None,
    certificate_file: options.CertificateOption = None,
    json: options.JsonOption = False,
) -> None:
    """Enclose the outputs of MODEL over a region by a box and an ellipsoid.

    For every input of the region, the output lies in both. This is proved, with rounding accounted for.

    [bold]Example[/bold]

      lipcert reach model.npz --center zeros --radius 0.1

      lipcert reach model.npz --box -1 1 --layer 2 --plot reach.png --axes 0,3
    """
    pair = parsing.indices("--axes", axes) or []
    options.check_figure("--plot", plot)
    options.check_output("--certificate", certificate_file, model)
    chosen = parsing.limited(method, seconds)
    with Later() as later:
        with options.limit(seconds):
            network = reading.network(model)
            region = where.region(network)
            if not region.bounded:
                raise InvalidInput("reach needs a bounded region: give --center and --radius, or --box")
            shown = network.sizes[layer] if layer is not None and 0 < layer <= network.depth else network.outputs
            if plot is not None and shown > 1:
                plots.check_pair((pair[0], pair[-1]), shown)
            found = later.best(enclose, network, region, chosen, layer=layer, values=values)
        if certificate_file is not None:
            later.attempt(found.save, certificate_file)
        later.attempt(show, json, _record, _print, network, found)
        if plot is not None:
            later.attempt(plots.save, plots.reach_set(found, network, (pair[0], pair[-1])), plot)


def _record(network: Network, found: Reach) -> dict[str, Any]:
    return {
        "lower": found.lower.tolist(),
        "upper": found.upper.tolist(),
        "center": found.center.tolist(),
        "shape": found.shape.tolist(),
        "bound": found.bound,
        "layer": found.layer,
        "region": region_record(found.region),
        "network": {"digest": found.network, "sizes": list(network.sizes)},
        "seconds": found.seconds,
        "verified": True,
    }


def _print(console: Console, network: Network, found: Reach) -> None:
    console.print(f"network  {describe_network(network)}\nregion   {describe_region(found.region)}")
    if found.layer != network.depth:
        console.print(f"layer    {found.layer}, before its activation")
    table = aligned(1, "output", "lower", "at the centre", "upper")
    for number in range(min(len(found.lower), _SHOWN)):
        table.add_row(
            str(number),
            downward(found.lower[number]),
            f"{found.center[number]:.6g}",
            upward(found.upper[number]),
        )
    console.print(table)
    if len(found.lower) > _SHOWN:
        console.print(f"… and {len(found.lower) - _SHOWN} more; --json lists them all")
    console.print(f"bound    {upward(found.bound)}, proved in {found.seconds:.3g} s")
