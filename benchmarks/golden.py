"""The golden set: answers of every kind, with their bounds and times, to compare two versions.

Run: python benchmarks/golden.py --write before.json ../shared/data       (with the old version)
     python benchmarks/golden.py --compare before.json ../shared/data     (with the new one; --only reach for a part)

Exits 1 if a bound rose by more than 1e-9 of itself. Times are processor seconds, the least of three runs, and are
compared as sums per kind: single answers of milliseconds are noise. Only methods whose result does not depend on the
clock take part. Without the folder of public models, their answers are left out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import lipcert as lc
from lipcert.reproduce.cells import STUDIES

sys.path.append(str(Path(__file__).parent.parent / "tests"))
import modules
from networks import ROW_LABELS, ROWS, random_network

WORSE = 1e-9
RUNS = 3
LONG = 2.0
"""Seconds from which an answer is timed once only."""
Golden: TypeAlias = tuple[str, Callable[[], list[float]]]
FORMULAS: list[Any] = [lc.ClosedForm(), lc.Scalar()]
METHODS: list[Any] = [*FORMULAS, lc.Diagonal(), lc.Joint(iterations=8)]
PIECES: list[Any] = [lc.Split(method=lc.ClosedForm(), seconds=np.inf, pieces=100), lc.Auto(seconds=np.inf, pieces=40)]


def bound(network: lc.Network, region: Any, method: Any, **options: Any) -> list[float]:
    return [lc.certify(network, region, method, **options).bound]


def cells() -> Iterator[Golden]:
    """Networks of the paper's tables."""
    every = [cell for study in STUDIES.values() for cell in study.cells]
    for number, cell in enumerate(every[::3]):
        joint = [METHODS[-1]] if cell.width * cell.width * cell.layers <= 128 * 128 * 5 else []
        method = [*FORMULAS, *joint][number % (2 + len(joint))]
        name = f"cell {cell.study} {cell.width}x{cell.layers} {cell.delta:g} {type(method).__name__}"
        yield name, partial(bound, cell.network(), cell.ball(), method)


def laws() -> Iterator[Golden]:
    """Small networks of every activation, over every kind of region."""
    for number, (label, row) in enumerate(zip(ROW_LABELS, ROWS, strict=True)):
        network = random_network(number, (3, 6, 5, 2), row, gain=2.0)
        rng = np.random.default_rng(1)
        center, reach = rng.normal(0, 1, 3), rng.random(3)
        regions: dict[str, Any] = {
            "ball": lc.Ball(center, 0.7),
            "clipped": lc.Ball(center, 0.7, clip=(center - 0.4 * reach, center + reach)),
            "box": lc.Box(center - reach, center + 0.5 * reach),
            "tiny": lc.Ball(center, 1e-6),
            "everywhere": None,
        }
        for turn in range(2):
            kind, method = list(regions)[(number + 2 * turn) % 5], METHODS[(number + turn) % 4]
            yield f"law {label} {kind} {type(method).__name__}", partial(bound, network, regions[kind], method)


def kinds() -> Iterator[Golden]:
    """Convolutional, residual, pooled, saturated and sorted networks."""
    for kind in modules.KINDS:
        network = modules.network(kind)
        ball = lc.Ball(np.full(network.inputs, 0.5), 0.3, clip=(0, 1))
        for method in [*METHODS, PIECES[1]] if network.inputs <= 8 else [*FORMULAS, METHODS[-1]]:
            yield f"kind {kind} {type(method).__name__}", partial(bound, network, ball, method)
        yield f"kind {kind} everywhere", partial(bound, network, None, METHODS[-1])


def norms() -> Iterator[Golden]:
    """Bounds in pairs of norms, with units."""
    network, box = random_network(3, (4, 10, 10, 3), "relu"), lc.Box(-np.ones(4), np.ones(4))
    scales = np.array([1.0, 0.1, 10.0, 2.0])
    for number, (one, two) in enumerate(itertools.product((lc.L1, lc.L2, lc.LInf), repeat=2)):
        ends = {"input_norm": one(scale=scales), "output_norm": two()}
        method = METHODS[number % 4]
        yield f"norms {one.__name__} {two.__name__}", partial(bound, network, box, method, **ends)


def parts() -> Iterator[Golden]:
    """Some inputs, outputs and layers."""
    network, ball = random_network(5, (6, 12, 12, 12, 4), "tanh", gain=2.0), lc.Ball(np.zeros(6), 0.5)
    options: list[dict[str, Any]] = [{"inputs": [0, 3]}, {"outputs": [1]}, {"layers": (1, 3)}, {"layers": (2, 4)}]
    for option, method in itertools.product(options, METHODS[1::2]):
        yield f"part {option} {type(method).__name__}", partial(bound, network, ball, method, **option)


def ends(answer: Any) -> list[float]:
    return [*np.asarray(answer.upper).ravel().tolist(), *(-np.asarray(answer.lower)).ravel().tolist()]


def answers() -> Iterator[Golden]:
    """Reach sets, sensitivities, sweeps, lower bounds, and methods of the literature."""
    for name in ("relu", "tanh", "softplus"):
        network = random_network(7, (3, 16, 16, 2), name, gain=2.0)
        box, ball = lc.Box(-0.4 * np.ones(3), 0.4 * np.ones(3)), lc.Ball(np.zeros(3), 0.4)
        for method in (FORMULAS[0], PIECES[0]):
            label = f"{name} {type(method).__name__}"
            yield f"reach {label}", lambda n=network, b=box, m=method: ends(lc.reach(n, b, m))  # type: ignore[misc]
            yield (
                f"sensitivity {label}",
                lambda n=network, b=box, m=method: np.ravel(lc.sensitivity(n, b, method=m).matrix).tolist(),  # type: ignore[misc]
            )
        yield (
            f"sweep {name}",
            lambda n=network: [row.bound for row in lc.sweep(n, np.zeros(3), (0.1, 0.5), METHODS[-1])],  # type: ignore[misc]
        )
        yield f"lower {name}", lambda n=network, b=ball: [-lc.lower_bound(n, b).value]  # type: ignore[misc]
        methods = [lc.published.EclipseGenLocal(one) for one in ("Acc", "Fast", "CF")] + [lc.published.Trivial()]
        for published in methods:
            yield f"published {name} {published}", partial(bound, network, ball, published)


def public(data: Path) -> Iterator[Golden]:
    """Public models: classifiers, controllers, stacks of convolutions."""
    for name in ("ACASXU_run2a_1_1_batch_2000", "mnist-net_256x2", "ffnnSIGMOID__Point_6x200"):
        network = lc.load(data / "models" / f"{name}.onnx")
        ball = lc.Ball(np.full(network.inputs, 0.3), 0.05)
        for method in FORMULAS:
            yield f"public {name} {type(method).__name__}", partial(bound, network, ball, method)
    for path in sorted((data / "control").glob("*.onnx")):
        network = lc.load(path)
        box = lc.Box(np.full(network.inputs, -0.2), np.full(network.inputs, 0.3))
        for method in PIECES:
            yield f"control {path.stem} {type(method).__name__}", partial(bound, network, box, method)
    for path in sorted((data / "conv").glob("c8*.npz")):
        kernels = [value for _, value in sorted(np.load(path).items())]
        stack = lc.conv_stack(kernels, (14, 14), "relu", padding=1)
        for method in (*FORMULAS, METHODS[-1]):
            yield f"stack {path.stem} {type(method).__name__}", partial(bound, stack, None, method)
    for name, radius in (("mnist_mlp", 1.0), ("mnist_convsmall", 0.3)):
        network, images = lc.load(data / "l2" / f"{name}.onnx"), np.load(data / "l2" / "mnist_200.npz")
        for number in range(4 if name == "mnist_mlp" else 1):
            x, label = images["x"][number], int(images["y"][number])
            yield (
                f"radius {name} {number}",
                lambda n=network, x=x, y=label, r=radius: [-lc.certified_radius(n, x, y, radii=[0.1 * r]).radius],  # type: ignore[misc]
            )


def timed(ask: Callable[[], list[float]]) -> tuple[list[float], float]:
    least = np.inf
    for _ in range(RUNS):
        started = time.process_time()
        found = ask()
        least = min(least, time.process_time() - started)
        if least > LONG:
            break
    return found, least


def main() -> None:
    parser = argparse.ArgumentParser(description="The golden set: answers of every kind, of two versions.")
    parser.add_argument("data", type=Path, nargs="?", help="the folder of public models")
    parser.add_argument("--write", type=Path, help="compute all answers into a file")
    parser.add_argument("--compare", type=Path, help="compute all answers and compare them with a file")
    parser.add_argument("--only", default="", help="only answers whose name contains this")
    options = parser.parse_args()
    several = [cells(), laws(), kinds(), norms(), parts(), answers(), *([public(options.data)] if options.data else [])]
    found = {}
    for name, ask in itertools.chain(*several):
        if options.only not in name:
            continue
        found[name] = timed(ask)
        print(f"\r\x1b[2K{len(found)} {name}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    if options.write:
        options.write.write_text(json.dumps(found, indent=1))
        print(f"{len(found)} answers in {options.write}")
        return
    before = json.loads(options.compare.read_text())
    names = [name for name in before if name in found]
    print(f"{len(names)} answers in both, {len(before) - len(names)} only before")
    # constant functions have bounds of about 1e-140: what underflow is charged
    change = {
        name: max((b - a) / max(abs(a), 1e-100) for a, b in zip(before[name][0], found[name][0], strict=True))
        for name in names
    }
    for kind in dict.fromkeys(name.split()[0] for name in names):
        mine = [name for name in names if name.split()[0] == kind]
        worst, best = max(mine, key=change.__getitem__), min(mine, key=change.__getitem__)
        times = sum(found[name][1] for name in mine) / sum(before[name][1] for name in mine)
        bounds = f"worst {change[worst]:+.1e} ({worst})  best {change[best]:+.1e}"
        print(f"{kind:12s} {len(mine):3d}  {bounds}  time {times:.2f}")
    sys.exit(max(change.values()) > WORSE)


if __name__ == "__main__":
    main()
