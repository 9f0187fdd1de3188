"""The command line, run in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from lipcert.cli import main


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


class Command:
    """Runs ``lipcert`` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: str) -> Outcome:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = self.capsys.readouterr()
        return Outcome(int(ended.value.code or 0), captured.out, captured.err)

    def json(self, *arguments: str) -> Any:
        outcome = self(*arguments, "--json")
        assert (outcome.code, outcome.err) == (0, "")
        return json.loads(outcome.out)
