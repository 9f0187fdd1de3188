"""Answers in files: any kind of answer is saved and read here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeAlias

from lipcert.answers.certificate import Certificate
from lipcert.answers.radius import CertifiedRadius
from lipcert.answers.reach import Reach
from lipcert.answers.saved import Saved, check
from lipcert.answers.sensitivity import Sensitivity
from lipcert.errors import InvalidInput
from lipcert.files import documents
from lipcert.files.codec import Kind
from lipcert.questions.sweep import SweepRow

Answer: TypeAlias = Certificate | Reach | Sensitivity | CertifiedRadius | tuple[SweepRow, ...]
"""What can be saved and verified."""
_SINGLE: tuple[type[Saved], ...] = (Certificate, Reach, Sensitivity, CertifiedRadius)
_KINDS: dict[str, Kind] = {**{kind.kind: kind for kind in _SINGLE}, "sweep": [SweepRow]}


def save_answer(answer: Answer | Sequence[SweepRow], path: str | os.PathLike[str]) -> None:
    """Write an answer of whatever kind to a file, with what proves it.

    Certificates, reach sets, sensitivities and certified radii have a method ``save`` that does the same; the rows of a
    sweep have not.

    Parameters
    ----------
    answer
        What ``certify``, ``reach``, ``sensitivity``, ``certified_radius`` or ``sweep`` returned.
    path
        A JSON file; it appears whole or not at all.
    """
    if are_rows(answer):
        _check(answer)
        documents.write(path, "sweep", _KINDS["sweep"], answer)
    elif type(answer) in _SINGLE and isinstance(answer, Saved):
        answer.save(path)
    else:
        raise InvalidInput(f"answer must be what a question returned, got {type(answer).__name__}")


def load_answer(path: str | os.PathLike[str]) -> Answer:
    """The answer that a file holds, of whatever kind; nothing in it is believed before :func:`verify`.

    Of a sweep only the certificates can be verified; lower and trivial bounds are what the file says.

    Parameters
    ----------
    path
        What :func:`save_answer`, a method ``save`` or ``--certificate`` of a command wrote.

    Raises
    ------
    UnreadableCertificate
        If the file is none of these, or damaged.
    """
    found: Answer = documents.read(path, _KINDS, _check)
    return found


def are_rows(answer: Any) -> bool:
    """Whether an answer is the rows of a sweep."""
    return isinstance(answer, Sequence) and len(answer) > 0 and all(isinstance(row, SweepRow) for row in answer)


def _check(answer: Any) -> None:
    if not isinstance(answer, Saved) and not are_rows(answer):
        raise InvalidInput("a sweep must have rows")
    for one in [answer] if isinstance(answer, Saved) else [row.certificate for row in answer]:
        check(one)
