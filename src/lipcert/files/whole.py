"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lipcert.errors import InvalidInput


def is_file(path: Path) -> bool:
    """Whether there is such a file; a name that no file can have is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long a name, a folder that may not be entered, a null character
        return False


def require_writable(path: str | os.PathLike[str]) -> None:
    """Raise InvalidInput unless :func:`write_whole` can write there, as far as that shows without writing."""
    with _draft(path):
        pass


def write_whole(path: str | os.PathLike[str], text: str | bytes) -> None:
    """Write a file; a reader, a crash or a full disk never meets half of it, nor loses what was there before.

    What is no regular file, such as /dev/stdout, is written to as it is.
    """
    with _draft(path) as draft:
        data = text.encode() if isinstance(text, str) else text
        if draft is None:
            Path(path).write_bytes(data)
            return
        with draft.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)


@contextmanager
def _draft(path: str | os.PathLike[str]) -> Iterator[Path | None]:
    """A new file beside the one that is meant, gone at the end; None where the place is no regular file."""
    target = Path(path)
    draft: Path | None = None
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if is_file(target) or not target.exists():
            draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
            draft.touch(exist_ok=False)
        yield draft
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have, a text that is no Unicode
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"{target} cannot be written: {reason}; name a file in a folder") from error
    finally:
        if draft is not None and is_file(draft):
            draft.unlink(missing_ok=True)
