"""``lipcert robust``: certify many points, into a file that can be resumed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from lipcert.cli import options, parsing
from lipcert.cli.results import show
from lipcert.errors import CampaignStopped, InvalidInput, ProofFailed
from lipcert.questions.campaign import Results, campaign, read_points
from lipcert.questions.names import OWN


@dataclass(frozen=True)
class CampaignOptions:
    """Options that :func:`campaign` takes as they are."""

    search: Annotated[bool, typer.Option("--search", help="Search the largest radius of each point.")] = False
    attack: Annotated[bool, typer.Option("--attack", help="Also search counterexamples.")] = False
    restarts: Annotated[int, typer.Option(metavar="N", help="Starts of each attack.")] = 9
    curvature: Annotated[
        bool | None,
        typer.Option(
            "--curvature/--no-curvature",
            help="Whether to use bounds to second order, which take most of the time. They work for up to ten hidden"
            " layers of 150 neurons or three of 250. Default: up to ten of 110 or three of 150.",
            show_default=False,
        ),
    ] = None
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="Try bounds over all inputs first, which are found only once.")
    ] = False
    values: Annotated[
        bool | None,
        typer.Option(
            "--values/--no-values",
            help="Whether to use value functions, which take seconds per point and suit networks with up to some"
            " hundred open neurons. Default: if --seconds-per-point is given.",
            show_default=False,
        ),
    ] = None
    seconds_per_point: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Time limit for each point; then its best result counts.")
    ] = None
    seconds: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Time limit for all points; the same command resumes.")
    ] = None
    workers: Annotated[int, typer.Option(metavar="N", help="Processes, each with one BLAS thread.")] = 1


def robust(
    model: options.ModelArgument,
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="An .npz file with x and optionally y, or a .csv file of points.")
    ],
    how: CampaignOptions,
    reading: options.ReadingOptions,
    out: Annotated[Path, typer.Option(metavar="FILE.sqlite", help="The results file, new or to be resumed.")],
    radii: Annotated[
        str | None, typer.Option("--radii", "--eps", metavar="R,R,…", help="Radii of the balls around each point.")
    ] = None,
    methods: Annotated[
        str, typer.Option(metavar="NAME,NAME,…", help=f"Which methods: {', '.join(OWN)}.")
    ] = "closed-form",
    clip: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="LOWER UPPER", help="Only inputs between these count, as in --clip 0 1 for images."),
    ] = None,
    norm: options.NormOption = "l2",
    input_scale: options.InputScaleOption = None,
    points: Annotated[
        str | None, typer.Option(metavar="N|A:B", help="The first N points only, or those from A to B - 1.")
    ] = None,
    dask: Annotated[
        str | None, typer.Option(metavar="tcp://…", help="A Dask cluster's scheduler instead (extra: dask).")
    ] = None,
    json: options.JsonOption = False,
) -> None:
    """Certify how far the points of DATA may be moved before MODEL classifies them differently.

    For every point, radius and method: a proved Lipschitz bound over the ball, and the radius within which no input is
    of another class. The class is the largest output; without labels the predicted class counts. Results are stored as
    they come. If a run is stopped, the same command resumes it.

    [bold]Example[/bold]: images with values between 0 and 1, on two processes; then the results as a CSV file.

      lipcert robust model.onnx test.npz --radii 0.5,0.1 --clip 0 1 --out run.sqlite --workers 2

      lipcert results run.sqlite --export run.csv

    The largest radius of each of the first hundred points, at most five seconds a point:

      lipcert robust model.onnx test.npz --search --seconds-per-point 5 --points 0:100 --out radii.sqlite

    How many points are certified, broken by a counterexample, or undecided after ten seconds:

      lipcert robust model.onnx test.npz --eps 1.0 --seconds-per-point 10 --attack --out verdicts.sqlite
    """
    network = reading.network(model)
    if radii is None and not how.search:
        raise InvalidInput("--radii must say how large the balls are, as in --radii 0.5,0.1; or --search finds out")
    if dask is not None and how.workers != 1:
        raise InvalidInput("--workers starts processes here, --dask works elsewhere; give one of them")
    if clip is not None and clip[0] > clip[1]:
        raise InvalidInput(f"--clip {clip[0]:g} {clip[1]:g}: the limits are swapped; give the lower one first")
    read = read_points(data, network)
    with _resumable(out), _cluster(dask) as executor:
        results = campaign(
            network,
            read.x,
            read.y,
            radii=() if radii is None else parsing.numbers("--radii", radii),
            out=out,
            methods=[parsing.method(name.strip()) for name in methods.split(",")],
            clip=clip,
            norm=parsing.norm("--norm", norm, input_scale),
            points=_points(points),
            executor=executor,
            names={"model": os.path.basename(model), "data": data.name},
            **asdict(how),
        )
    show(results, json)
    if not results.rows:
        raise CampaignStopped("time was up before the first point was done; the same command resumes")
    if all(row.bound is None for row in results.rows):
        raise ProofFailed("no ball has a bound; try smaller --radii or other --methods")


def _points(text: str | None) -> int | slice | None:
    """A number, or a range A:B of which either end may be left out."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d*):(\d*)|(\d+)", text.strip())
    if match is None:
        raise InvalidInput(f"--points must be a number or a range, as in 100 or 50:100; got {text!r}")
    if match[3]:
        return int(match[3])
    return slice(*(int(end) if end else None for end in (match[1], match[2])))


@contextmanager
def _resumable(out: Path) -> Iterator[None]:
    """On an interrupt, say what is stored and how to resume."""
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
