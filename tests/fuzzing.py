"""A table of every kind of file that is read, and a process that reads mutants of them under limits.

Run as ``python fuzzing.py READER SEED COUNT FOLDER``: reads that many mutants, one after the other, and prints how many
were read and refused. Anything else that happens ends it: another exception, a crash, too much memory, or a case that
does not end. The mutant at hand is in FOLDER then.
"""

from __future__ import annotations

import faulthandler
import json
import random
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fuzz_files as files
import lipcert as lc
from fuzz_bytes import mangled
from fuzz_onnx import change_onnx, onnx_seeds
from lipcert.questions.campaign.data import read_points
from lipcert.questions.campaign.results import export, summarise

MEMORY = 3 * 2**30
"""Bytes that reading one small file may need on top of what the process has."""

SECONDS = 120
"""After so long a case counts as one that does not end; the machine may be slow."""


@dataclass(frozen=True)
class Kind:
    """A kind of file: its suffix, some good files, what changes their meaning, and what reads it."""

    suffix: str
    seeds: Callable[[], list[bytes]]
    change: files.Change
    read: Callable[[Path], Any]

    def mutant(self, rng: random.Random, data: bytes) -> bytes:
        """Bytes that are changed anyhow, or a meaning, or both."""
        sort = rng.random()
        data = data if sort < 0.2 else self.change(rng, data)
        return mangled(rng, data) if sort < 0.3 else data


def read_arrays(path: Path) -> Any:
    try:
        return lc.load(path, "relu")
    except lc.LipcertError:
        return lc.load(path)


def read_results(path: Path) -> Any:
    results = lc.Results.read(path)
    for suffix in (".csv", ".json"):
        export(results, path.with_suffix(suffix))
    return summarise(results)


KINDS = {
    "npz": Kind(".npz", files.npz_seeds, files.change_npz, read_arrays),
    "mat": Kind(".mat", files.mat_seeds, files.change_mat, read_arrays),
    "nnet": Kind(".nnet", files.nnet_seeds, files.change_cells, lc.load),
    "onnx": Kind(".onnx", onnx_seeds, change_onnx, lc.load),
    "certificate": Kind(
        ".lip", files.certificate_seeds, files.change_certificate, lambda path: repr(lc.Certificate.load(path))
    ),
    "sqlite": Kind(".sqlite", files.sqlite_seeds, files.change_sqlite, read_results),
    "csv": Kind(
        ".csv",
        files.csv_seeds,
        files.change_cells,
        lambda path: read_points(path, lc.Network.from_weights(files.W)),
    ),
}


def limit() -> None:
    """From now on, so much more memory and no more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main(reader: str, seed: int, count: int, folder: Path) -> None:
    faulthandler.enable()
    warnings.simplefilter("ignore")
    kind = KINDS[reader]
    seeds = kind.seeds()
    path = folder / f"mutant{kind.suffix}"
    for data in seeds:  # loads all that is needed, before memory is limited
        path.write_bytes(data)
        try:
            kind.read(path)
        except lc.LipcertError:
            assert reader == "onnx"  # functions of a model are refused
    limit()
    rng = random.Random(f"{reader} {seed}")
    counts = {"read": 0, "refused": 0}
    for case in range(count):
        path.write_bytes(kind.mutant(rng, rng.choice(seeds)))
        signal.alarm(SECONDS)
        try:
            kind.read(path)
            counts["read"] += 1
        except lc.LipcertError as error:
            counts["refused"] += 1
            if not str(error).encode().strip():
                raise ValueError("an error says nothing") from error
        except BaseException:
            print(f"case {case} of seed {seed}, in {path}", file=sys.stderr)
            raise
        finally:
            signal.alarm(0)
    print(json.dumps(counts))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
