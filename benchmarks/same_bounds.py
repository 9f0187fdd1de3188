"""Bounds of two versions side by side: the 61 cells of the paper's tables, and small networks of every activation.

Run: python benchmarks/same_bounds.py --write before.json      (with the old version)
     python benchmarks/same_bounds.py --compare before.json    (with the new one; exits 1 if a bound is larger by 1e-9)

Only methods whose result does not depend on the clock take part. The small networks are those of the law matrix of the
tests: every row of the table of activations over every kind of bounded region.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import lipcert as lc
from lipcert.reproduce.cells import STUDIES

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from networks import ROW_LABELS, ROWS, random_network

WORSE = 1e-9


def questions() -> Iterator[tuple[str, lc.Network, Any, Any]]:
    """A name, a network, a region and a method."""
    for study, (_, table) in itertools.product(("cells",), STUDIES.items()):
        for cell in table.cells:
            network, ball = cell.network(), cell.ball()
            methods: list[Any] = [lc.ClosedForm(), lc.Scalar()]
            if cell.width * cell.width * cell.layers <= 128 * 128 * 5:
                methods.append(lc.Joint(iterations=20))
            for method in methods:
                name = f"{study} {cell.study} {cell.width}x{cell.layers} {cell.delta:g} {type(method).__name__}"
                yield name, network, ball, method
    for number, (label, row) in enumerate(zip(ROW_LABELS, ROWS, strict=True)):
        network = random_network(number, (3, 6, 5, 2), row, gain=2.0)
        rng = np.random.default_rng(1)
        center, reach = rng.normal(0, 1, 3), rng.random(3)
        regions = {
            "ball": lc.Ball(center, 0.7),
            "clipped": lc.Ball(center, 0.7, clip=(center - 0.4 * reach, center + reach)),
            "box": lc.Box(center - reach, center + 0.5 * reach),
            "point": lc.Ball(center, 0.0),
            "tiny": lc.Ball(center, 1e-6),
        }
        methods = [lc.ClosedForm(), lc.Scalar(), lc.Diagonal(), lc.Joint(iterations=20)]
        for (kind, region), method in itertools.product(regions.items(), methods):
            yield f"law {label} {kind} {type(method).__name__}", network, region, method


def main() -> None:
    parser = argparse.ArgumentParser(description="Bounds of two versions side by side.")
    parser.add_argument("--write", type=Path, help="compute all bounds into a file")
    parser.add_argument("--compare", type=Path, help="compute all bounds and compare them with a file")
    options = parser.parse_args()
    found = {name: lc.certify(network, region, method).bound for name, network, region, method in questions()}
    if options.write:
        options.write.write_text(json.dumps(found, indent=1))
        print(f"{len(found)} bounds in {options.write}")
        return
    before = json.loads(options.compare.read_text())
    # constant functions have bounds of about 1e-140: what underflow is charged
    change = {name: (found[name] - before[name]) / max(before[name], 1e-100) for name in before}
    for group, method in itertools.product(("cells", "law"), ("ClosedForm", "Scalar", "Diagonal", "Joint")):
        mine = {name: value for name, value in change.items() if name.startswith(group) and name.endswith(method)}
        if not mine:
            continue
        worst, best = max(mine, key=mine.__getitem__), min(mine, key=mine.__getitem__)
        print(
            f"{group} {method}: {len(mine)} bounds, worst {mine[worst]:+.2e} ({worst}), best {mine[best]:+.2e} ({best})"
        )
        for name in sorted(mine, key=mine.__getitem__, reverse=True)[:8]:
            if mine[name] > WORSE:
                print(f"  {mine[name]:+.2e} {name}")
    sys.exit(max(change.values()) > WORSE)


if __name__ == "__main__":
    main()
