"""``lipcert bound``: one network, one region, one method."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from lipcert.cli import options, parsing
from lipcert.cli.output import Later, certificate_record, ratio, show
from lipcert.errors import InvalidInput
from lipcert.kernel.certificate import Certificate
from lipcert.methods.lower import LowerBound, lower_bound_of
from lipcert.methods.method import Method
from lipcert.methods.split import Split
from lipcert.model.network import Network
from lipcert.questions.certify import certify
from lipcert.show.wording import describe_network, describe_region, downward, measured, upward

_EXACT = 1e-3
"""Relative distance of upper and lower bound at which --exact stops."""
_SHARE = 0.2
"""Share of --seconds for the lower bound."""


def bound(
    model: options.ModelArgument,
    where: options.RegionOptions,
    norms: options.NormOptions,
    reading: options.ReadingOptions,
    method: options.MethodOption = None,
    inputs: options.InputsOption = None,
    outputs: options.OutputsOption = None,
    layers: Annotated[
        str | None,
        typer.Option(
            metavar="P:I",
            help="From the output of layer P (0: the input) to the values of layer I before its activation.",
            rich_help_panel=options.PART,
        ),
    ] = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Split the region until the bound is within 0.1 % of the true constant, or time is up.",
        ),
    ] = False,
    seconds: options.SecondsOption = None,
    lower: options.LowerOption = True,
    certificate_file: options.CertificateOption = None,
    json: options.JsonOption = False,
) -> None:
    """Bound the Lipschitz constant of MODEL over a region.

    For any two inputs x, y of the region, ‖f(x) - f(y)‖ is at most the bound times ‖x - y‖, in ℓ2 norms or in those of
    --input-norm and --output-norm. The default region is all inputs.

    [bold]Example[/bold]: how fast can the outputs of a network with arrays W1, b1, W2, b2 in model.npz change near the
    origin? And how fast everywhere?

      lipcert bound model.npz --activation relu --center zeros --radius 0.5

      lipcert bound model.npz --activation relu

      lipcert bound model.npz --activation relu --center zeros --radius 0.5 --exact --seconds 20

    A controller whose inputs are radians and revolutions a minute, within one unit of each:

      lipcert bound controller.npz --center 0,1500 --radius 1 --norm linf --input-norm linf --input-scale 0.1,100
    """
    chosen = parsing.limited(_chosen(method, exact), seconds)
    options.check_output("--certificate", certificate_file, model)
    with Later() as later:
        with options.limit(seconds) as clock:
            network = reading.network(model)
            region = where.region(network)
            with clock.keeping(_SHARE * (seconds or 0.0) if lower else 0.0):
                certificate = later.best(
                    certify,
                    network,
                    region,
                    chosen,
                    inputs=parsing.indices("--inputs", inputs),
                    outputs=parsing.indices("--outputs", outputs),
                    layers=parsing.span("--layers", layers),
                    **norms.arguments(where.input_scale),
                )
            if certificate_file is not None:
                later.attempt(certificate.save, certificate_file)
            below = later.extra(lower_bound_of, network, certificate) if lower else None
        show(json, certificate_record, _print, network, certificate, below)


def _chosen(method: Method | None, exact: bool) -> Method | None:
    if not exact:
        return method
    if method is not None:
        raise InvalidInput("--exact chooses the method itself; leave out --method")
    return Split(tolerance=_EXACT)


def _print(console: Console, network: Network, certificate: Certificate, below: LowerBound | None) -> None:
    part = certificate.part
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    table.add_row("bound", f"[bold]{upward(certificate.bound)}[/bold]")
    if not part.norms.plain:
        table.add_row("norms", measured(part.norms))
    if below is not None:
        table.add_row("lower bound", downward(below.value))
        tightness = ratio(certificate.bound, below)
        if tightness is not None:
            table.add_row("ratio", f"{tightness:.4g}")
    table.add_row("method", repr(certificate.method))
    if certificate.found_by not in ("", type(certificate.method).__name__):
        table.add_row("found by", certificate.found_by)
    table.add_row("region", describe_region(certificate.region))
    table.add_row("network", describe_network(network))
    if part.layers != (0, network.depth):
        table.add_row("layers", f"{part.layers[0]}:{part.layers[1]}")
    for name, chosen in (("inputs", part.inputs), ("outputs", part.outputs)):
        if chosen is not None:
            table.add_row(name, ", ".join(map(str, chosen)))
    table.add_row("seconds", f"{certificate.seconds:.3g}")
    table.add_row("verified", "yes" if certificate.verified else "no (floating point, rounding not accounted for)")
    if certificate.note:
        table.add_row("note", certificate.note)
    console.print(table)
