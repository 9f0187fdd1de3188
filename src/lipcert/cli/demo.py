"""``lipcert demo``: the methods on a network that comes along."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lipcert.cli.output import aligned, console
from lipcert.errors import InvalidInput
from lipcert.importers.arrays import write_npz
from lipcert.methods.closed_form import ClosedForm
from lipcert.methods.diagonal import Diagonal
from lipcert.methods.joint import Joint
from lipcert.methods.lower import lower_bound
from lipcert.methods.method import Method
from lipcert.methods.scalar import Scalar
from lipcert.methods.split import Split
from lipcert.model.regions import Ball, Everywhere
from lipcert.published import Trivial
from lipcert.questions.certify import certify
from lipcert.reproduce.cells import paper_center, paper_network
from lipcert.show.wording import describe_network, describe_region, downward, upward

LADDER: dict[str, Method] = {
    "closed-form": ClosedForm(),
    "scalar": Scalar(),
    "diagonal": Diagonal(),
    "joint": Joint(seconds=1.5),
    "split": Split(Joint(seconds=0.5), seconds=3.0),
}
"""The methods, the cheapest first. The last two would gain from more time than a demonstration has."""


def demo(
    save: Annotated[
        Path | None, typer.Option(metavar="FILE.npz", help="Also write the network to a file, to play with.")
    ] = None,
) -> None:
    """Bound a small network with every method.

    Shows the trivial bound, a lower bound, and each method with its time, over all inputs and over a ball.

    [bold]Example[/bold]

      lipcert demo --save demo.npz

      lipcert bound demo.npz --center 0.4,1.8,-0.5,-1.3,0.9 --radius 0.1
    """
    out = console()
    network, ball = paper_network(width=40, layers=20, activation="relu"), Ball(paper_center(), 1.0)
    if save is not None:
        if save.suffix.lower() != ".npz" or save.exists() or not save.parent.is_dir():
            raise InvalidInput(f"--save must name a new .npz file in a folder that exists, got {save}")
        write_npz(save, network, "relu")
    out.print(f"network  {describe_network(network)}\nregion   {describe_region(ball)}\n")
    lower, trivial = lower_bound(network, ball), certify(network, Everywhere(), Trivial())
    table = aligned(1, "method", "over all inputs", "over the ball", "÷ lower bound", "seconds")
    table.add_row("trivial", upward(trivial.bound, 4), "", "", f"{trivial.seconds:.2f}", end_section=True)
    smallest = trivial.bound
    for name, method in LADDER.items():
        everywhere = "" if isinstance(method, Split) else upward(certify(network, Everywhere(), method).bound, 4)
        local = certify(network, ball, method)
        smallest = min(smallest, local.bound)
        ratio, seconds = f"{local.bound / lower.value:.3g}", f"{local.seconds:.2f}"
        table.add_row(name, everywhere, upward(local.bound, 4), ratio, seconds, end_section=name == list(LADDER)[-1])
    table.add_row("lower bound", "", downward(lower.value, 4), "1", "")
    out.print(table)
    out.print(
        f"\nIf an input moves by 0.01 inside the ball, the output moves by at most {upward(0.01 * smallest, 3)}. The"
        f" product of the layers' norms (trivial) only gives {upward(0.01 * trivial.bound, 3)}. Every row is valid, so"
        f" the smallest bound counts. It is at most {upward(smallest / lower.value, 3)} times the true constant.\n"
    )
    out.print("Next: the same network with another region, or your own with arrays W1, b1, W2, b2, …:")
    if save is None:
        out.print("  lipcert demo --save demo.npz", style="bold")
    out.print(f"  lipcert bound {save or 'demo.npz'} --center zeros --radius 0.5", style="bold", soft_wrap=True)
