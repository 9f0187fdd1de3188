"""``lipcert compare`` and ``demo``: methods side by side."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from lipcert.cli import options, output
from lipcert.cli.options import option
from lipcert.cli.output import ask, deliver, drawing, showing
from lipcert.errors import InvalidInput, ProofFailed
from lipcert.methods.greedy import ClosedForm, Diagonal, Scalar
from lipcert.methods.joint import Joint
from lipcert.methods.lower import lower_bound
from lipcert.methods.method import Method
from lipcert.methods.split import Split
from lipcert.model.network import Network
from lipcert.model.regions import Ball, Everywhere, Region
from lipcert.published import Trivial
from lipcert.questions.certify import METHODS, certify
from lipcert.questions.compare import Comparison
from lipcert.questions.compare import compare as run_all
from lipcert.questions.tables import Cell, Table
from lipcert.reproduce.cells import paper_center, paper_network
from lipcert.runtime.clock import timed
from lipcert.show import plots
from lipcert.show.wording import describe_network, describe_region, upward


def compare(
    model: options.ModelArgument,
    where: options.RegionOptions,
    reading: options.ReadingOptions,
    methods: Annotated[
        str | None, option("NAME,NAME,…", f"Which methods: {', '.join(METHODS)}. \\[default: all]")
    ] = None,
    timeout: Annotated[float, option("SECONDS", "Limit for each method.")] = 60.0,
    seconds: options.SecondsOption = None,
    plot: Annotated[Path | None, option("FILE", "Draw bound against time there: .png, .pdf or .svg.")] = None,
    json: options.JsonOption = False,
) -> None:
    """Bound MODEL with every method of the literature and of lipcert, side by side.

    Each method runs in its own process with a time limit. A method that takes too long or does not apply says so in its
    row. Methods of the literature show the number that they publish; global methods ignore the region.

    [bold]Example[/bold]

      lipcert compare model.npz --activation relu --center zeros --radius 0.5 --timeout 20 --plot compare.png
    """
    options.check_figure(plot)
    names = None if methods is None else [name.strip() for name in methods.split(",")]
    with timed(seconds):
        network = reading.network(model)
        region = where.region(network)
        comparison, troubles = ask(run_all, network, region, names, timeout=timeout)
    shown = showing(json, _record, _print, network, region, comparison)
    deliver(troubles, shown, drawing(plot, plots.comparison, comparison))
    if all(row.bound is None for row in comparison.rows):
        raise ProofFailed("no method found a bound; a longer --timeout or other --methods may help")


def _record(network: Network, region: Region, comparison: Comparison) -> dict[str, Any]:
    about = {"network": output.network_record(network), "region": output.region_record(region)}
    return (
        about | output.lower_record(comparison.lower) | {"rows": [dataclasses.asdict(row) for row in comparison.rows]}
    )


def _print(console: Console, network: Network, region: Region, comparison: Comparison) -> None:
    console.print(output.grid([("network", describe_network(network)), ("region", describe_region(region))]), "")
    kinds = [row.published for row in comparison.rows]
    ends = {k for k, kind in enumerate(kinds) if kinds[k + 1 : k + 2] != [kind]}
    console.print(output.ruled(comparison.table().without("note"), ends))
    for row in comparison.rows:
        if row.note and row.status != "timeout":
            console.print(f"{row.name}: {row.note}", markup=False)
    console.print(
        "verified: proved, with rounding accounted for. certified: the bound of the method, in floating point."
    )
    if not region.bounded:
        console.print("All inputs: there is no lower bound to compare with. Give --center and --radius for one.")


LADDER: dict[str, Method] = {
    "closed-form": ClosedForm(),
    "scalar": Scalar(),
    "diagonal": Diagonal(),
    "joint": Joint(seconds=1.5),
    "split": Split(Joint(seconds=0.5), seconds=3.0),
}
"""The methods of the demonstration, the cheapest first. The last two would gain from more time."""


def demo(
    save: Annotated[Path | None, option("FILE.npz", "Also write the network to a file, to play with.")] = None,
) -> None:
    """Bound a small network with every method.

    Shows the trivial bound, a lower bound, and each method with its time, over all inputs and over a ball.

    [bold]Example[/bold]

      lipcert demo --save demo.npz

      lipcert bound demo.npz --center 0.4,1.8,-0.5,-1.3,0.9 --radius 0.1
    """
    console = output.console()
    network, ball = paper_network(width=40, layers=20, activation="relu"), Ball(paper_center(), 1.0)
    options.check_output("--save", save)
    if save is not None:
        if save.exists():
            raise InvalidInput(f"--save must name a new file, got {save}")
        network.save(save)
    console.print(output.grid([("network", describe_network(network)), ("region", describe_region(ball))]), "")
    lower, trivial = lower_bound(network, ball), certify(network, Everywhere(), Trivial())
    smallest = trivial.bound
    rows = [(Cell("trivial"), Cell.bound(smallest), Cell(), Cell(), Cell.number(trivial.seconds, ".2f"))]
    for name, method in LADDER.items():
        everywhere = None if isinstance(method, Split) else certify(network, Everywhere(), method).bound
        local = certify(network, ball, method)
        smallest = min(smallest, local.bound)
        found = Cell.bound(everywhere), Cell.bound(local.bound), Cell.number(local.bound / lower.value, ".3g")
        rows.append((Cell(name), *found, Cell.number(local.seconds, ".2f")))
    rows.append((Cell("lower bound"), Cell(), Cell.below(lower.value), Cell("1", 1.0), Cell()))
    headings = ("method", "over all inputs", "over the ball", "÷ lower bound", "seconds")
    console.print(output.ruled(Table("", headings, rows), ends={0, len(LADDER)}))
    console.print(
        f"\nIf an input moves by 0.01 inside the ball, the output moves by at most {upward(0.01 * smallest, 3)}. The"
        f" product of the layers' norms (trivial) only gives {upward(0.01 * trivial.bound, 3)}. Every row is valid, so"
        f" the smallest bound counts. It is at most {upward(smallest / lower.value, 3)} times the true constant.\n"
    )
    console.print("Next: another region, or a network of your own with arrays W1, b1, W2, b2, …:")
    if save is None:
        console.print("  lipcert demo --save demo.npz", style="bold")
    console.print(f"  lipcert bound {save or 'demo.npz'} --center zeros --radius 0.5", style="bold", soft_wrap=True)
