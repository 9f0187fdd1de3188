"""Answers in files: any kind of answer is saved and read here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from lipcert.answers.certificate import Certificate
from lipcert.answers.radius import CertifiedRadius
from lipcert.answers.reach import Reach
from lipcert.answers.saved import Saved
from lipcert.answers.sensitivity import Sensitivity
from lipcert.errors import InvalidInput
from lipcert.files import documents
from lipcert.files.codec import Kind
from lipcert.questions.sweep import SweepRow

Answer: TypeAlias = Certificate | Reach | Sensitivity | CertifiedRadius | tuple[SweepRow, ...]
"""What can be saved and verified."""
_KINDS: dict[str, Kind] = {
    "bound": Certificate,
    "reach": Reach,
    "sensitivity": Sensitivity,
    "radius": CertifiedRadius,
    "sweep": [SweepRow],
}


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
    name = "sweep" if are_rows(answer) else next((name for name in _KINDS if _KINDS[name] is type(answer)), None)
    if name is None:
        raise InvalidInput(f"answer must be what a question returned, got {type(answer).__name__}")
    _check(answer)
    documents.write(path, name, _KINDS[name], answer)


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
    """An error unless the parts of an answer fit together and something is there to prove it from."""
    if isinstance(answer, Certificate):
        if not 0.0 <= answer.bound < np.inf:
            raise InvalidInput(f"a certificate must have a finite bound of at least 0, got {answer.bound}")
    elif isinstance(answer, CertifiedRadius):
        if answer.proof is None or not answer.radius > 0.0 or not answer.basis:
            raise InvalidInput("a certified radius in a file must be positive and have a proof")
    elif isinstance(answer, (Reach, Sensitivity)):
        if not answer.proofs:
            raise InvalidInput("an answer in a file must have what proves it; ask for it again")
        if not (_sizes_agree(answer) if isinstance(answer, Reach) else _groups_agree(answer)):
            raise InvalidInput("the arrays of an answer are for different numbers of inputs or outputs")
    else:
        if not are_rows(answer):
            raise InvalidInput("a sweep must have rows")
        for row in answer:
            _check(row.certificate)


def _sizes_agree(reach: Reach) -> bool:
    count, (below, above) = len(reach.lower), reach.hull
    return (
        len(reach.upper) == len(reach.center) == count > 0
        and reach.shape.shape == (count, count)
        and below.shape == above.shape == (len(below), count)
        and bool((reach.lower <= reach.upper).all())
    )


def _groups_agree(found: Sensitivity) -> bool:
    groups = (*found.outputs, *found.inputs)
    return found.matrix.size > 0 and found.matrix.shape == (len(found.outputs), len(found.inputs)) and all(groups)


def _load(kind: type, path: str | os.PathLike[str]) -> Any:
    (name,) = (name for name in _KINDS if _KINDS[name] is kind)
    return documents.read(path, {name: kind}, _check)


Saved.writer, Saved.reader = save_answer, _load
