"""``lipcert bound``, ``sweep``, ``reach``, ``sensitivity``: answers about one network; and ``verify``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from lipcert.answers.certificate import Certificate
from lipcert.answers.radius import CertifiedRadius
from lipcert.answers.reach import Reach
from lipcert.answers.sensitivity import Sensitivity
from lipcert.cli import options, output, parsing
from lipcert.cli.options import PART, option
from lipcert.cli.output import Later, show
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
from lipcert.show import plots, wording
from lipcert.show.wording import describe_network, describe_region, downward, measured, upward

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
    origin? And how fast everywhere?

      lipcert bound model.npz --activation relu --center zeros --radius 0.5

      lipcert bound model.npz --activation relu

      lipcert bound model.npz --activation relu --center zeros --radius 0.5 --exact --seconds 20

    A controller whose inputs are radians and revolutions a minute, within one unit of each:

      lipcert bound controller.npz --center 0,1500 --radius 1 --norm linf --input-norm linf --input-scale 0.1,100
    """
    if exact and method is not None:
        raise InvalidInput("--exact chooses the method itself; leave out --method")
    chosen = parsing.limited(Split(tolerance=_EXACT) if exact else method, seconds)
    options.check_output("--certificate", certificate_file, model)
    with Later() as later:
        with options.limit(seconds) as clock:
            network = reading.network(model)
            region = where.region(network)
            part: dict[str, Any] = {
                "inputs": parsing.indices("--inputs", inputs),
                "outputs": parsing.indices("--outputs", outputs),
                "layers": parsing.span("--layers", layers),
                **norms.arguments(where.input_scale),
            }
            with clock.keeping(_SHARE * (seconds or 0.0) if lower else 0.0):
                certificate = later.best(certify, network, region, chosen, **part)
            later.save(certificate, certificate_file)
            below = later.extra(lower_bound_of, network, certificate) if lower else None
        show(json, _bound_record, _print_bound, network, certificate, below)


def _bound_record(network: Network, certificate: Certificate, below: LowerBound | None) -> dict[str, Any]:
    return {
        "bound": certificate.bound,
        **output.lower_record(certificate.bound, below),
        "method": output.method_record(certificate.method),
        "region": output.region_record(certificate.region),
        "network": output.network_record(network),
        **output.part_record(certificate.part),
        "seconds": certificate.seconds,
        "verified": certificate.verified,
        **({"note": certificate.note} if certificate.note else {}),
    }


def _print_bound(console: Console, network: Network, certificate: Certificate, below: LowerBound | None) -> None:
    part, ratio = certificate.part, None if below is None else output.ratio(certificate.bound, below)
    layers = "" if part.layers == (0, network.depth) else f"{part.layers[0]}:{part.layers[1]}"
    facts = {
        "bound": f"[bold]{upward(certificate.bound)}[/bold]",
        "norms": measured(part.norms),
        "lower bound": "" if below is None else downward(below.value),
        "ratio": "" if ratio is None else f"{ratio:.4g}",
        "method": repr(certificate.method),
        "found by": "" if certificate.found_by == type(certificate.method).__name__ else certificate.found_by,
        "region": describe_region(certificate.region),
        "network": describe_network(network),
        "layers": layers,
        "inputs": ", ".join(map(str, part.inputs or ())),
        "outputs": ", ".join(map(str, part.outputs or ())),
        "seconds": f"{certificate.seconds:.3g}",
        "verified": "yes" if certificate.verified else "no (floating point, rounding not accounted for)",
        "note": certificate.note,
    }
    console.print(output.grid([(name, fact) for name, fact in facts.items() if fact]))


_radii = "Radii (as a list, or evenly on a logarithmic scale)"


def sweep(
    model: options.ModelArgument,
    where: options.CenterOptions,
    norms: options.NormOptions,
    reading: options.ReadingOptions,
    radii: Annotated[str | None, option("R,R,…", "Radii, in any order.", panel=_radii)] = None,
    start: Annotated[float | None, option("NUMBER", "Smallest radius.", "--from", panel=_radii)] = None,
    stop: Annotated[float | None, option("NUMBER", "Largest radius.", "--to", panel=_radii)] = None,
    count: Annotated[int | None, option("N", "How many, both ends included.", panel=_radii)] = None,
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

      lipcert sweep model.npz --center zeros --radii 1,0.5,0.1

      lipcert sweep model.npz --center zeros --from 0.001 --to 1 --count 13 --plot curve.png
    """
    sizes = _sizes(radii, start, stop, count)
    chosen = parsing.limited(method, seconds, Joint())
    options.check_figure(plot)
    options.check_output("--certificate", certificate_file, model)
    if where.center is None:
        raise InvalidInput("sweep needs --center: a file, numbers separated by commas, or zeros")
    with Later() as later:
        with options.limit(seconds):
            network = reading.network(model)
            largest, ends = where.ball(network, max(sizes)), norms.arguments(where.input_scale)
            rows = later.best(bounds, network, largest, sizes, chosen, lower=lower, **ends)
        later.save(rows, certificate_file)
        later.attempt(show, json, _sweep_record, _print_sweep, network, largest, chosen, rows)
        later.draw(plot, plots.radius_curve, rows, None, describe_network(network))


def _sizes(text: str | None, start: float | None, stop: float | None, count: int | None) -> list[float]:
    if text is not None:
        if (start, stop, count) != (None, None, None):
            raise InvalidInput("--radii lists the radii; leave out --from, --to and --count")
        return parsing.numbers("--radii", text)
    if start is None or stop is None:
        raise InvalidInput("sweep needs --radii, as in 1,0.5,0.1, or --from and --to")
    if not 0 < start <= stop < np.inf:
        raise InvalidInput(f"--from and --to must be numbers with 0 < from <= to, got {start} and {stop}")
    if count is not None and count < 1:
        raise InvalidInput(f"--count must be at least 1, got {count}")
    return np.geomspace(stop, start, count or 10).tolist()


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
    layer: Annotated[int | None, option("I", "An inner layer, from 1: its values before the activation.")] = None,
    plot: Annotated[
        Path | None, option("FILE", "Draw two outputs, their box, ellipsoid and samples: .png, .pdf or .svg.")
    ] = None,
    axes: Annotated[str, option("I,J", "The two outputs to draw.")] = "0,1",
    values: Annotated[
        bool, option(None, "Also bound each output by value functions: ℓ2 balls only, slower.", "--values")
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
    options.check_figure(plot)
    options.check_output("--certificate", certificate_file, model)
    with Later() as later:
        with options.limit(seconds):
            network = reading.network(model)
            region = where.region(network)
            if not region.bounded:
                raise InvalidInput("reach needs a bounded region: give --center and --radius, or --box")
            drawn = network.sizes[layer] if layer is not None and 0 < layer <= network.depth else network.outputs
            if plot is not None and drawn > 1:
                plots.check_pair((pair[0], pair[-1]), drawn)
            chosen = parsing.limited(method, seconds)
            found = later.best(enclose, network, region, chosen, layer=layer, values=values)
        later.save(found, certificate_file)
        later.attempt(show, json, _reach_record, _print_reach, network, found)
        later.draw(plot, plots.reach_set, found, network, (pair[0], pair[-1]))


def _reach_record(network: Network, found: Reach) -> dict[str, Any]:
    sets = {"center": found.center.tolist(), "shape": found.shape.tolist()}
    return _claim_record(found) | sets | _proved_record(network, found.seconds)


def _proved_record(network: Network, seconds: float) -> dict[str, Any]:
    about = {"digest": network.digest, "sizes": list(network.sizes)}
    return {"network": about, "seconds": seconds, "verified": True}


def _print_reach(console: Console, network: Network, found: Reach) -> None:
    _print_head(console, network, describe_region(found.region))
    if found.layer != network.depth:
        console.print(f"layer    {found.layer}, before its activation")
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

      lipcert sensitivity model.npz --center zeros --radius 0.1

      lipcert sensitivity model.npz --box -1 1 --inputs 0,2 --plot map.png
    """
    options.check_figure(plot)
    options.check_output("--certificate", certificate_file, model)
    with Later() as later:
        with options.limit(seconds):
            network = reading.network(model)
            which = {"inputs": parsing.indices("--inputs", inputs), "outputs": parsing.indices("--outputs", outputs)}
            chosen = parsing.limited(method, seconds)
            found = later.best(matrix_of, network, where.region(network), chosen, **which)
        later.save(found, certificate_file)
        later.attempt(show, json, _sensitivity_record, _print_sensitivity, network, found)
        later.draw(plot, plots.sensitivity_map, found)


def _sensitivity_record(network: Network, found: Sensitivity) -> dict[str, Any]:
    first = {name: [group[0] for group in getattr(found, name)] for name in ("outputs", "inputs")}
    return _claim_record(found) | first | _proved_record(network, found.seconds)


def _print_sensitivity(console: Console, network: Network, found: Sensitivity) -> None:
    _print_head(console, network, describe_region(found.region))
    fits = max(1, min((console.width - 10) // 12, len(found.inputs)))
    most = {"inputs": found.matrix.max(axis=0), "outputs": found.matrix.max(axis=1)}
    largest = {name: np.argsort(-bounds, kind="stable") for name, bounds in most.items()}
    columns, rows = sorted(largest["inputs"][:fits].tolist()), sorted(largest["outputs"][:_SHOWN].tolist())
    name_of = ["+".join(map(str, group)) for group in found.outputs]
    headings = ["output", *(f"input {'+'.join(map(str, found.inputs[k]))}" for k in columns)]
    cells = [[Cell(name_of[i]), *(Cell.bound(float(found.matrix[i, k])) for k in columns)] for i in rows]
    console.print(output.ruled(Table("", headings, cells)))
    for name, shown in (("inputs", fits), ("outputs", _SHOWN)):
        out = largest[name][shown:]
        if out.size:
            console.print(
                f"left out: {out.size} of {len(most[name])} {name}, those with the smallest bounds, none above"
                f" {upward(float(most[name][out].max()), 4)}; --json lists all, --plot draws all"
            )
    console.print(f"bound    {upward(found.bound)} for all together, proved in {found.seconds:.3g} s")


def verify(
    certificate: Annotated[
        str, typer.Argument(metavar="CERT", help="A file of --certificate of bound, sweep, reach or sensitivity.")
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
        accepted = rules if rules in (None, "core") else [name.strip() for name in rules.split(",")]
        proved, used = prove_again(network, claim, exact, accepted)
    except ProofFailed as error:
        if not json:
            raise
        output.print_json({"proved": False, "reason": str(error)})
        raise typer.Exit(1) from None
    seconds = time.perf_counter() - started
    if json:
        output.print_json(
            _verified_record(claim, proved, {"proved": True, "exact": exact, "rules": used, "seconds": seconds})
        )
        return
    said = [_theorem(reading.name(model), network, claim)]
    said += [f"Rules of the proof: {', '.join(used)}."] if used else []
    if exact:
        said.append(f"Derived in ball arithmetic in {seconds:.3g} seconds. It also holds for all weights and biases")
        said.append("within 2⁻⁵⁰ of these, relative to their size.")
    output.console().print("\n".join(said), soft_wrap=True)


def _claim_record(claim: Reach | Sensitivity | Certificate) -> dict[str, Any]:
    found = {"bound": claim.bound, "region": output.region_record(claim.region), "network": claim.network}
    if isinstance(claim, Reach):
        return found | {"lower": claim.lower.tolist(), "upper": claim.upper.tolist(), "layer": claim.layer}
    if isinstance(claim, Sensitivity):
        return found | {"matrix": claim.matrix.tolist(), "outputs": claim.outputs, "inputs": claim.inputs}
    return found | output.part_record(claim.part)


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
    return record | derived | _claim_record(claim)


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
        about += "".join(f", {which}" for which in wording.restrictions(claim.part, network.depth))
    return "\n".join([*lines, f"{about}.", f"SHA-256 of the network: {network.digest}"])
