"""``lipcert verify``: a certificate checked against a model."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Annotated, Any

import typer

from lipcert.cli import options
from lipcert.cli.output import as_json, console, region_record
from lipcert.errors import ProofFailed
from lipcert.model.network import Network
from lipcert.proof.certificate import Certificate
from lipcert.questions.verify import verify as prove_again
from lipcert.show.wording import describe_network, restrictions, upward, whom

_BALLS = """
Derived in ball arithmetic in {:.3g} seconds. It also holds for all weights and biases within 2⁻⁵² of these,
relative to their size."""


def verify(
    certificate: Annotated[str, typer.Argument(metavar="CERT", help="A file that lipcert bound --certificate wrote.")],
    model: options.ModelArgument,
    activation: options.ActivationOption = None,
    input_shape: options.InputShapeOption = None,
    drop_softmax: options.DropSoftmaxOption = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="A second opinion, in ball arithmetic: other code, more time, python-flint.")
    ] = False,
    json: options.JsonOption = False,
) -> None:
    """Check a certificate against MODEL: derive its bound again, with every rounding error accounted for.

    Nothing in the file is believed. Exit code 0: proved. 1: not proved, or about another model. 2: no certificate, or
    no model.

    [bold]Example[/bold]

      lipcert bound model.npz --center zeros --radius 0.5 --certificate bound.json

      lipcert verify bound.json model.npz

      lipcert verify --exact bound.json model.npz
    """
    claim = Certificate.load(certificate)
    network = options.network(model, activation, input_shape, drop_softmax)
    started = time.perf_counter()
    try:
        proved = prove_again(network, claim, exact=exact)
    except ProofFailed as error:
        if not json:
            raise
        typer.echo(as_json({"proved": False, "reason": str(error)}))
        raise typer.Exit(1) from None
    seconds = time.perf_counter() - started
    if json:
        typer.echo(as_json(_record(claim, proved, seconds, exact)))
    else:
        sentence = _sentence(os.path.basename(model), network, claim) + (_BALLS.format(seconds) if exact else "")
        console().print(sentence, soft_wrap=True)


def _record(claim: Certificate, proved: float, seconds: float, exact: bool) -> dict[str, Any]:
    """What was proved, in JSON's types."""
    return {
        "proved": True,
        "exact": exact,
        "bound": claim.bound,
        "derived": proved,
        "region": region_record(claim.region),
        "part": dataclasses.asdict(claim.part),
        "network": claim.network,
        "seconds": seconds,
    }


def _sentence(name: str, network: Network, claim: Certificate) -> str:
    """What was proved, for people; the bound is rounded up."""
    left_out = "".join(f", {which}" for which in restrictions(claim.part, network.depth))
    return (
        f"[bold]Proved[/bold]: for {whom(claim)}\n"
        f"  ‖f(x) - f(y)‖₂ ≤ [bold]{upward(claim.bound)}[/bold] · ‖x - y‖₂\n"
        f"where f is the real-number function of the float64 weights in {name} ({describe_network(network)})"
        f"{left_out}.\n"
        f"SHA-256 of the network: {claim.network}"
    )
