"""``lipcert verify``: a certificate checked against a model."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from lipcert.cli import options
from lipcert.cli.output import as_json, console, part_record, region_record
from lipcert.errors import InvalidInput, ProofFailed
from lipcert.kernel.certificate import Certificate
from lipcert.kernel.classes import CertifiedRadius
from lipcert.kernel.reach import Reach
from lipcert.kernel.sensitivity import Sensitivity
from lipcert.model.network import Network
from lipcert.questions.answers import Answer, load_answer
from lipcert.questions.verify import verify as prove_again
from lipcert.show.wording import WHOLE, describe_network, describe_region, downward, restrictions, upward, whom

_SHOWN = 40
_BALLS = """
Derived in ball arithmetic in {:.3g} seconds. It also holds for all weights and biases within 2⁻⁵⁰ of these,
relative to their size."""


def verify(
    certificate: Annotated[
        str, typer.Argument(metavar="CERT", help="A file of --certificate of bound, sweep, reach or sensitivity.")
    ],
    model: options.ModelArgument,
    reading: options.ReadingOptions,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Prove it in ball arithmetic instead: independent code, slower (python-flint)."),
    ] = False,
    json: options.JsonOption = False,
) -> None:
    """Prove a saved answer again for MODEL, with every rounding error accounted for.

    Nothing in the file is trusted. Exit code 0: proved. 1: not proved, or about another model. 2: unreadable file.

    [bold]Example[/bold]

      lipcert bound model.npz --center zeros --radius 0.5 --certificate bound.json

      lipcert verify bound.json model.npz

      lipcert verify --exact bound.json model.npz
    """
    if model.lower().endswith(".json") and not certificate.lower().endswith(".json"):
        raise InvalidInput(f"the certificate comes first, then the model: lipcert verify {model} {certificate}")
    claim = load_answer(certificate)
    network = reading.network(model)
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
        sentence = _sentence(reading.name(model), network, claim) + (_BALLS.format(seconds) if exact else "")
        console().print(sentence, soft_wrap=True)


def _record(claim: Answer, proved: Any, seconds: float, exact: bool) -> dict[str, Any]:
    """The proved statement in JSON's types."""
    record: dict[str, Any] = {"proved": True, "exact": exact, "seconds": seconds}
    if isinstance(claim, tuple):
        rows = zip(claim, proved, strict=True)
        return record | {"rows": [_record(row.certificate, bound, row.seconds, exact) for row, bound in rows]}
    if isinstance(claim, CertifiedRadius):
        assert claim.proof is not None
        return record | {"radius": claim.radius, "label": claim.label, "region": region_record(claim.proof.ball)}
    record |= {"bound": claim.bound, "region": region_record(claim.region), "network": claim.network}
    if isinstance(claim, Reach):
        return record | {"lower": claim.lower.tolist(), "upper": claim.upper.tolist(), "layer": claim.layer}
    if isinstance(claim, Sensitivity):
        return record | {"matrix": claim.matrix.tolist(), "outputs": claim.outputs, "inputs": claim.inputs}
    return record | {"derived": proved, **part_record(claim.part)}


def _sentence(name: str, network: Network, claim: Answer) -> str:
    """The proved statement in words; bounds are rounded outwards."""
    about = f"where f is the real-number function of the float64 weights in {name} ({describe_network(network)})"
    ending = f".\nSHA-256 of the network: {network.digest}"
    if isinstance(claim, tuple):
        return "\n".join(_slope(row.certificate) for row in claim) + f"\n{about}{ending}"
    if isinstance(claim, CertifiedRadius):
        assert claim.proof is not None
        return (
            f"[bold]Proved[/bold]: every input of the {describe_region(claim.proof.ball, WHOLE)}\n"
            f"that is closer to its centre than [bold]{downward(claim.radius)}[/bold] is of class {claim.label},\n"
            f"which has the largest output of f, {about}{ending}"
        )
    if isinstance(claim, Reach):
        what = "f(x)" if claim.layer == network.depth else f"what layer {claim.layer} computes before its activation"
        sides = zip(claim.lower[:_SHOWN], claim.upper[:_SHOWN], strict=True)
        rows = "\n".join(f"  output {k} in [{downward(low)}, {upward(high)}]" for k, (low, high) in enumerate(sides))
        more = f"\n  and {claim.lower.size - _SHOWN} more" if claim.lower.size > _SHOWN else ""
        where = f"[bold]Proved[/bold]: for every input x in the {describe_region(claim.region, WHOLE)}, {what} has"
        return f"{where}\n{rows}{more}\n{about}{ending}"
    if isinstance(claim, Sensitivity):
        there = f" in the {describe_region(claim.region, WHOLE)}" if claim.region.bounded else ""
        where = f"[bold]Proved[/bold]: for any two inputs{there} that differ in one coordinate, or group of them, only,"
        pairs = [(i, k) for i in range(len(claim.outputs)) for k in range(len(claim.inputs))]
        rows = "\n".join(
            f"  output {_named(claim.outputs[i])} changes by at most {upward(float(claim.matrix[i, k]))}"
            f" times the change of input {_named(claim.inputs[k])}"
            for i, k in pairs[:_SHOWN]
        )
        more = f"\n  and {len(pairs) - _SHOWN} more" if len(pairs) > _SHOWN else ""
        return f"{where}\n{rows}{more}\n{about}{ending}"
    left_out = "".join(f", {which}" for which in restrictions(claim.part, network.depth))
    return f"{_slope(claim)}\n{about}{left_out}{ending}"


def _named(group: tuple[int, ...]) -> str:
    return " + ".join(map(str, group))


def _slope(claim: Certificate) -> str:
    stated = claim.part.norms.formula(f"[bold]{upward(claim.bound)}[/bold]").replace("−", "-")
    return f"[bold]Proved[/bold]: for {whom(claim)}\n  {stated}"
