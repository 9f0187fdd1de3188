"""``lipcert sensitivity``: how fast each output can change with each input."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from lipcert.cli import options, parsing
from lipcert.cli.output import Later, region_record, show
from lipcert.kernel.sensitivity import Sensitivity
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.questions.sensitivity import sensitivity as matrix_of
from lipcert.show import plots
from lipcert.show.wording import describe_network, describe_region, upward

_ROWS = 40


def sensitivity(
    model: options.ModelArgument,
    where: options.RegionOptions,
    reading: options.ReadingOptions,
    method: options.MethodOption = None,
    inputs: options.InputsOption = None,
    outputs: options.OutputsOption = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw a heat map: .png, .pdf or .svg.")] = None,
    seconds: options.SecondsOption = None,
    certificate_file: options.CertificateOption = None,
    json: options.JsonOption = False,
) -> None:
    """Bound how fast each output of MODEL can change with each input, the other inputs fixed.

    A few proofs of the whole network bound all pairs; then the largest pairs are bounded alone.

    [bold]Example[/bold]

      lipcert sensitivity model.npz --center zeros --radius 0.1

      lipcert sensitivity model.npz --box -1 1 --inputs 0,2 --plot map.png
    """
    options.check_figure("--plot", plot)
    options.check_output("--certificate", certificate_file, model)
    chosen = parsing.limited(method, seconds)
    with Later() as later:
        with options.limit(seconds):
            network = reading.network(model)
            found = later.best(
                matrix_of,
                network,
                where.region(network),
                chosen,
                inputs=parsing.indices("--inputs", inputs),
                outputs=parsing.indices("--outputs", outputs),
            )
        if certificate_file is not None:
            later.attempt(found.save, certificate_file)
        later.attempt(show, json, _record, _print, network, found)
        if plot is not None:
            later.attempt(plots.save, plots.sensitivity_map(found), plot)


def _record(network: Network, found: Sensitivity) -> dict[str, Any]:
    return {
        "matrix": found.matrix.tolist(),
        "outputs": [group[0] for group in found.outputs],
        "inputs": [group[0] for group in found.inputs],
        "bound": found.bound,
        "region": region_record(found.region),
        "network": {"digest": found.network, "sizes": list(network.sizes)},
        "seconds": found.seconds,
        "verified": True,
    }


def _print(console: Console, network: Network, found: Sensitivity) -> None:
    console.print(f"network  {describe_network(network)}\nregion   {describe_region(found.region)}")
    fits = max(1, min((console.width - 10) // 12, len(found.inputs)))
    columns, rows = _largest(found.matrix.max(axis=0), fits), _largest(found.matrix.max(axis=1), _ROWS)
    table = Table("output")
    for k in columns:
        table.add_column(f"input {_named(found.inputs[k])}", justify="right", no_wrap=True)
    for i in rows:
        table.add_row(_named(found.outputs[i]), *(upward(float(found.matrix[i, k]), 4) for k in columns))
    console.print(table)
    for what, shown, most in (
        ("inputs", columns, found.matrix.max(axis=0)),
        ("outputs", rows, found.matrix.max(axis=1)),
    ):
        out = np.setdiff1d(np.arange(len(most)), shown)
        if out.size:
            console.print(
                f"left out: {out.size} of {len(most)} {what}, those with the smallest bounds, none above"
                f" {upward(float(most[out].max()), 4)}; --json lists all, --plot draws all"
            )
    console.print(f"bound    {upward(found.bound)} for all together, proved in {found.seconds:.3g} s")


def _largest(bounds: Array, count: int) -> list[int]:
    """The positions of the largest bounds, in ascending order."""
    return sorted(np.argsort(-bounds, kind="stable")[:count].tolist())


def _named(group: tuple[int, ...]) -> str:
    return "+".join(map(str, group))
