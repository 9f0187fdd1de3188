"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from lipcert.errors import InvalidInput


def is_file(path: Path) -> bool:
    """Whether there is such a file; a name that no file can have is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long a name, a folder that may not be entered, a null character
        return False


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file; a reader, a crash or a full disk never meets half of it, nor loses what was there before."""
    target = Path(path)
    draft: Path | None = None
    try:
        data = text.encode()
        draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        with draft.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(target)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have, a text that is no Unicode
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"{target} cannot be written: {reason}; name a file in a folder") from error
    finally:
        if draft is not None and is_file(draft):
            draft.unlink(missing_ok=True)
