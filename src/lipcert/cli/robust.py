"""``lipcert robust``: certify many points, into a file that can be resumed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from lipcert.cli import options
from lipcert.cli.groups import ReadingOptions
from lipcert.cli.methods import METHODS, method
from lipcert.cli.results import show
from lipcert.errors import CampaignStopped, InvalidInput, ProofFailed
from lipcert.questions.campaign import Results, campaign, read_points


def robust(
    model: options.ModelArgument,
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="An .npz file with x and optionally y, or a .csv file of points.")
    ],
    reading: ReadingOptions,
    out: Annotated[Path, typer.Option(metavar="FILE.sqlite", help="Where results go, and are resumed from.")],
    radii: Annotated[
        str | None, typer.Option("--radii", "--eps", metavar="R,R,…", help="Radii of the balls around each point.")
    ] = None,
    search: Annotated[bool, typer.Option("--search", help="Search for the largest radius of each point.")] = False,
    methods: Annotated[
        str, typer.Option(metavar="NAME,NAME,…", help=f"Which methods: {', '.join(METHODS)}.")
    ] = "closed-form",
    clip: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="LOWER UPPER", help="Only inputs between these count, as in --clip 0 1 for images."),
    ] = None,
    norm: Annotated[
        str, typer.Option("--norm", metavar="l1|l2|linf", help="Norm of the balls, in the units of --input-scale.")
    ] = "l2",
    input_scale: Annotated[
        str | None, typer.Option(metavar="NUMBERS|FILE", help="What one unit of each input is, as in 0.1,100.")
    ] = None,
    attack: Annotated[bool, typer.Option("--attack", help="Search for inputs of another class too.")] = False,
    restarts: Annotated[int, typer.Option(metavar="N", help="Starts of each attack.")] = 9,
    curvature: Annotated[
        bool | None,
        typer.Option(
            "--curvature/--no-curvature",
            help="Whether to settle what is open by a bound to second order, which takes most of the time. It works for"
            " up to ten hidden layers of 150 neurons or three of 250; the default is to use it for up to ten of 110 or"
            " three of 150.",
            show_default=False,
        ),
    ] = None,
    everywhere: Annotated[
        bool,
        typer.Option("--everywhere", help="Try bounds for all inputs first, found once: quick for large networks."),
    ] = False,
    values: Annotated[
        bool | None,
        typer.Option(
            "--values/--no-values",
            help="Whether to settle what is still open by value functions, which take seconds per point. They are for"
            " up to some hundred open neurons; the default is to use them if --seconds-per-point is given.",
            show_default=False,
        ),
    ] = None,
    points: Annotated[
        str | None, typer.Option(metavar="N|A:B", help="The first N points only, or those from A to B - 1.")
    ] = None,
    seconds_per_point: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="How long a point may take; then the best so far counts.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="How long all of it may take; the same command goes on.")
    ] = None,
    workers: Annotated[int, typer.Option(metavar="N", help="Processes, each with one BLAS thread.")] = 1,
    dask: Annotated[
        str | None, typer.Option(metavar="tcp://…", help="A Dask cluster's scheduler instead (extra: dask).")
    ] = None,
    json: options.JsonOption = False,
) -> None:
    """Certify how far the points of DATA may be moved before MODEL classifies them differently.

    For every point, radius and method: a proved Lipschitz bound over the ball, and the radius up to which no input is
    of another class. The largest output is the class; without labels the predicted class counts. Results are stored as
    they come. A run that was stopped in whatever way is resumed by the same command; nothing is computed twice.

    [bold]Example[/bold]: images of numbers between 0 and 1, two processes; then the table once more, and as a CSV file.

      lipcert robust model.onnx test.npz --radii 0.5,0.1 --clip 0 1 --out run.sqlite --workers 2

      lipcert results run.sqlite --export run.csv

    The largest radius of each of the first hundred points, at most five seconds a point:

      lipcert robust model.onnx test.npz --search --seconds-per-point 5 --points 0:100 --out radii.sqlite

    How many are verified, broken (by an attack, or on the way to a proof), or undecided after ten seconds:

      lipcert robust model.onnx test.npz --eps 1.0 --seconds-per-point 10 --attack --out verdicts.sqlite
    """
    network = reading.network(model)
    if radii is None and not search:
        raise InvalidInput("--radii must say how large the balls are, as in --radii 0.5,0.1; or --search finds out")
    if dask is not None and workers != 1:
        raise InvalidInput("--workers starts processes here, --dask works elsewhere; give one of them")
    if clip is not None and clip[0] > clip[1]:
        raise InvalidInput(f"--clip {clip[0]:g} {clip[1]:g}: the limits are swapped; give the lower one first")
    read = read_points(data, network)
    with _resumable(out), _cluster(dask) as executor:
        results = campaign(
            network,
            read.x,
            read.y,
            radii=() if radii is None else options.numbers("--radii", radii),
            out=out,
            search=search,
            methods=[method(name.strip()) for name in methods.split(",")],
            clip=clip,
            norm=options.norm("--norm", norm, input_scale),
            attack=attack,
            restarts=restarts,
            curvature=curvature,
            values=values,
            everywhere=everywhere,
            points=_points(points),
            seconds=seconds,
            seconds_per_point=seconds_per_point,
            workers=workers,
            executor=executor,
            names={"model": os.path.basename(model), "data": data.name},
        )
    show(results, json)
    if not results.rows:
        raise CampaignStopped("time was up before the first point was done; the same command goes on")
    if all(row.bound is None for row in results.rows):
        raise ProofFailed("no ball has a bound; try smaller --radii or other --methods")


def _points(text: str | None) -> int | slice | None:
    """A number, or a range A:B of which either end may be left out."""
    match = re.fullmatch(r"(\d*):(\d*)|(\d+)", "" if text is None else text.strip())
    if text is None or match is None:
        if text is not None:
            raise InvalidInput(f"--points must be a number or a range, as in 100 or 50:100; got {text!r}")
        return None
    if match[3]:
        return int(match[3])
    return slice(*(int(end) if end else None for end in (match[1], match[2])))


@contextmanager
def _resumable(out: Path) -> Iterator[None]:
    """An interrupt says what is stored, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        stored = len({row.point for row in Results.read(out).rows}) if out.exists() else 0
        points = "1 point is" if stored == 1 else f"{stored} points are"
        raise KeyboardInterrupt(f"interrupted; {points} stored in {out}, and the same command resumes") from None


@contextmanager
def _cluster(address: str | None) -> Iterator[Executor | None]:
    if address is None:
        yield None
        return
    try:
        import distributed
    except ImportError:
        raise InvalidInput("--dask needs the package distributed: pip install 'lipcert[dask]'") from None
    connect: Any = distributed.Client  # its own annotations are incomplete
    try:
        client = connect(address, timeout="30s")
    except (OSError, ValueError) as error:
        raise CampaignStopped(f"no Dask scheduler answers at {address}: {error}") from None
    with client:
        yield client.get_executor()
