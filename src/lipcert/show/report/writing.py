"""Write a report: sections from its sources, and the page as a file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lipcert.errors import InvalidInput
from lipcert.files.whole import require_writable, write_whole
from lipcert.model.network import Network
from lipcert.questions.campaign import Results
from lipcert.runtime.clock import timed
from lipcert.show.report.answers import Examined, answer_sections, examine
from lipcert.show.report.campaigns import campaign_section
from lipcert.show.report.page import Section, page
from lipcert.show.report.studies import study_sections

_SQLITE = b"SQLite format 3\x00"


@dataclass(frozen=True, eq=False)
class Written:
    """A page that was written.

    Attributes
    ----------
    path : the file.
    certificates : each source with an answer, and the result of its check.
    """

    path: Path
    certificates: tuple[Examined, ...]


def write(
    sources: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    models: Mapping[str, Network] | None = None,
    title: str | None = None,
) -> Written:
    """Write one self-contained HTML page about saved answers, campaigns and reproductions.

    Parameters
    ----------
    sources
        Any of: files with certificates, reach sets, sensitivities, certified radii or sweeps, results files of
        campaigns, and folders of ``lipcert reproduce``.
    out
        The page, an .html file, written completely or not at all.
    models
        Networks by name. Answers about one of them (by digest) are proved again, and bounds get a lower bound.
    title
        Title of the page.
    """
    paths, target, known = [Path(source) for source in sources], Path(out), dict(models or {})
    if not paths:
        raise InvalidInput("sources is empty; name certificate files, a campaign's .sqlite file, or a folder")
    if target.suffix.lower() not in (".html", ".htm") or not target.parent.is_dir():
        raise InvalidInput(f"a report must be an .html file in a folder that exists, got {target}")
    require_writable(target)
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise InvalidInput(f"there is no {', '.join(missing)}")
    claims = [path for path in paths if path.is_file() and not _is_database(path)]
    if known and not claims:
        raise InvalidInput("a model is of use for certificates only, and none is among the sources")
    sections: list[Section] = []
    with timed() as clock:
        examined = examine(claims, known, clock.say)
        sections += answer_sections(examined, bool(known))
        for path in paths:
            clock.say(f"reading {path.name}")
            if path.is_dir():
                sections += study_sections(path)
            elif path not in claims:
                sections.append(campaign_section(Results.read(path)))
    now = datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0")
    write_whole(target, page(title or "Certified Lipschitz bounds", sections, f"Written on {now}"))
    return Written(target, tuple(examined))


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from None
