"""A mutator for every kind of file that is read, and a process that reads the mutants under limits.

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

import lipcert as lc
from fuzz_arrays import change_mat, change_nnet, change_npz, mat_seeds, nnet_seeds, npz_seeds, read_npz
from fuzz_onnx import change_onnx, onnx_seeds
from fuzz_records import (
    certificate_seeds,
    change_certificate,
    change_csv,
    change_sqlite,
    csv_seeds,
    read_certificate,
    read_csv,
    read_sqlite,
    sqlite_seeds,
)

MEMORY = 3 * 2**30
"""Bytes that reading one small file may need on top of what the process has."""

SECONDS = 120
"""After so long a case counts as one that does not end; the machine may be slow."""


@dataclass(frozen=True)
class Kind:
    """A kind of file: its suffix, some good files, ways to change one, and what reads it."""

    suffix: str
    seeds: Callable[[], list[bytes]]
    change: Callable[[random.Random, bytes], bytes]
    read: Callable[[Path], Any]


def read_load(path: Path) -> Any:
    return lc.load(path)


KINDS = {
    "npz": Kind(".npz", npz_seeds, change_npz, read_npz),
    "mat": Kind(".mat", mat_seeds, change_mat, read_npz),
    "nnet": Kind(".nnet", nnet_seeds, change_nnet, read_load),
    "onnx": Kind(".onnx", onnx_seeds, change_onnx, read_load),
    "certificate": Kind(".lip", certificate_seeds, change_certificate, read_certificate),
    "sqlite": Kind(".sqlite", sqlite_seeds, change_sqlite, read_sqlite),
    "csv": Kind(".csv", csv_seeds, change_csv, read_csv),
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
        path.write_bytes(kind.change(rng, rng.choice(seeds)))
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
