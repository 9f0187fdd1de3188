"""The command line, run in this process in an empty folder with a model and some points."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.cli import main
from networks import random_network

NETWORK = random_network(4, (3, 6, 5, 3), "tanh", gain=2.0)
"""What ``model.npz`` holds."""
BALL = ("--center", "0.1,-0.2,0.3", "--radius", "0.5")


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """What was said to the user, in one line and without frames."""
        return " ".join(f"{self.out} {self.err}".replace("│", " ").split())


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


def silent(network: lc.Network) -> None:
    """Write the network to ``silent.npz``, which does not say what its activation is."""
    arrays: dict[str, Any] = {}
    for number, layer in enumerate(network.layers, 1):
        arrays |= {f"W{number}": layer.weight, f"b{number}": layer.bias}
    np.savez("silent.npz", **arrays)
