"""``lipcert bound``, ``sweep``, ``reach``, ``sensitivity``: answers about one network; and ``verify``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

from lipcert.answers.certificate import Certificate
from lipcert.answers.radius import CertifiedRadius
from lipcert.answers.reach import Reach
from lipcert.answers.sensitivity import Sensitivity
from lipcert.cli import options, output, parsing
from lipcert.cli.options import PART, option
from lipcert.cli.output import ask, ask_also, deliver, drawing, saving, showing
from lipcert.errors import InvalidInput, ProofFailed
from lipcert.methods.joint import Joint
from lipcert.methods.lower import LowerBound, lower_bound_of
from lipcert.methods.method import Method
from lipcert.methods.split import Split
from lipcert.model.network import Network
from lipcert.model.regions import Ball
from lipcert.questions.certify import certify
from lipcert.questions.reach import reach as enclose
from lipcert.questions.sensitivity import sensitivity as matrix_of
from lipcert.questions.sweep import SweepRow
from lipcert.questions.sweep import sweep as bounds
from lipcert.questions.tables import Cell, Table
from lipcert.questions.verify import Answer, load_answer
from lipcert.questions.verify import proved as prove_again
from lipcert.runtime.clock import timed
from lipcert.show import plots, wording
from lipcert.show.wording import describe_network, describe_region, downward, group_in_words, measured, upward

_EXACT = 1e-3
"""Relative distance of upper and lower bound at which --exact stops."""
_SHARE = 0.2
"""Share of --seconds for the lower bound."""
_SHOWN = 40
"""Most rows of a table."""


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
        option("P:I", "From the output of layer P (0: the input) to layer I before its activation.", panel=PART),
    ] = None,
    exact: Annotated[
        bool,
        option(
            None, "Split the region until the bound is within 0.1 % of the true constant, or time is up.", "--exact"
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
    origin? And those of a controller whose inputs are radians and revolutions a minute, within one unit of each?

      lipcert bound model.npz --activation relu --center zeros --radius 0.5

      lipcert bound controller.npz --center 0,1500 --radius 1 --norm linf --input-norm linf --input-scale 0.1,100
    """
    if exact and method is not None:
        raise InvalidInput("--exact chooses the method itself; leave out --method")
    chosen = parsing.limited(Split(tolerance=_EXACT) if exact else method, seconds)
    options.check_output("--certificate", certificate_file, model)
    with timed(seconds) as clock:
        network = reading.network(model)
        region = where.region(network)
        part: dict[str, Any] = {
            "inputs": parsing.indices("--inputs", inputs),
            "outputs": parsing.indices("--outputs", outputs),
            "layers": parsing.span("--layers", layers),
            **norms.arguments(where.input_scale),
        }
        with clock.keeping(_SHARE * (seconds or 0.0) if lower else 0.0):
            certificate, troubles = ask(certify, network, region, chosen, **part)
        below = ask_also(troubles, lower_bound_of, network, certificate) if lower else None
    shown = showing(json, _bound_record, _print_bound, network, certificate, below)
    deliver(troubles, saving(certificate, certificate_file), shown)


def _bound_record(network: Network, certificate: Certificate, below: LowerBound | None) -> dict[str, Any]:
    return {
        **output.claim_record(certificate),
        **output.lower_record(below),
        "ratio": output.ratio(certificate.bound, below),
        "method": output.method_record(certificate.method),
        "network": output.network_record(network),
        "seconds": certificate.seconds,
        "verified": certificate.verified,
        **({"note": certificate.note} if certificate.note else {}),
    }


def _print_bound(console: Console, network: Network, certificate: Certificate, below: LowerBound | None) -> None:
    part, ratio = certificate.part, output.ratio(certificate.bound, below)
    facts = {
        "bound": f"[bold]{upward(certificate.bound)}[/bold]",
        "norms": measured(part.norms),
        "lower bound": "" if below is None else downward(below.value),
        "ratio": "" if ratio is None else f"{ratio:.4g}",
        "method": repr(certificate.method),
        "found by": "" if certificate.found_by == type(certificate.method).__name__ else certificate.found_by,
        "region": describe_region(certificate.region),
        "network": describe_network(network),
        "layers": "" if part.layers == (0, network.depth) else "{}:{}".format(*part.layers),
        "inputs": ", ".join(map(str, part.inputs or ())),
        "outputs": ", ".join(map(str, part.outputs or ())),
        "seconds": f"{certificate.seconds:.3g}",
        "verified": "yes" if certificate.verified else "no (floating point, rounding not accounted for)",
        "note": certificate.note,
    }
    console.print(output.grid([(name, fact) for name, fact in facts.items() if fact]))


def sweep(
    model: options.ModelArgument,
    where: options.CenterOptions,
    norms: options.NormOptions,
    reading: options.ReadingOptions,
    radii: Annotated[str, option("R,R,…", "Radii, in any order.")],
    method: options.SweepMethodOption = None,
    seconds: options.SecondsOption = None,
    lower: options.LowerOption = True,
    plot: Annotated[Path | None, option("FILE", "Draw the curve: .png, .pdf or .svg.")] = None,
    certificate_file: options.CertificateOption = None,
    json: options.JsonOption = False,
) -> None:
    """Bound the Lipschitz constant of MODEL over balls of several radii.

    Prints bound and lower bound for each radius, and draws them with --plot. --method is used for each radius.

    [bold]Example[/bold]

      lipcert sweep model.npz --center zeros --radii 1,0.5,0.1 --plot curve.png
    """
    sizes = parsing.numbers("--radii", radii)
    chosen = parsing.limited(method, seconds, Joint())
    options.check_figure(plot)
    options.check_output("--certificate", certificate_file, model)
    with timed(seconds):
        network = reading.network(model)
        largest, ends = where.ball(network, max(sizes)), norms.arguments(where.input_scale)
        rows, troubles = ask(bounds, network, largest, sizes, chosen, lower=lower, **ends)
    shown = showing(json, _sweep_record, _print_sweep, network, largest, chosen, rows)
    figure = drawing(plot, plots.radius_curve, rows, None, describe_network(network))
    deliver(troubles, saving(rows, certificate_file), shown, figure)


def _sweep_record(network: Network, largest: Ball, method: Method, rows: Sequence[SweepRow]) -> dict[str, Any]:
    names = ("radius", "bound", "lower", "seconds")
    return {
        "rows": [{**{n: getattr(row, n) for n in names}, "verified": row.certificate.verified} for row in rows],
        "trivial": rows[0].trivial if np.isfinite(rows[0].trivial) else None,
        **output.norms_record(rows[0].certificate.part.norms),
        "method": output.method_record(method),
        "region": output.region_record(largest),
        "network": output.network_record(network),
    }


def _print_sweep(console: Console, network: Network, largest: Ball, _: Method, rows: Sequence[SweepRow]) -> None:
    _print_head(console, network, f"up to the {describe_region(largest)}")
    console.print(output.ruled(wording.sweep_table("", rows).without("region")))
    norms = rows[0].certificate.part.norms
    if not norms.plain:
        console.print(f"bounds {measured(norms)}")
    if np.isfinite(rows[0].trivial):
        console.print(f"trivial bound, for any radius: {upward(rows[0].trivial)}")


def _print_head(console: Console, network: Network, where: str) -> None:
    console.print(output.grid([("network", describe_network(network)), ("region", where)]))


def reach(
    model: options.ModelArgument,
    where: options.RegionOptions,
    reading: options.ReadingOptions,
    method: options.MethodOption = None,
    plot: Annotated[
        Path | None, option("FILE", "Draw the two widest outputs: box, ellipsoid, samples; .png, .pdf or .svg.")
    ] = None,
    seconds: options.SecondsOption = None,
    certificate_file: options.CertificateOption = None,
    json: options.JsonOption = False,
) -> None:
    """Enclose the outputs of MODEL over a region by a box and an ellipsoid.

    For every input of the region, the output lies in both. This is proved, with rounding accounted for.

    [bold]Example[/bold]

      lipcert reach model.npz --box -1 1 --plot reach.png
    """
    options.check_figure(plot)
    options.check_output("--certificate", certificate_file, model)
    with timed(seconds):
        network = reading.network(model)
        region = where.region(network)
        if not region.bounded:
            raise InvalidInput("reach needs a bounded region: give --center and --radius, or --box")
        chosen = parsing.limited(method, seconds)
        found, troubles = ask(enclose, network, region, chosen)
    shown = showing(json, _proved_record, _print_reach, network, found)
    deliver(troubles, saving(found, certificate_file), shown, drawing(plot, plots.reach_set, found, network))


def _proved_record(network: Network, found: Reach | Sensitivity) -> dict[str, Any]:
    about = {"network": output.network_record(network), "seconds": found.seconds, "verified": True}
    return output.claim_record(found) | about


def _print_reach(console: Console, network: Network, found: Reach) -> None:
    _print_head(console, network, describe_region(found.region))
    console.print(output.ruled(wording.reach_table("", found, _SHOWN).without("width")))
    if len(found.lower) > _SHOWN:
        console.print(f"… and {len(found.lower) - _SHOWN} more; --json lists them all")
    console.print(f"bound    {upward(found.bound)}, proved in {found.seconds:.3g} s")


def sensitivity(
    model: options.ModelArgument,
    where: options.RegionOptions,
    reading: options.ReadingOptions,
    method: options.MethodOption = None,
    inputs: options.InputsOption = None,
    outputs: options.OutputsOption = None,
    plot: Annotated[Path | None, option("FILE", "Draw a heat map: .png, .pdf or .svg.")] = None,
    seconds: options.SecondsOption = None,
    certificate_file: options.CertificateOption = None,
    json: options.JsonOption = False,
) -> None:
    """Bound how fast each output of MODEL can change with each input, the other inputs fixed.

    A few proofs of the whole network bound all pairs; then the largest pairs are bounded alone.

    [bold]Example[/bold]

      lipcert sensitivity model.npz --box -1 1 --inputs 0,2 --plot map.png
    """
    options.check_figure(plot)
    options.check_output("--certificate", certificate_file, model)
    with timed(seconds):
        network = reading.network(model)
        which = {"inputs": parsing.indices("--inputs", inputs), "outputs": parsing.indices("--outputs", outputs)}
        found, troubles = ask(matrix_of, network, where.region(network), parsing.limited(method, seconds), **which)
    shown = showing(json, _proved_record, _print_sensitivity, network, found)
    deliver(troubles, saving(found, certificate_file), shown, drawing(plot, plots.sensitivity_map, found))


def _print_sensitivity(console: Console, network: Network, found: Sensitivity) -> None:
    _print_head(console, network, describe_region(found.region))
    most = max(1, (console.width - 10) // 12), _SHOWN
    columns, rows = (np.sort(np.argsort(-found.matrix.max(axis=k), kind="stable")[: most[k]]).tolist() for k in (0, 1))
    inputs, outputs = (
        [group_in_words(group, names) for group in groups]
        for groups, names in zip((found.inputs, found.outputs), found.names, strict=True)
    )
    cells = [[Cell(outputs[i]), *(Cell.bound(float(found.matrix[i, k])) for k in columns)] for i in rows]
    console.print(output.ruled(Table("", ["output", *(escape(f"input {inputs[k]}") for k in columns)], cells)))
    if len(rows) * len(columns) < found.matrix.size:
        console.print(
            f"{len(columns)} of {len(inputs)} inputs and {len(rows)} of {len(outputs)} outputs, those with the largest"
            " bounds; --json lists all, --plot draws all"
        )
    console.print(f"bound    {upward(found.bound)} for all together, proved in {found.seconds:.3g} s")


def verify(
    certificate: Annotated[
        str, typer.Argument(metavar="CERT", help="A saved answer of any kind, as from --certificate.")
    ],
    model: options.ModelArgument,
    reading: options.ReadingOptions,
    exact: Annotated[
        bool, option(None, "Prove it in ball arithmetic instead: independent code, slower (python-flint).", "--exact")
    ] = False,
    rules: Annotated[
        str | None,
        option("RULES", "Refuse proofs by other rules: core, or names with commas between them.", "--rules"),
    ] = None,
    other: Annotated[str | None, option("MODEL", "The second network of a difference.", "--other")] = None,
    controller: options.ControllerOption = None,
    json: options.JsonOption = False,
) -> None:
    """Prove a saved answer again for MODEL, with every rounding error accounted for.

    Nothing in the file is trusted. Exit code 0: proved. 1: not proved, or about another model. 2: unreadable file.

    [bold]Example[/bold]

      lipcert bound model.npz --center zeros --radius 0.5 --certificate bound.json

      lipcert verify bound.json model.npz
    """
    if model.lower().endswith(".json") and not certificate.lower().endswith(".json"):
        raise InvalidInput(f"the certificate comes first, then the model: lipcert verify {model} {certificate}")
    claim = load_answer(certificate)
    network = reading.step(model, controller)
    second = None if other is None else reading.network(other)
    started = time.perf_counter()
    try:
        accepted = rules if rules in (None, "core") else [name.strip() for name in rules.split(",")]
        proved, used = prove_again(network, claim, exact, accepted, second)
    except ProofFailed as error:
        if not json:
            raise
        output.print_json({"proved": False, "reason": str(error)})
        raise typer.Exit(1) from None
    seconds = time.perf_counter() - started
    if json:
        about = {"proved": True, "exact": exact, "rules": used, "seconds": seconds}
        output.print_json(_verified_record(claim, proved, about))
        return
    said = [_theorem(reading.name(model, controller), network, claim)]
    said += [f"Rules of the proof: {', '.join(used)}."] if used else []
    if exact:
        said.append(f"Derived in ball arithmetic in {seconds:.3g} seconds. It also holds for all weights and biases")
        said.append("within 2⁻⁵⁰ of these, relative to their size.")
    output.console().print("\n".join(said), soft_wrap=True)


def _verified_record(claim: Answer, proved: Any, record: dict[str, Any]) -> dict[str, Any]:
    """The proved statement in JSON's types."""
    if isinstance(claim, tuple):
        rows = zip(claim, proved, strict=True)
        return record | {
            "rows": [_verified_record(row.certificate, one, record | {"seconds": row.seconds}) for row, one in rows]
        }
    if isinstance(claim, CertifiedRadius):
        assert claim.proof is not None  # a file has one
        region = output.region_record(claim.proof.ball)
        return record | {"radius": claim.radius, "label": claim.label, "region": region}
    derived = {"derived": proved} if isinstance(claim, Certificate) else {}
    return record | derived | output.claim_record(claim)


def _theorem(name: str, network: Network, claim: Answer) -> str:
    """The proved statement in words; bounds are rounded outwards."""
    rows = [row.certificate for row in claim] if isinstance(claim, tuple) else [claim]
    lines = []
    for one in rows:
        where, said = wording.statement(one, network.depth)
        more = [f"  and {len(said) - _SHOWN} more"] if len(said) > _SHOWN else []
        lines += [f"[bold]Proved[/bold]: {where}", *(f"  {line.replace('−', '-')}" for line in said[:_SHOWN]), *more]
    about = f"where f is the real-number function of the float64 weights in {name} ({describe_network(network)})"
    if isinstance(claim, Certificate):
        about += "".join(f", {which}" for which in wording.restrictions(claim, network.depth))
    return "\n".join([*lines, f"{about}.", f"SHA-256 of the network: {network.digest}"])
