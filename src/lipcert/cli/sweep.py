"""``lipcert sweep``: the bound against the radius."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from lipcert.cli import given, options
from lipcert.cli.methods import timed
from lipcert.cli.output import Later, method_record, network_record, norms_record, region_record, show
from lipcert.errors import InvalidInput
from lipcert.model.network import Network
from lipcert.model.regions import Ball
from lipcert.questions.sweep import SweepRow
from lipcert.questions.sweep import sweep as bounds
from lipcert.questions.verify import save_sweep
from lipcert.search.joint import Joint
from lipcert.search.method import Method
from lipcert.show import plots
from lipcert.show.wording import describe_network, describe_region, downward, measured, upward

RADII = "Radii (as a list, or evenly on a logarithmic scale)"
_PANEL = {"rich_help_panel": RADII}


def sweep(
    model: options.ModelArgument,
    center: options.NeededCenterOption = None,
    clip: options.NeededClipOption = None,
    point: options.NeededPointOption = None,
    norm: options.NormOption = "l2",
    input_norm: options.InputNormOption = "l2",
    output_norm: options.OutputNormOption = "l2",
    input_scale: options.InputScaleOption = None,
    output_scale: options.OutputScaleOption = None,
    radii: Annotated[str | None, typer.Option(metavar="R,R,…", help="Radii, in any order.", **_PANEL)] = None,
    start: Annotated[float | None, typer.Option("--from", metavar="NUMBER", help="Smallest radius.", **_PANEL)] = None,
    stop: Annotated[float | None, typer.Option("--to", metavar="NUMBER", help="Largest radius.", **_PANEL)] = None,
    count: Annotated[int | None, typer.Option(metavar="N", help="How many, both ends included.", **_PANEL)] = None,
    method: options.SweepMethodOption = None,
    seconds: options.SecondsOption = None,
    activation: options.ActivationOption = None,
    input_shape: options.InputShapeOption = None,
    drop_softmax: options.DropSoftmaxOption = False,
    mean: options.MeanOption = None,
    std: options.StdOption = None,
    fixed: given.FixedOption = None,
    output: given.OutputOption = None,
    lower: options.LowerOption = True,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the curve: .png, .pdf or .svg.")] = None,
    certificate_file: options.CertificateOption = None,
    json: options.JsonOption = False,
) -> None:
    """Bound the Lipschitz constant of MODEL over balls of several radii.

    A table, and a curve if asked for, of bound and lower bound against the radius. Each radius starts from what the
    next larger one found. --method is for each radius; the default is joint.

    [bold]Example[/bold]

      lipcert sweep model.npz --center zeros --radii 1,0.5,0.1

      lipcert sweep model.npz --center zeros --from 0.001 --to 1 --count 13 --plot curve.png
    """
    sizes = _radii(radii, start, stop, count)
    chosen = timed(method, seconds, Joint())
    assert chosen is not None
    options.figure("--plot", plot)
    options.output("--certificate", certificate_file, model)
    if center is None:
        raise InvalidInput("sweep needs --center: a file, numbers separated by commas, or zeros")
    with Later() as later:
        with options.limit(seconds):
            network = options.network(
                model, activation, input_shape, drop_softmax, mean, std, given.values(fixed), output
            )
            measure = options.norm("--norm", norm, input_scale)
            largest = options.region_of(network, center, max(sizes), None, clip, point, measure)
            assert isinstance(largest, Ball)
            ends = {
                "input_norm": options.norm("--input-norm", input_norm, input_scale),
                "output_norm": options.norm("--output-norm", output_norm, output_scale),
            }
            rows = later.best(bounds, network, largest, sizes, chosen, lower=lower, **ends)
        if certificate_file is not None:
            later.attempt(save_sweep, rows, certificate_file)
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
        try:
            values = [float(part) for part in text.split(",")]
        except ValueError:
            raise InvalidInput(f"--radii must be numbers separated by commas, as in 1,0.5,0.1; got {text!r}") from None
        return values
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
    table = Table()
    for heading in ("radius", "bound", "lower bound", "ratio", "seconds"):
        table.add_column(heading, justify="right")
    for row in rows:
        times = f"{row.bound / row.lower:.4g}" if row.lower > 0 else ""
        table.add_row(f"{row.radius:g}", upward(row.bound), downward(row.lower), times, f"{row.seconds:.2f}")
    console.print(table)
    norms = rows[0].certificate.part.norms
    if not norms.plain:
        console.print(f"bounds {measured(norms)}")
    if np.isfinite(rows[0].trivial):
        console.print(f"trivial bound, for any radius: {upward(rows[0].trivial)}")
