"""Whatever is in a file: it is read, or refused with a sentence. No other error, no crash, no end of memory or time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fuzzing

COUNTS = {"npz": 200, "mat": 300, "nnet": 100, "onnx": 100, "certificate": 200, "sqlite": 100, "csv": 200}
EXTRA = {"onnx": "onnx"}


def fuzz(reader: str, seed: int, count: int, folder: Path) -> dict[str, int]:
    """Read mutants in a process of its own; how many were read and refused."""
    if reader in EXTRA:
        pytest.importorskip(EXTRA[reader], reason="an extra")
    if not Path("/proc/self/statm").exists():
        pytest.skip("memory is limited by what /proc says")
    command = [sys.executable, fuzzing.__file__, reader, str(seed), str(count), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, f"{reader}, seed {seed}, ended with {done.returncode}:\n{done.stderr[-3000:]}"
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


@pytest.mark.parametrize("reader", fuzzing.KINDS)
def test_mutants_are_read_or_refused(reader: str, tmp_path: Path) -> None:
    counts = fuzz(reader, 0, COUNTS[reader], tmp_path)
    assert min(counts.values()) > 0, "the mutants are all alike"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("reader", fuzzing.KINDS)
def test_many_mutants_are_read_or_refused(reader: str, seed: int, tmp_path: Path) -> None:
    print(reader, seed, fuzz(reader, seed, 20 * COUNTS[reader], tmp_path))


def test_the_fuzzer_notices_a_foreign_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that lets another error out ends the run."""

    def careless(path: Path) -> None:
        path.read_bytes().decode("ascii")

    kind = fuzzing.KINDS["csv"]
    monkeypatch.setitem(fuzzing.KINDS, "csv", fuzzing.Kind(".csv", lambda: [b"1,2,3"], kind.change, careless))
    monkeypatch.setattr(fuzzing, "limit", lambda: None)
    with pytest.raises(UnicodeDecodeError):
        fuzzing.main("csv", 0, 500, tmp_path)
