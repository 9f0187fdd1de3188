"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from lipcert.errors import InvalidInput


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file; a reader, a crash or a full disk never meets half of it, nor loses what was there before."""
    target = Path(path)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with draft.open("x", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(target)
    except OSError as error:
        raise InvalidInput(f"{target} cannot be written: {error.strerror or error}; name a file in a folder") from error
    finally:
        draft.unlink(missing_ok=True)
