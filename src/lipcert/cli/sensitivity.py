"""``lipcert sensitivity``: how fast each output can change with each input."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from lipcert.cli import options
from lipcert.cli.methods import timed
from lipcert.cli.output import Later, region_record, show
from lipcert.model.network import Network
from lipcert.proof.sensitivity import Sensitivity
from lipcert.questions.sensitivity import sensitivity as matrix_of
from lipcert.show import plots
from lipcert.show.wording import describe_network, describe_region, upward

_COLUMNS, _ROWS = 10, 40


def sensitivity(
    model: options.ModelArgument,
    center: options.CenterOption = None,
    radius: options.RadiusOption = None,
    box: options.BoxOption = None,
    clip: options.ClipOption = None,
    norm: options.NormOption = "l2",
    input_scale: options.InputScaleOption = None,
    method: options.MethodOption = None,
    inputs: options.InputsOption = None,
    outputs: options.OutputsOption = None,
    activation: options.ActivationOption = None,
    input_shape: options.InputShapeOption = None,
    drop_softmax: options.DropSoftmaxOption = False,
    mean: options.MeanOption = None,
    std: options.StdOption = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw a heat map: .png, .pdf or .svg.")] = None,
    seconds: options.SecondsOption = None,
    certificate_file: options.CertificateOption = None,
    json: options.JsonOption = False,
) -> None:
    """Bound how fast each output of MODEL can change with each input, the others held.

    All pairs come from a few proofs of the whole network; the largest are then bounded by themselves.

    [bold]Example[/bold]

      lipcert sensitivity model.npz --center zeros --radius 0.1

      lipcert sensitivity model.npz --box -1 1 --inputs 0,2 --plot map.png
    """
    options.figure("--plot", plot)
    options.output("--certificate", certificate_file, model)
    chosen = timed(method, seconds)
    with Later() as later:
        with options.limit(seconds):
            network = options.network(model, activation, input_shape, drop_softmax, mean, std)
            found = later.best(
                matrix_of,
                network,
                options.region_of(network, center, radius, box, clip, options.norm("--norm", norm, input_scale)),
                chosen,
                inputs=options.indices("--inputs", inputs),
                outputs=options.indices("--outputs", outputs),
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
    table = Table("output")
    for group in found.inputs[:_COLUMNS]:
        table.add_column(f"input {group[0]}", justify="right", no_wrap=True)
    for group, row in zip(found.outputs[:_ROWS], found.matrix, strict=False):
        table.add_row(str(group[0]), *(upward(value, 4) for value in row[:_COLUMNS]))
    console.print(table)
    if len(found.inputs) > _COLUMNS or len(found.outputs) > _ROWS:
        console.print(f"{len(found.outputs)} × {len(found.inputs)} bounds in all; --json lists them, --plot draws them")
    console.print(f"bound    {upward(found.bound)} for all together, proved in {found.seconds:.3g} s")
