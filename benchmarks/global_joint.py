"""Joint against LipSDP-neuron: all 20 global ReLU cells of the paper's Table 1a, with times.

Run: python benchmarks/global_joint.py        (under a minute; nothing is written)

The tables are read from paper_tables.json beside the repository (--tables says where); the times beside LipSDP's
figures are the paper's, on its machine. A cell is marked where Joint is more than 0.5 % above the printed figure, or
below it by more than its rounding; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import lipcert as lc
from lipcert.reproduce.cells import paper_network

TABLES = Path(__file__).resolve().parents[2] / "shared" / "paper_tables.json"
WITHIN, ROUNDING = 0.005, 0.0005


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, default=TABLES)
    table = json.loads(parser.parse_args().tables.read_text(encoding="utf-8"))["case1_relu"]
    bounds, times = table["bounds"]["LipSDP-neuron"], table["seconds"]["LipSDP-neuron"]
    print(f"{'cell':>8} {'LipSDP-neuron':>14} {'Joint':>10} {'excess':>8} {'paper s':>9} {'Joint s':>8} {'CPU s':>7}")
    wrong, total, processor, theirs, worst = 0, 0.0, 0.0, 0.0, 0.0
    for width, row in bounds.items():
        for layers, printed in row.items():
            network, clock = paper_network(int(width), int(layers), "relu"), time.process_time()
            certificate = lc.certify(network, method=lc.Joint())
            clock = time.process_time() - clock
            excess, spent = certificate.bound / printed - 1.0, float(times[width][layers])
            off = certificate.bound < printed - ROUNDING or certificate.bound > (printed + ROUNDING) * (1.0 + WITHIN)
            wrong, worst = wrong + off, max(worst, excess)
            total, processor, theirs = total + certificate.seconds, processor + clock, theirs + spent
            print(
                f"{width + ' × ' + layers:>8} {printed:14.3f} {certificate.bound:10.4f} {excess:8.3%} {spent:9.2f}"
                f" {certificate.seconds:8.2f} {clock:7.2f}{'  OFF' if off else ''}",
                flush=True,
            )
    print(
        f"\nall 20: worst excess {worst:.3%}; {total:.1f} s ({processor:.1f} s of processor), the paper {theirs:.0f} s"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
