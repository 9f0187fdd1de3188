"""What can be proved of public neural controllers: commands, evaluations in float32 and with int8 weights, loops.

Run: python benchmarks/control.py FOLDER        (half an hour; FOLDER has the ONNX files of the ARCH competition)
     python benchmarks/control.py FOLDER --parts errors --only cart-pole --seconds 10        (a minute)

Initial states, gains and dynamics are those of the competition's reports on neural network control systems, written as
PyTorch modules below. Plants are discretised by Euler's rule, in so many pieces of a period of held control, which is
part of the question: what it leaves out of the plant is not bounded. Boxes are compared with the sampled range of 10⁵
trajectories. Bounds of errors are compared, output by output, with the largest error of

* ``random``: 10⁶ evaluations of random inputs (10⁵ in float16), a tenth of which add the terms of each sum one by one,
  positive ones first, and the others as numpy's matrix product does;
* ``chosen``: evaluations whose inputs and orders of sums were searched for. Each neuron has an order of its own, in
  which the roundings add up. These are errors of programs that exist: the same sums of the same floats;
* ``allowed``: the same with activations off by as much as is assumed, 4 units. No bound under that assumption is
  smaller, whatever the program on this machine does. So it is proved that NAV's bound cannot be near what is met:
  where its first output is -1 in float32, an admissible tanh errs by 2.4e-7, 150,000 times what is met.

Changes by int8 weights are compared with the largest of 10⁶ random inputs, corners, and an ascent from the best.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, cos, sin

import lipcert as lc
from lipcert.model.arrays import Array, dense

COUNT = 1_000_000
SECONDS = 10.0


@dataclass(frozen=True)
class Case:
    """A controller, the states that its loop begins with, and its plant: rates of change, period, pieces, steps."""

    file: str
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    rates: Callable[..., list[Tensor]] | None
    period: float = 0.0
    steps: int = 0
    pieces: int = 1
    unroll: int = 25
    rests: bool = False
    """Whether it is asked about contraction, where the loop comes to rest."""

    def step(self, controller: lc.Network) -> lc.Network:
        """One period of the loop."""
        assert self.rates is not None
        states = len(self.lower)
        plant = Held(self.rates, states, self.period, self.pieces).eval()
        return lc.closed_loop(lc.load(plant, input_shape=(states + controller.outputs,)), controller)


class Held(torch.nn.Module):
    """The plant over one period of a held control, by Euler's rule."""

    def __init__(self, rates: Callable[..., list[Tensor]], states: int, period: float, pieces: int) -> None:
        super().__init__()
        self.rates, self.states, self.dt, self.pieces = rates, states, period / pieces, pieces

    def forward(self, inputs: Tensor) -> Tensor:
        x, u = inputs[..., : self.states], inputs[..., self.states :]
        for _ in range(self.pieces):
            x = x + self.dt * torch.stack(self.rates(*x.unbind(-1), *u.unbind(-1)), -1)
        return x


def pendulum(a: Tensor, w: Tensor, u: Tensor) -> list[Tensor]:
    """θ'' = (g/l) sin θ + u/(m l²), with m = 0.5, l = 0.5, g = 1, no friction."""
    return [w, 2.0 * sin(a) + 8.0 * u]


def double_pendulum(p: Tensor, q: Tensor, v: Tensor, w: Tensor, a: Tensor, b: Tensor) -> list[Tensor]:
    """Two such pendulums, one on the other: 2p'' + cos(p - q) q'' = 4 sin p - w² sin(p - q) + 8a and so on, solved."""
    c = cos(p - q)
    f, g = 4.0 * sin(p) - w * w * sin(p - q) + 8.0 * a, 2.0 * sin(q) + v * v * sin(p - q) + 8.0 * b
    share = torch.reciprocal(1.5 - 0.5 * cos(2.0 * (p - q)))  # of 2 - cos²
    return [v, w, share * (f - c * g), share * (2.0 * g - c * f)]


def tora(x: Tensor, v: Tensor, a: Tensor, w: Tensor, u: Tensor) -> list[Tensor]:
    """A mass on a spring, x' = v and v' = -x + 0.1 sin a, with an arm that turns, a'' = u - 10."""
    return [v, -x + 0.1 * sin(a), w, u - 10.0]


def unicycle(x: Tensor, y: Tensor, a: Tensor, v: Tensor, push: Tensor, turn: Tensor) -> list[Tensor]:
    """x' = v cos a, y' = v sin a; both controls are 20 less than the outputs."""
    return [v * cos(a), v * sin(a), turn - 20.0, push - 20.0]


def navigation(x: Tensor, y: Tensor, v: Tensor, a: Tensor, push: Tensor, turn: Tensor) -> list[Tensor]:
    """The same with the speed before the angle, and the outputs as they are."""
    return [v * cos(a), v * sin(a), push, turn]


def cart_pole(x: Tensor, v: Tensor, a: Tensor, w: Tensor, u: Tensor) -> list[Tensor]:
    """x'' = 2u and 0.0105 a'' = 0.08·0.41 (9.8 sin a - 2u cos a) - 0.0021 a'."""
    return [v, 2.0 * u, w, (0.0328 * (9.8 * sin(a) - 2.0 * (u * cos(a))) - 0.0021 * w) / 0.0105]


def quadrotor(*z: Tensor) -> list[Tensor]:
    """Position; velocity, angles and their rates in the body's frame; g = 9.81, m = 1.4, J = 0.054, 0.054 and 0.104."""
    _, _, _, u, v, w, a, b, c, p, q, r, lift, roll, pitch = z
    sa, ca, sb, cb, sc, cc = sin(a), cos(a), sin(b), cos(b), sin(c), cos(c)
    turn = (sa * q + ca * r) * torch.reciprocal(cb)
    sway, rise = sa * v + ca * w, ca * v - sa * w
    ahead = cb * u + sb * sway
    return [
        cc * ahead - sc * rise,
        sc * ahead + cc * rise,
        sb * u - cb * sway,
        r * v - q * w - 9.81 * sb,
        p * w - r * u + 9.81 * (cb * sa),
        q * u - p * v + 9.81 * (cb * ca) - 9.81 - lift / 1.4,
        p + sb * turn,
        ca * q - sa * r,
        turn,
        (0.054 - 0.104) / 0.054 * (q * r) + roll / 0.054,
        (0.104 - 0.054) / 0.054 * (p * r) + pitch / 0.054,
        0.0 * p,
    ]


CASES = {
    "single pendulum": Case(
        "Single_Pendulum__controller_single_pendulum.onnx", (1.0, 0.0), (1.175, 0.2), pendulum, 0.05, 20
    ),
    "double pendulum": Case(
        "Double_Pendulum__controller_double_pendulum_more_robust.onnx",
        (1.0,) * 4,
        (1.3,) * 4,
        double_pendulum,
        0.02,
        10,
        unroll=5,
    ),
    "TORA": Case(
        "Benchmark9-Tora__controllerTora.onnx", (0.6, -0.7, -0.4, 0.5), (0.7, -0.6, -0.3, 0.6), tora, 1.0, 5, 10
    ),
    "unicycle": Case(
        "Benchmark10-Unicycle__controllerB.onnx",
        (9.5, -4.5, 2.1, 1.5),
        (9.55, -4.45, 2.11, 1.51),
        unicycle,
        0.2,
        10,
        unroll=5,
    ),
    "cart-pole": Case(
        "CartPole__model.onnx", (-0.1, -0.05) * 2, (0.1, 0.05) * 2, cart_pole, 0.02, 10, unroll=5, rests=True
    ),
    "NAV": Case(
        "NAV__networks__nn-nav-point.onnx", (2.9, 2.9, 0.0, 0.0), (3.1, 3.1, 0.0, 0.0), navigation, 0.2, 10, unroll=5
    ),
    "QUAD": Case("QUAD__model.onnx", (-0.4,) * 6 + (0.0,) * 6, (0.4,) * 6 + (0.0,) * 6, quadrotor, 0.1, 3, unroll=3),
    "VCAS": Case(
        "VCAS__onnx_networks__VertCAS_noResp_pra01_v9_20HU_200.onnx", (-0.016, -0.11, 0.1), (-0.015, -0.09, 0.125), None
    ),
}


SUMS = {"float32": np.float32, "float16": np.float32}
ULPS = 4.0


def stored(network: lc.Network, precision: str) -> list[tuple[Array, Array]]:
    """Weights and biases of a program."""
    kind = SUMS[precision]
    return [
        (dense(x.weight).astype(precision).astype(kind), x.bias.astype(precision).astype(kind)) for x in network.layers
    ]


def activation(neurons: Any, z: Array) -> Array:
    """As numpy has it in this precision."""
    value = z.copy()
    for row, index in neurons.groups:
        x = z[..., index]
        formulas = {"relu": lambda x=x: np.maximum(x, 0), "tanh": lambda x=x: np.tanh(x)}
        sigmoid = lambda x=x: 1 / (1 + np.exp(-x))  # noqa: E731
        value[..., index] = formulas.get(row.name, sigmoid)()
    assert (np.abs(value - neurons.value(z.astype(float))) <= ULPS * np.finfo(z.dtype).eps / 2 * 2.0).all()
    return value


def evaluated(network: lc.Network, x: Array, precision: str, one_by_one: bool = False) -> Array:
    """A program's outputs, by numpy's matrix products or with positive terms first."""
    z, kind = x.astype(SUMS[precision]), SUMS[precision]
    for layer, (W, b) in zip(network.layers, stored(network, precision), strict=True):
        if one_by_one:
            order = np.argsort(-(W * z.mean(axis=0)), axis=1)
            z = sum((z[:, order[:, k]] * np.take_along_axis(W, order, 1)[:, k] for k in range(W.shape[1])), 0 * b) + b
        else:
            z = z @ W.T + b
        z = z.astype(precision)
        z = z.astype(kind) if layer.neurons is None else activation(layer.neurons, z).astype(kind)
    return z.astype(float)


def chosen(network: lc.Network, x: Array, precision: str, row: Array, allowed: bool) -> float:
    """The error of row·outputs at a point, each sum added in an order in which the roundings add up."""
    exact, slopes = x, []
    for layer in network.layers:
        v = dense(layer.weight) @ exact + layer.bias
        if layer.neurons is not None:
            exact = layer.neurons.value(v)
            slopes.append(layer.neurons.slope(v))
    sides = [row]  # of pre-activations, activations, pre-activations, …
    for layer, slope in zip(network.layers[:0:-1], slopes[::-1], strict=True):
        A = sides[0] @ dense(layer.weight)
        sides[:0] = [A * slope, A]
    z, kind = x.astype(SUMS[precision]), SUMS[precision]
    for k, (layer, (W, b)) in enumerate(zip(network.layers, stored(network, precision), strict=True)):
        terms, side = np.column_stack([W * z, b]), np.where(sides[2 * k] < 0.0, -1.0, 1.0)
        sums = np.array([ordered(terms, side, first, few) for first in (1, -1) for few in (4, 16, 1000)])
        z = sums[(side * sums).argmax(axis=0), np.arange(len(side))].astype(precision)
        if layer.neurons is not None:
            side, v = np.where(sides[2 * k + 1] < 0.0, -1.0, 1.0), z.astype(float)
            z = activation(layer.neurons, z)
            if allowed:
                z = pushed(layer.neurons, v, z, side)
        z = z.astype(kind)
    return float(row @ (z.astype(float) - network(x)))


def ordered(terms: Array, side: Array, first: int, few: int) -> Array:
    """Sums (rows,) of terms (rows, n) in orders of their own.

    Those of one sign come first; of the next few the one whose rounding goes furthest to the wanted side.
    """
    rows, terms = np.arange(len(terms)), first * np.sort(first * terms, axis=1)[:, ::-1]
    signs = first * terms > 0
    left, total = np.ones(terms.shape, dtype=bool), np.zeros(len(terms), dtype=terms.dtype)
    for _ in range(terms.shape[1]):
        now = left & signs
        now = np.where(now.any(axis=1, keepdims=True), now, left)
        now &= np.cumsum(now, axis=1) <= few
        new = total[:, None] + terms
        gain = side[:, None] * (new.astype(float) - total[:, None].astype(float) - terms)
        pick = np.where(now, gain, -np.inf).argmax(axis=1)
        total, left[rows, pick] = new[rows, pick], False
    return total


def pushed(neurons: Any, v: Array, z: Array, side: Array) -> Array:
    """Activations that are as far to a side as is assumed, where they are not exact."""
    found = z.copy()
    for row, index in neurons.groups:
        if row.name in ("tanh", "sigmoid"):
            value = row.value(v[index])
            off = ULPS * np.finfo(z.dtype).eps / 2 * (np.abs(value) + row.row.loss.value_terms(*row.parameters))
            near = (value + side[index] * off).astype(z.dtype)
            inside = side[index] * (near.astype(float) - value) <= off
            found[index] = np.where(inside, near, np.nextafter(near, value.astype(z.dtype)))
    return found


def searched(network: lc.Network, box: lc.Box, precision: str, allowed: bool) -> Array:
    """The largest errors that were found by choosing inputs and orders, output by output."""
    rng, worst = np.random.default_rng(1), np.zeros(network.outputs)
    points = inputs(box, 20_000, precision, rng)
    steep = np.abs(network.jacobian(points)).sum(axis=-1)
    for k in range(network.outputs):
        best, rows = points[np.argsort(-steep[:, k])[:10]], np.eye(network.outputs)[k]
        for reach in (0.03, 0.01, 0.003):
            found = [max(chosen(network, x, precision, sign * rows, allowed) for sign in (1.0, -1.0)) for x in best]
            worst[k] = max(worst[k], *found)
            sides = reach * (box.upper - box.lower)
            near = best[int(np.argmax(found))] + rng.uniform(-sides, sides, (10, len(sides)))
            best = rounded(box, near, precision) if len(rounded(box, near, precision)) else best
    return worst


def rounded(box: lc.Box, x: Array, precision: str) -> Array:
    """Those points that a program can store inside the box."""
    x = np.clip(x, box.lower, box.upper).astype(precision).astype(float)
    return x[((box.lower <= x) & (x <= box.upper)).all(axis=1)]


def inputs(box: lc.Box, count: int, precision: str, rng: np.random.Generator) -> Array:
    """Random inputs that a program can store."""
    found = rounded(box, rng.uniform(box.lower, box.upper, (count, len(box.lower))), precision)
    assert len(found) > count // 10
    return found


def int8(network: lc.Network) -> lc.Network:
    """Weights on a grid of 255 numbers, one grid per layer."""
    weights = []
    for layer in network.layers:
        W = dense(layer.weight)
        unit = np.abs(W).max() / 127
        weights.append(np.round(W / unit) * unit)
    rows = [layer.neurons for layer in network.layers if layer.neurons is not None]
    return lc.Network.from_weights(weights, [layer.bias for layer in network.layers], rows)


def sampled(action: Callable[[Array], Array], box: lc.Box, precision: str) -> tuple[Array, Array]:
    """Random inputs that the precision has, and what an action gives."""
    count = COUNT // 10 if precision == "float16" else COUNT
    rng, points, values = np.random.default_rng(0), [], []
    for _ in range(100):
        points.append(inputs(box, count // 100, precision, rng))
        values.append(action(points[-1]))
    return np.concatenate(points), np.concatenate(values)


def climbed(apart: Callable[[Array], Array], box: lc.Box) -> Array:
    """The largest of random inputs, corners and steps from the best of them, output by output."""
    x, values = sampled(apart, box, "float64")
    corners = np.stack(np.meshgrid(*np.stack([box.lower, box.upper], 1), indexing="ij"), -1).reshape(-1, len(box.lower))
    x, values = np.concatenate([x, corners]), np.abs(np.concatenate([values, apart(corners)]))
    rng, worst = np.random.default_rng(2), np.array(values.max(axis=0))
    for k, best in enumerate(x[values.argmax(axis=0)]):
        for reach in (0.1, 0.03, 0.01, 0.003, 0.001):
            steps = rng.normal(0.0, reach, (1000, len(best))) * (box.upper - box.lower)
            near = np.clip(best + steps, box.lower, box.upper)
            found = np.abs(apart(near))[:, k]
            if found.max() > worst[k]:
                worst[k], best = found.max(), near[found.argmax()]
    return worst


def errors(network: lc.Network, box: lc.Box, seconds: float) -> None:
    """Programs in two precisions, and weights of 8 bits."""
    for precision in SUMS:
        count = [0]

        def rounding(x: Array, precision: str = precision, count: list[int] = count) -> Array:
            count[0] += 1
            return evaluated(network, x, precision, count[0] % 10 == 0) - network(x)

        found = lc.evaluation_error(network, box, precision, ulps=ULPS, seconds=seconds)
        met = np.abs(sampled(rounding, box, precision)[1]).max(axis=0)
        seen = [met, *(np.maximum(met, searched(network, box, precision, allowed)) for allowed in (False, True))]
        random, orders, allowed = (float((found.bound / other).max()) for other in seen)
        assert allowed >= 1.0
        print(f"  {precision:<12} at most {found.bound.max():.3g}, {random:.3g} times what is met at random,", end=" ")
        print(f"{orders:.3g} in chosen orders, {allowed:.3g} what is allowed, {found.seconds:.1f} s", flush=True)
    other = int8(network)
    found, met = lc.difference(network, other, box, seconds=seconds), climbed(lambda x: other(x) - network(x), box)
    worst = float((found.bound / met).max())
    assert worst >= 1.0
    print(
        f"  int8         at most {found.bound.max():.3g}, {worst:.3g} times what is met, {found.seconds:.1f} s",
        flush=True,
    )


def show(name: str, case: Case, folder: Path, seconds: float, parts: list[str]) -> None:
    network, box = lc.load(folder / case.file), lc.Box(case.lower, case.upper)
    print(f"{name}: {network}", flush=True)
    started = time.perf_counter()
    if "commands" in parts:
        reached, values = lc.reach(network, box, seconds=seconds), sampled(network, box, "float32")[1]
        ratio = ((reached.upper - reached.lower) / np.ptp(values, axis=0)).max()
        print(f"  commands     {ratio:.3f} of the sampled width, {reached.seconds:.1f} s", flush=True)
    if "errors" in parts:
        errors(network, box, seconds)
    if "loop" in parts and case.rates is None:
        advisory(network, box, seconds)
    elif "loop" in parts:
        loop(network, box, case, seconds)
    print(f"  all          {time.perf_counter() - started:.0f} s", flush=True)


def loop(network: lc.Network, box: lc.Box, case: Case, seconds: float) -> None:
    """Where the states of a loop go, and whether it comes to rest."""
    step = case.step(network)
    tube = lc.tube(step, box, case.steps, seconds=3 * seconds, unroll=case.unroll)
    x, ratios = box.sample(100_000, np.random.default_rng(0)), []
    for k in range(1, case.steps + 1):
        x = step(x)
        assert ((tube.lower[k] <= x) & (x <= tube.upper[k])).all()
        widths = np.ptp(x, axis=0)
        ratios.append(float(((tube.upper[k] - tube.lower[k])[widths > 0.0] / widths[widths > 0.0]).max()))
    print(f"  tube         {case.steps} steps, at most {max(ratios):.3f} of the sampled width, {tube.seconds:.1f} s")
    print(f"               at the end {np.round(tube.lower[-1], 3)} to {np.round(tube.upper[-1], 3)}", flush=True)
    if case.rests:
        still = np.zeros(len(case.lower))
        for _ in range(10_000):
            still = step(still)
        rate = lc.contraction(step, lc.Box(still - 0.001, still + 0.001), seconds=seconds)
        kept = lc.invariant_ellipsoid(step, still, seconds=seconds)
        sides = kept.ball.radius * np.linalg.norm(kept.shape, axis=1)
        print(f"  contraction  {rate.rate:.4f} within 0.001 of rest, {rate.seconds:.1f} s")
        print(f"  invariant    an ellipsoid of half sides {np.round(sides, 4)}, {kept.seconds:.1f} s")


def advisory(network: lc.Network, box: lc.Box, seconds: float) -> None:
    """Which output is the largest, for the loop that chooses among networks by it."""
    best = int(np.argmax(network(box.center)))
    rest = [k for k in range(network.outputs) if k != best]
    apart = lc.Network.from_weights([np.eye(network.outputs)[rest] - np.eye(network.outputs)[best]])
    found = lc.reach(lc.compose(network, apart), box, seconds=seconds)
    proved = "is" if (found.upper < 0.0).all() else "is not proved to be"
    met = np.unique(np.argmax(network(box.sample(100_000, np.random.default_rng(0))), axis=1))
    print(f"  advisory     {best} {proved} the one everywhere, {found.seconds:.1f} s; met: {met}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=CASES, help="one of the controllers")
    parts = ("commands", "errors", "loop")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts, help="of the questions")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each question")
    arguments = parser.parse_args()
    for name, case in CASES.items():
        if arguments.only in (None, name):
            show(name, case, arguments.folder, arguments.seconds, arguments.parts)


if __name__ == "__main__":
    main()
