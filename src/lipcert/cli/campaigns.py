"""``lipcert robust`` and ``results``: many points, certified into a file that can be resumed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from lipcert.cli import options, output, parsing
from lipcert.cli.options import option
from lipcert.cli.output import deliver
from lipcert.errors import CampaignStopped, InvalidInput, ProofFailed
from lipcert.questions.campaign import Results, Summary, campaign, read_points, summarise
from lipcert.questions.campaign.results import export as write
from lipcert.questions.campaign.results import summary_table
from lipcert.questions.certify import OWN


@dataclass(frozen=True)
class CampaignOptions:
    """Options that :func:`campaign` takes as they are."""

    search: Annotated[bool, option(None, "Search the largest radius of each point.", "--search")] = False
    attack: Annotated[bool, option(None, "Also search counterexamples.", "--attack")] = False
    restarts: Annotated[int, option("N", "Starts of each attack.")] = 9
    curvature: Annotated[
        bool | None,
        option(
            None,
            "Whether to use second-order bounds, which take most of the time. Default: in networks of up to ten hidden"
            " layers of 110 neurons or three of 150.",
            "--curvature/--no-curvature",
            show_default=False,
        ),
    ] = None
    values: Annotated[
        bool | None,
        option(
            None,
            "Whether to use the semidefinite dual bound, which takes seconds per point. Default: with a limit for each"
            " point.",
            "--values/--no-values",
            show_default=False,
        ),
    ] = None
    seconds_per_point: Annotated[
        float | None, option("NUMBER", "Time limit for each point; then its best result counts.")
    ] = None
    seconds: Annotated[float | None, option("NUMBER", "Time limit for all points; the same command resumes.")] = None
    workers: Annotated[int, option("N", "Processes, each with one BLAS thread.")] = 1


def robust(
    model: options.ModelArgument,
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="An .npz file with x and optionally y, or a .csv file of points.")
    ],
    how: CampaignOptions,
    reading: options.ReadingOptions,
    out: Annotated[Path, option("FILE.sqlite", "The results file, new or to be resumed.")],
    radii: Annotated[str | None, option("R,R,…", "Radii of the balls around each point.", "--radii", "--eps")] = None,
    methods: Annotated[str, option("NAME,NAME,…", f"Which methods: {', '.join(OWN)}.")] = "closed-form",
    clip: Annotated[
        tuple[float, float] | None,
        option("LOWER UPPER", "Only inputs between these count, as in --clip 0 1 for images."),
    ] = None,
    norm: options.NormOption = "l2",
    input_scale: options.InputScaleOption = None,
    points: Annotated[str | None, option("N|A:B", "The first N points only, or those from A to B - 1.")] = None,
    dask: Annotated[str | None, option("tcp://…", "A Dask cluster's scheduler instead (extra: dask).")] = None,
    json: options.JsonOption = False,
) -> None:
    """Certify how far the points of DATA may be moved before MODEL classifies them differently.

    For every point, radius and method: a proved Lipschitz bound over the ball, and the radius within which no input is
    of another class. The class is the largest output; without labels the predicted class counts. Results are stored as
    they come. If a run is stopped, the same command resumes it.

    [bold]Example[/bold]: images with values between 0 and 1, on two processes; then how many of the first hundred
    points are certified, broken by a counterexample, or undecided after ten seconds.

      lipcert robust model.onnx test.npz --radii 0.5,0.1 --clip 0 1 --out run.sqlite --workers 2

      lipcert robust model.onnx test.npz --radii 1 --points 0:100 --seconds-per-point 10 --attack --out verdicts.sqlite
    """
    network = reading.network(model)
    if radii is None and not how.search:
        raise InvalidInput("--radii must say how large the balls are, as in --radii 0.5,0.1; or --search finds out")
    if dask is not None and how.workers != 1:
        raise InvalidInput("--workers starts processes here, --dask works elsewhere; give one of them")
    if clip is not None and clip[0] > clip[1]:
        raise InvalidInput(f"--clip {clip[0]:g} {clip[1]:g}: the limits are swapped; give the lower one first")
    read = read_points(data, network)
    with _cluster(dask) as executor:
        found = campaign(
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
    _show(found, json)
    if not found.rows:
        raise CampaignStopped("time was up before the first point was done; the same command resumes")
    if all(row.bound is None for row in found.rows):
        raise ProofFailed("no ball has a bound; try smaller --radii or other --methods")


def _points(text: str | None) -> int | slice | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d*)(:?)(\d*)", text.strip())
    if match is None or match[0] in ("", ":"):
        raise InvalidInput(f"--points must be a number or a range, as in 100 or 50:100; got {text!r}")
    first, last = (int(part) if part else None for part in (match[1], match[3]))
    return slice(first, last) if match[2] else first


@contextmanager
def _cluster(address: str | None) -> Iterator[Executor | None]:
    if address is None:
        yield None
        return
    try:
        import distributed

        connect: Any = distributed.Client  # its own annotations are incomplete
        client = connect(address, timeout="30s")
    except ImportError:
        raise InvalidInput("--dask needs the package distributed: pip install 'lipcert[dask]'") from None
    except (OSError, ValueError) as error:
        raise CampaignStopped(f"no Dask scheduler answers at {address}: {error}") from None
    with client:
        yield client.get_executor()


def results(
    file: Annotated[Path, typer.Argument(metavar="FILE.sqlite", help="What lipcert robust wrote.")],
    export: Annotated[Path | None, option("FILE", "Write all rows to a .csv or .json file.")] = None,
    json: options.JsonOption = False,
) -> None:
    """Show what a campaign has found, also while it is running.

    certified: the whole ball is proved to be of one class. plain: the same by the rule margin/(√2·bound). unbroken: no
    attack succeeded, so this is an upper limit for certified. broken: an attack, or the search for a proof, found a
    counterexample. undecided: neither certified nor broken. An export has a row per point, with the kind of proof
    (column basis) and the time (column seconds).

    [bold]Example[/bold]

      lipcert results run.sqlite --export run.csv
    """
    options.check_output("--export", export, file)
    found = Results.read(file)
    deliver([], partial(_show, found, json), None if export is None else partial(write, found, export))


def _show(found: Results, json: bool) -> None:
    summaries = summarise(found)
    if json:
        record = {"about": found.about, "seconds": found.seconds, "rows": len(found.rows)}
        output.print_json({**record, "summary": [asdict(summary) for summary in summaries]})
        return
    out = output.console()
    for (network, method), part in groupby(summaries, key=lambda summary: (summary.network, summary.method)):
        out.print(f"[bold]{escape(method)}[/bold], network {network[:12]}…")
        table = summary_table("", list(part)).without("method", "without bound")
        out.print(output.ruled(table, compact=True))
    for summary in summaries:
        out.print(_counts(summary), soft_wrap=True)
    problems = sum(summary.problems for summary in summaries)
    out.print(f"{len(found.rows)} rows in {found.path}, {found.seconds:.3g} s of work", soft_wrap=True)
    norm = found.about.get("norm")
    if isinstance(norm, dict):
        units = ", in units of their own" if "scale" in norm else ""
        out.print(f"radii and bounds in the {norm['name']} norm of inputs{units}")
    if problems:
        out.print(f"{problems} rows have no bound; --export says why in the column problem")


def _counts(summary: Summary) -> str:
    size = f"radius {summary.radius:g}" if summary.radius > 0.0 else "searched"
    ways = ", ".join(f"{count} by {basis}" for basis, count in sorted(summary.bases.items())) or "none"
    rest = ""
    if summary.broken is not None and summary.undecided is not None:
        rest = f"; broken {100 * summary.broken:.2f}%, undecided {100 * summary.undecided:.2f}%"
    return f"{size}: certified {ways}{rest}; {summary.seconds:.3g} s a point, {summary.longest:.3g} s at most"
