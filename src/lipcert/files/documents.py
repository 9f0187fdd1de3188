"""Documents: one JSON object each, versioned, with a checksum of its content.

A document says what kind of answer it holds. Its checksum shows accidents when it is read. Deliberate changes show when
the answer is verified: it is derived again, and nothing in the file is believed. Reading is strict: every field must be
there, once, with the type it is written with, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lipcert.errors import InvalidInput, UnreadableCertificate
from lipcert.files.codec import Kind, decode, encode
from lipcert.files.whole import is_file, write_whole

FORMAT = "lipcert certificate"
VERSION = 5
_FIELDS = {"format", "version", "kind", "sha256", "content"}


def write(path: str | os.PathLike[str], name: str, kind: Kind, answer: Any) -> None:
    """Write an answer under the name of its kind; the file appears whole or not at all."""
    content = encode(kind, answer)
    try:
        document = {"format": FORMAT, "version": VERSION, "kind": name, "sha256": checksum(content)}
    except ValueError:
        raise InvalidInput("an answer with numbers that are not finite cannot be saved") from None
    lines = [f"{json.dumps(field)}: {json.dumps(value)}" for field, value in (document | {"content": content}).items()]
    write_whole(path, "{\n" + ",\n".join(lines) + "\n}\n")


def read(path: str | os.PathLike[str], kinds: Mapping[str, Kind], check: Callable[[Any], None]) -> Any:
    """The answer of a document that holds one of these kinds and passes a check; else UnreadableCertificate."""
    document = _opened(path)
    try:
        odd = min(document.keys() ^ _FIELDS, default=None)
        if odd is not None:
            raise ValueError(f"the field {odd[:40]!a} is {'missing' if odd in _FIELDS else 'unknown'}")
        name, content = document["kind"], document["content"]
        if document["sha256"] != checksum(content):
            raise ValueError("its content does not match its checksum")
        if not isinstance(name, str) or name not in kinds:
            raise ValueError(f"it holds a {ascii(name)[:40]}, not a {' or a '.join(kinds)}")
        answer = decode(kinds[name], content, "content")
        check(answer)
        return answer
    except (ValueError, OverflowError, RecursionError) as error:  # an InvalidInput is a ValueError
        raise UnreadableCertificate(f"{path} is damaged: {error}") from None


def checksum(content: Any) -> str:
    """SHA-256 of a document's content."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _opened(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A document of this format and version; its other fields may be anything."""
    try:
        if os.path.exists(path) and not is_file(Path(path)):
            raise UnreadableCertificate(f"{path} is not a certificate file: it is no regular file")
        document = json.loads(Path(path).read_bytes(), object_pairs_hook=_once, parse_constant=_no_constant)
    except FileNotFoundError:
        raise UnreadableCertificate(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableCertificate(f"{path} is not a certificate file: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UnreadableCertificate(f"{path} is not a certificate file: it does not say so in its field 'format'")
    version = document.get("version")
    if type(version) is not int or version != VERSION:
        came = type(version).__name__ if isinstance(version, (list, dict)) else ascii(version)[:20]
        raise UnreadableCertificate(f"{path} is of version {came}; this program reads version {VERSION}: certify again")
    return document


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field is there twice")
    return fields


def _no_constant(name: str) -> Any:
    raise ValueError(f"it contains {name}, which is no number")
