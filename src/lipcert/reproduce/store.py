"""Results of a reproduction in a file of JSON lines that is only appended to, so that a killed run can go on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TypeAlias

from lipcert.errors import UnreadableResults

Key: TypeAlias = dict[str, str | int | float]


class Store:
    """Answers by key, in a file with one JSON object a line.

    Each line is written at once and synced to the disk. A last line that was cut off by a crash is dropped; any other
    damage is an error. If a key occurs twice, the later answer counts.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._found: dict[str, dict[str, Any]] = {}
        content = path.read_bytes() if path.exists() else b""
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(path, whole)
        for number, line in enumerate(content[:whole].splitlines(), 1):
            try:
                record = json.loads(line)
                self._found[_name(record["key"])] = record["found"]
            except (ValueError, KeyError, TypeError):
                raise UnreadableResults(
                    f"{path} is damaged in line {number}; remove that line, what it held is computed again"
                ) from None

    def find(self, key: Key) -> dict[str, Any] | None:
        """The answer, if there is one."""
        return self._found.get(_name(key))

    def add(self, key: Key, found: dict[str, Any]) -> None:
        """Note an answer."""
        line = json.dumps({"key": key, "found": found}, ensure_ascii=False, allow_nan=False) + "\n"
        with self.path.open("ab", buffering=0) as stream:
            stream.write(line.encode())
            os.fsync(stream.fileno())
        self._found[_name(key)] = found


def _name(key: Key) -> str:
    return json.dumps(key, sort_keys=True)
