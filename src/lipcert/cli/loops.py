"""``lipcert tube`` and ``contraction``: answers about a loop x⁺ = step(x)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from lipcert.cli import options, output, parsing
from lipcert.cli.options import option
from lipcert.cli.output import ask, deliver, drawing, saving, showing
from lipcert.errors import InvalidInput, ProofFailed
from lipcert.model.network import Network
from lipcert.model.regions import Box
from lipcert.questions.loops.contraction import Contraction
from lipcert.questions.loops.contraction import contraction as contract
from lipcert.questions.loops.invariant import InvariantEllipsoid, invariant_ellipsoid
from lipcert.questions.loops.tube import Tube
from lipcert.questions.loops.tube import tube as enclose
from lipcert.runtime.clock import timed
from lipcert.show import plots, wording
from lipcert.show.wording import describe_network, describe_region, upward

_SHOWN = 60
"""Most rows of a table."""
_CORNERS = "LOWER UPPER"
DisturbanceOption = Annotated[
    tuple[str, str] | None, option(_CORNERS, "The inputs after the states, anew in every step.")
]
StepArgument = Annotated[str, typer.Argument(metavar="STEP", help="A model file: states to states, or a plant.")]


def tube(
    step: StepArgument,
    where: options.RegionOptions,
    reading: options.ReadingOptions,
    steps: Annotated[int, option("NUMBER", "How many steps.")],
    controller: options.ControllerOption = None,
    disturbance: DisturbanceOption = None,
    avoid: Annotated[
        tuple[str, str] | None, option(_CORNERS, "A box that no state may be in; exit code 1 if that is not proved.")
    ] = None,
    inside: Annotated[
        tuple[str, str] | None, option(_CORNERS, "A box that all states reach at one step; exit code 1 if not proved.")
    ] = None,
    method: options.MethodOption = None,
    plot: Annotated[Path | None, option("FILE", "Draw the boxes over time: .png, .pdf or .svg.")] = None,
    seconds: options.SecondsOption = None,
    certificate_file: options.CertificateOption = None,
    json: options.JsonOption = False,
) -> None:
    """Enclose the states of a loop x⁺ = STEP(x) after 1, 2, … steps by boxes.

    This is proved for the discrete steps; nothing is said of the time between them.

    [bold]Example[/bold]: the step as a model; or a linear plant, A and B in plant.npz, and its controller.

      lipcert tube step.onnx --box 0.4,-0.1 0.6,0.1 --steps 20 --avoid 2,-9 3,9

      lipcert tube plant.npz --controller controller.onnx --box 0.4,-0.1 0.6,0.1 --steps 20 --plot tube.png
    """
    options.check_figure(plot)
    options.check_output("--certificate", certificate_file, step, *([controller] if controller else []))
    with timed(seconds):
        network = reading.step(step, controller)
        states, given = network.outputs, (("--avoid", avoid), ("--inside", inside))
        region, force = where.region(network.select(range(states))), _force(network, disturbance)
        avoided, goal = (texts and Box(*parsing.corners(name, texts, states)) for name, texts in given)
        chosen = parsing.limited(method, None)
        found, troubles = ask(enclose, network, region, steps, chosen, disturbance=force, seconds=seconds)
    verdict: dict[str, Any] = {"avoids": found.avoids(avoided)} if avoided else {}
    verdict |= {"inside_after": found.inside(goal)} if goal else {}
    if verdict.get("avoids") is False:
        troubles.append(ProofFailed("not proved: that no state is in the box of --avoid"))
    if goal and verdict["inside_after"] is None:
        troubles.append(ProofFailed("not proved: that all states are in the box of --inside after some step"))
    shown = showing(json, _tube_record, _print_tube, network, found, verdict)
    deliver(troubles, saving(found, certificate_file), shown, drawing(plot, plots.tube, found, network))


def _force(network: Network, corners: tuple[str, str] | None) -> Box | None:
    """The box of ``--disturbance``."""
    if corners and network.inputs == network.outputs:
        raise InvalidInput("--disturbance: the step has no inputs after its states")
    return corners and Box(*parsing.corners("--disturbance", corners, network.inputs - network.outputs))


def _tube_record(network: Network, found: Tube, verdict: dict[str, Any]) -> dict[str, Any]:
    about = {"network": output.network_record(network), "seconds": found.seconds, "verified": True}
    return output.claim_record(found) | verdict | about


def _print_tube(console: Console, network: Network, found: Tube, verdict: dict[str, Any]) -> None:
    console.print(output.grid([("step", describe_network(network)), ("region", describe_region(found.region))]))
    console.print(output.ruled(wording.tube_table("", found, _SHOWN)))
    if verdict.get("avoids"):
        console.print("proved   no state is in the box of --avoid")
    if verdict.get("inside_after") is not None:
        console.print(f"proved   all states are in the box of --inside after {verdict['inside_after']} steps")
    console.print(f"proved in {found.seconds:.3g} s")


def contraction(
    step: StepArgument,
    where: options.RegionOptions,
    reading: options.ReadingOptions,
    controller: options.ControllerOption = None,
    disturbance: DisturbanceOption = None,
    invariant: Annotated[
        bool,
        option(
            None,
            "An ellipsoid around the equilibrium, inside --box, that the loop never leaves; a ball gives its centre.",
        ),
    ] = False,
    method: options.MethodOption = None,
    seconds: Annotated[float, option("NUMBER", "Time limit; the first proof may take longer.")] = 5.0,
    certificate_file: options.CertificateOption = None,
    json: options.JsonOption = False,
) -> None:
    """Find a norm in which a loop x⁺ = STEP(x) brings states of a region closer together, and prove how fast.

    Exit code 1: the rate that is proved is not below 1.

    [bold]Example[/bold]

      lipcert contraction step.onnx --box -0.5,-0.5 0.5,0.5
    """
    options.check_output("--certificate", certificate_file, step, *([controller] if controller else []))
    with timed(seconds):
        network = reading.step(step, controller)
        region, force = where.region(network.select(range(network.outputs))), _force(network, disturbance)
        found: Contraction | InvariantEllipsoid
        if invariant and not region.bounded:
            raise InvalidInput("--invariant needs --box, or a state near the equilibrium: --center with --radius")
        if invariant and force:
            raise InvalidInput("--invariant is about loops without --disturbance")
        if invariant:
            within = region if isinstance(region, Box) else None
            found, troubles = ask(invariant_ellipsoid, network, region.center, within=within, seconds=seconds)
        else:
            found, troubles = ask(contract, network, region, method, disturbance=force, seconds=seconds)
    if not found.rate < 1.0:
        troubles.append(ProofFailed(f"no contraction was proved: the rate is {upward(found.rate)}"))
    shown = showing(json, _contraction_record, _print_contraction, network, found)
    deliver(troubles, saving(found, certificate_file), shown)


def _contraction_record(network: Network, found: Contraction | InvariantEllipsoid) -> dict[str, Any]:
    about = {"network": output.network_record(network), "seconds": found.seconds, "verified": True}
    return output.claim_record(found) | about


def _print_contraction(console: Console, network: Network, found: Contraction | InvariantEllipsoid) -> None:
    where, said = wording.statement(found, network.depth)
    console.print(output.grid([("step", describe_network(network)), ("rate", f"[bold]{upward(found.rate)}[/bold]")]))
    console.print("\n".join([f"proved   {where}", *(f"  {line}" for line in said)]), soft_wrap=True, markup=False)
    console.print(f"in {found.seconds:.3g} s")
