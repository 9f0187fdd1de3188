"""The law for every rule about a network and every activation: nothing that is attained is above what is proved.

A rule says of a network and a region that something is at most so large; points of the region say what it is at least.
Whatever hints the rule asks for, good ones or any numbers, what it says is true. The same comparison sees mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.errors import ProofFailed
from lipcert.kernel.outputs import OutputBounds
from lipcert.kernel.second_order_jacobian import prove_second_order_jacobian
from lipcert.kernel.sweep import proving
from lipcert.kernel.taylor import Monomials, Second, SecondOrder
from lipcert.methods import quadratic, second_order
from lipcert.methods.dual import DualSearch, _natural
from lipcert.methods.second_order_jacobian import _Search as CurvedSearch
from lipcert.model.activations import Activation
from lipcert.model.arrays import Array
from lipcert.model.regions import Region
from lipcert.questions.prove_outputs import prove_outputs
from lipcert.suggest.hints import Curved, DualHints, QuadraticHints
from networks import NAMED_ROWS, ROWS, random_network, spread
from planted import Mistake, plant

Rng = np.random.Generator
Case = tuple[lc.Network, Any]
Said = Iterator[tuple[Any, Any]]
"""What is said to be an upper bound, and what is attained."""
SPLIT = lc.Split(lc.ClosedForm(), seconds=np.inf, tolerance=1e-3, pieces=40)


def steepest(network: lc.Network, x: Array) -> Array:
    """Norms of Jacobians."""
    return np.linalg.norm(network.jacobian(x), 2, axis=(-2, -1))


# What rules say.


def rows_of_outputs(network: lc.Network, region: Region, rng: Rng) -> Said:
    """Rows of outputs, and how fast they leave their values at the centre."""
    found = prove_outputs(network, region, lc.ClosedForm())
    rows, x = rng.standard_normal((3, network.outputs)), region.sample(1000, rng)
    away = np.linalg.norm(x - region.center, axis=1, keepdims=True)
    yield found.above(rows), network(x) @ rows.T
    yield found.lipschitz(rows) * away, np.abs((network(x) - network(region.center)) @ rows.T)
    yield found.bound * np.linalg.norm(rows, axis=1), found.lipschitz(rows)


def _reach(network: lc.Network, region: Region, rng: Rng, method: Any) -> Said:
    found = lc.reach(network, region, method)
    gap = network(region.sample(1000, rng)) - found.center
    yield found.upper - found.center, gap
    yield found.center - found.lower, -gap
    yield 1.0, (1.0 - 1e-9) * np.einsum("ki,ij,kj->k", gap, np.linalg.inv(found.shape), gap)
    yield float(region.radius) * found.bound, np.maximum(found.upper - found.center, found.center - found.lower)


def reach(network: lc.Network, region: Region, rng: Rng) -> Said:
    """Boxes and ellipsoids of outputs."""
    yield from _reach(network, region, rng, lc.Scalar())


def reach_by_pieces(network: lc.Network, region: Region, rng: Rng) -> Said:
    """The same, cut into pieces."""
    yield from _reach(network, region, rng, SPLIT)


def _sensitivity(network: lc.Network, region: Region, rng: Rng, method: Any) -> Said:
    x = region.sample(1000, rng)
    right, left = network.jacobian(x), network.jacobian(x, side=-1)
    found = lc.sensitivity(network, region, method)
    yield found.matrix, np.where(right == left, np.abs(right), 0.0)
    yield found.bound, found.matrix


def sensitivity(network: lc.Network, region: Region, rng: Rng) -> Said:
    """Entries of Jacobians."""
    yield from _sensitivity(network, region, rng, lc.ClosedForm())


def sensitivity_by_pieces(network: lc.Network, region: Region, rng: Rng) -> Said:
    """The same, cut into pieces."""
    yield from _sensitivity(network, region, rng, SPLIT)


def _largest(network: lc.Network, ball: lc.Ball, row: Array, rng: Rng) -> float:
    """Of row·f at many points, and where its gradient at the centre leads."""
    way = row @ network.jacobian(ball.center)
    far = ball.center + float(ball.radius) * way / max(float(np.linalg.norm(way)), 1e-300)
    return float((network(ball.project(np.concatenate([ball.sample(1000, rng), far[None]]))) @ row).max())


def value_functions(network: lc.Network, ball: lc.Ball, rng: Rng) -> Said:
    """The semidefinite dual bound, of neurons that are straight on both sides of zero."""
    found = prove_outputs(network, ball, lc.ClosedForm())
    row = rng.standard_normal(network.outputs)
    told, most = DualSearch().find(found, row, best=True), _largest(network, ball, row, rng)
    if told is not None:
        yield found.dual_bound.above(told[0]), most
        some = _natural(found.dual_bound)
        for scale in 10.0 ** rng.uniform(-3.0, 3.0, 3):
            any_ = DualHints(row, some + scale * rng.standard_normal(some.size), float(rng.uniform(-1.0, 5.0)))
            with suppress(ProofFailed):
                yield found.dual_bound.above(any_), most


def descended(found: OutputBounds, row: Array, steps: int) -> QuadraticHints:
    """What a search for parabolas ends with that bounds squares layer by layer."""
    bowls = found.quadratic_relaxation
    layers = [layer for stage in bowls.stages if (layer := quadratic._Layer.of(stage, bowls.radius)) is not None]
    descent = quadratic._Descent(quadratic._Objective(bowls, row, layers))
    for _ in range(steps):
        descent.step()
    return descent.hints()


def parabolas(network: lc.Network, ball: lc.Ball, rng: Rng, steps: int = 12) -> Said:
    """Squares bounded layer by layer, and together."""
    found = prove_outputs(network, ball, lc.ClosedForm())
    bowls, row = found.quadratic_relaxation, rng.standard_normal(network.outputs)
    objective, most = second_order._Objective(bowls, row), _largest(network, ball, row, rng)
    start = objective.hints(objective.start())
    for told in (descended(found, row, steps), *(replace(start, mu=factor * start.mu) for factor in (1.0, 1.5, 2.5))):
        yield bowls.above(told), most
    for size in 10.0 ** rng.uniform(-3.0, 2.0, 2):
        parts = (start.slopes, start.bends, start.multipliers or ())
        for mix in (0.0, 1.0):  # any numbers, or the search's own, spoiled
            slopes, bends, T = (
                tuple((mix + size * rng.standard_normal(one.shape)) * (one if mix else 1.0) for one in some)
                for some in parts
            )
            told = QuadraticHints(row, slopes, bends, float(10.0 ** rng.uniform(-2.0, 4.0)), multipliers=T)
            for hints in (told, replace(told, multipliers=None, tops=tuple(rng.standard_normal(len(slopes))))):
                with suppress(ProofFailed):
                    yield bowls.above(hints), most


def longer_parabolas(network: lc.Network, ball: lc.Ball, rng: Rng) -> Said:
    """With as long a search as the mistakes need."""
    return parabolas(network, ball, rng, 60)


def curved_hints(network: lc.Network, ball: lc.Ball, steps: int) -> Curved:
    """The best that a search for a second-order bound of the Jacobian meets."""
    search, met = CurvedSearch.of(network, ball), []
    for _, (x, value) in zip(range(steps + 1), search.descent(np.inf)):
        met.append((value.bound, search.hints(x, value.share)))
    return min(met, key=lambda one: one[0])[1]


def second_order_jacobian(network: lc.Network, ball: lc.Ball, rng: Rng, steps: int = 10) -> Said:
    """Good hints, and others."""
    x = ball.sample(2000, rng)
    if network.inputs == 1:
        x = ball.center + float(ball.radius) * np.linspace(-1.0, 1.0, 20001)[:, None]
    hints, most = curved_hints(network, ball, steps), steepest(network, x).max()
    for scale in (0.0, 0.1, 1.0, 3.0):
        wild = Curved(
            hints.slopes + scale * rng.standard_normal(hints.slopes.shape),
            hints.balance * np.exp(3.0 * scale * rng.standard_normal(hints.balance.shape)),
            hints.mix + scale * rng.standard_normal(hints.mix.shape),
            hints.weights * np.exp(scale * rng.standard_normal(6)),
        )
        with suppress(ProofFailed), proving():
            yield prove_second_order_jacobian(network, ball, wild), most


def longer_second_order_jacobian(network: lc.Network, ball: lc.Ball, rng: Rng) -> Said:
    """With as long a search as the mistakes need."""
    return second_order_jacobian(network, ball, rng, 100)


def taylor_bounds(network: lc.Network, lower: Array, upper: Array) -> Second:
    """Of a stack of boxes, nothing being known of the pre-activations."""
    ends = [np.full((len(lower), n), np.inf) for n in network.sizes[1:-1]]
    return SecondOrder(network).bound(lower, upper, [-end for end in ends], ends)


def taylor(network: lc.Network, boxes: lc.Box, rng: Rng) -> Said:
    """Norms, outputs, entries and pre-activations over a stack of boxes, with their corners."""
    found, lower, upper = taylor_bounds(network, boxes.lower, boxes.upper), boxes.lower, boxes.upper
    shares = rng.uniform(size=(200, *lower.shape))
    shares[:100] = np.round(shares[:100])
    x = np.clip(lower + shares * (upper - lower), lower, upper)
    values = np.concatenate(network.preactivations(x)[:-1], axis=-1)
    yield found.bounds, steepest(network, x)
    yield found.outputs, np.concatenate([network(x), -network(x)], axis=-1)
    yield found.entries, np.abs(network.jacobian(x))
    yield np.concatenate([found.high, -found.low], axis=-1), np.concatenate([values, -values], axis=-1)
    yield 0.0, found.empty.astype(float)


# Networks and regions.


def region(rng: Rng, inputs: int, *kinds: str) -> Region:
    """A ball, a clipped ball or a box of any natural size."""
    center, size = rng.standard_normal(inputs), float(10.0 ** rng.uniform(-3.0, 0.3))
    low, high = center - size * rng.random(inputs), center + size * rng.random(inputs)
    kind = str(rng.choice(kinds))
    return lc.Box(low, high) if kind == "box" else lc.Ball(center, size, (low, high) if kind == "clip" else None)


def in_any(rng: Rng, row: Activation) -> Case:
    network = random_network(int(rng.integers(99)), (3, 7, 6, 2), row, gain=2.5)
    return network, region(rng, 3, "ball", "clip", "box")


def in_balls(rng: Rng, row: Activation) -> Case:
    hidden = rng.integers(1, 8, size=rng.integers(1, 4)).tolist()
    sizes = (int(rng.choice([1, 2, 4, 20])), *hidden, 2)
    return random_network(int(rng.integers(99)), sizes, row, gain=2.5), region(rng, sizes[0], "ball", "clip")


def with_many_inputs(rng: Rng, row: Activation) -> Case:
    return random_network(int(rng.integers(99)), (18, 5, 4, 3), row, gain=2.0), region(rng, 18, "ball")


SIZES = [(1, 5, 1), (2, 7, 6, 3), (4, 8, 8, 1), (6, 10, 9, 3), (3, 6, 6, 6, 2), (2, 5, 5, 5, 5, 4)]
DEEP = [(1, 1, 1), (1, 2, 1, 1), (3, *[8] * 9, 2), (5, *[12] * 16, 2), (2, *[3] * 30, 1)]
HALVES = (1e-12, 1e-4, 0.03, 0.2, 1.0, 4.0)


def in_boxes(rng: Rng, row: Activation) -> Case:
    sizes = (SIZES + DEEP)[int(rng.integers(len(SIZES + DEEP)))]
    network = random_network(int(rng.integers(99)), sizes, row, gain=2.0 if sizes in SIZES else 1.5)
    center = rng.uniform(-1.0, 1.0, (24, sizes[0]))
    sides = np.repeat(HALVES, 4)[:, None] * rng.uniform(0.2, 1.0, center.shape)
    return network, lc.Box(center - sides, center + sides)


def broken(said: Said) -> bool:
    """Whether something is attained that is above its bound, but for rounding; a bound that is no number is none."""
    with np.errstate(all="ignore"):
        return any(not np.all(attained <= bound + 1e-12 * (1.0 + np.abs(attained))) for bound, attained in said)


@dataclass(frozen=True)
class Law:
    """What a rule says, of which cases, and how many of them are quick enough for each activation."""

    says: Callable[[lc.Network, Any, Rng], Said]
    draw: Callable[[Rng, Activation], Case]
    count: int = 1
    rows: tuple[str, ...] | None = None

    def broken(self, row: Activation, seed: int, number: int) -> bool:
        """Whether something is attained in one case that is above its bound."""
        rng = np.random.default_rng([seed, number])
        return broken(self.says(*self.draw(rng, row), rng))


SMOOTH = ("tanh", "sigmoid", "softplus", "silu", "gelu", "elu", "celu", "selu", "mish", "arctan", "softsign", "sin")
LAWS = {
    law.says.__name__: law
    for law in (
        Law(rows_of_outputs, in_any, 2),
        Law(reach, in_any),
        Law(reach_by_pieces, in_any),
        Law(sensitivity, in_any),
        Law(sensitivity_by_pieces, in_any),
        Law(value_functions, in_balls, 4, ("relu", "leaky_relu", "hardtanh", "relu6", "identity")),
        Law(parabolas, in_balls, 2),
        Law(second_order_jacobian, with_many_inputs),
        Law(taylor, in_boxes, 3, SMOOTH),
    )
}


def suits(law: Law, row: Activation) -> bool:
    return law.rows is None or row.name in law.rows


CASES = [one for one in spread(2, LAWS, NAMED_ROWS) if suits(*one.values)]


@pytest.mark.parametrize(("law", "row"), CASES)
def test_nothing_that_is_attained_is_above(law: Law, row: Activation) -> None:
    assert not any(law.broken(row, ROWS.index(row), number) for number in range(law.count))


# Mistakes, each with a kind of case in which what is proved is near what is attained.


def kinked(rng: Rng, _: Any) -> Case:
    return random_network(int(rng.integers(99)), (3, 6, 5, 2), "relu", gain=2.5), lc.Ball(rng.standard_normal(3), 0.6)


def wide_balls(rng: Rng, _: Any) -> Case:
    network, ball = kinked(rng, _)
    return network, lc.Ball(ball.center, 1.0)


def steep(rng: Rng, _: Any) -> Case:
    network = random_network(5, (2, 8, 8, 2), "tanh", gain=6.0, bias=0.2)
    return network, lc.Ball(rng.uniform(-1.0, 1.0, 2), 0.3)


def bowl() -> lc.Network:
    """f_0 - f_1 = 1 - ‖x‖²/3 near 0: hardswish(v) + hardswish(-v) = v²/3 for |v| ≤ 3."""
    signs = np.concatenate([np.eye(2), -np.eye(2)])
    return lc.Network.from_weights([signs, [[0.0] * 4, [1.0] * 4]], [np.zeros(4), [1.0, 0.0]], "hardswish")


def bowls(rng: Rng, _: Any) -> Case:
    return bowl(), lc.Ball(0.3 * rng.uniform(-1.0, 1.0, 2), 1.5)


def chain(_: Rng, __: Any) -> Case:
    """Two neurons on the parabola of hardswish: slopes are linear and all signs agree."""
    weights = [[[1.0]], [[1.5]], [[1.0]]]
    return lc.Network.from_weights(weights, [[0.5], [0.3], None], "hardswish"), lc.Ball([0.0], 0.4)


def tiny(rng: Rng, _: Any) -> Case:
    sizes = [(1, 1, 1), (1, 2, 1), (1, 1, 1, 1), (2, 2, 2, 1)][int(rng.integers(4))]
    network = random_network(int(rng.integers(99)), sizes, str(rng.choice(["tanh", "sin"])), gain=3.0)
    center, half = rng.uniform(-1.0, 1.0, (40, sizes[0])), rng.choice([0.05, 0.2, 0.6])
    return network, lc.Box(center - half, center + half)


def smooth(rng: Rng, _: Any) -> Case:
    return random_network(4, (3, 8, 7, 2), "tanh", gain=3.0), lc.Ball([0.1, -0.2, 0.3], 0.8)


def of_the_tables(change: Callable[[Monomials], dict[str, Any]]) -> Mistake:
    """Polynomials whose tables are changed."""

    def init(honest: Any, order: SecondOrder, network: lc.Network) -> None:
        honest(order, network)
        vars(order.poly).update(change(order.poly))

    return plant("taylor.SecondOrder.__init__", init)


def no_remainders_of_layers_before(honest: Any, order: SecondOrder, network: lc.Network) -> None:
    honest(order, network)
    order.sizes = [0.0 * size for size in order.sizes]


def intervals_of_another_piece(honest: Any, order: SecondOrder, lower: Array, upper: Array, *ends: Any) -> Second:
    """What is known of a piece serves its parts, and nothing else."""
    found = honest(order, lower, upper, *ends)
    starts = np.cumsum([end.shape[-1] for end in ends[0]])[:-1]
    known: Any = (np.split(np.roll(side, 1, axis=0), starts, axis=-1) for side in (found.low, found.high))
    return honest(order, lower, upper, *known)


def nothing(_: pytest.MonkeyPatch) -> None:
    """No mistake."""


CURVED = "second_order_jacobian._Curved"
QUADRATIC = "quadratic_form.QuadraticRelaxation"
PLANTED: dict[Law, list[Mistake]] = {
    Law(value_functions, kinked): [
        plant("quadratic_form.DualBound._kink", lambda honest, m, k, *z: honest(m, replace(k, high=0.5 * k.high), *z)),
        plant(
            "quadratic_form.DualBound._preactivations",
            lambda honest, m, layer, b: honest(m, layer, lc.Ball(b.center, 0.8 * float(b.radius))),
        ),
        plant("quadratic_form.slope_bounds", lambda _, n, low, high: (n.slope(0.5 * low + 0.5 * high),) * 2),
    ],
    Law(longer_parabolas, wide_balls): [
        plant("quadratic_form._heights", lambda honest, *given: honest(*given) - 0.05),
        plant("quadratic_form._most", lambda *_: 0.0),
        plant(f"{QUADRATIC}._over_ball", lambda honest, *given: 0.8 * honest(*given)),
        plant("quadratic_form._replaced", lambda honest, *given: (p := honest(*given), (p[0], 0.0 * p[1], *p[2:]))[1]),
    ],
    Law(parabolas, steep): [
        plant("quadratic_form.KnownLayer.secants", lambda honest, layer: (0.5 * sum(honest(layer)),) * 2),
    ],
    Law(parabolas, bowls): [
        plant(f"{QUADRATIC}._together", lambda honest, *given: tuple(0.3 * part for part in honest(*given))),
    ],
    Law(longer_second_order_jacobian, chain): [
        plant(f"{CURVED}._slope_deviations", lambda honest, run, S, Q: honest(run, S, 0.0 * Q)),
        plant(f"{CURVED}._slope_deviations", lambda honest, run, S, Q: honest(run, 0.9 * S, Q)),
        plant(f"{CURVED}._budget", lambda honest, run, *rest: run.rest * honest(run, *rest)),
    ],
    Law(taylor, tiny): [
        plant("taylor.fit", lambda honest, *given: replace(found := honest(*given), rest=0.0 * found.rest)),
        plant("taylor.fit", lambda honest, *given: replace(found := honest(*given), error=0.5 * found.error)),
        of_the_tables(lambda poly: {"values": poly.values[:, : poly.values.shape[1] // 2]}),  # half of the corners
        of_the_tables(lambda poly: {"slack": 0.0 * poly.slack, "slacks": [0.0 * part for part in poly.slacks]}),
        of_the_tables(lambda poly: {"touched": [0.0 * part for part in poly.touched]}),  # no higher degrees
        of_the_tables(lambda poly: {"sides": [0.5 * side for side in poly.sides]}),  # half of an interval
        plant("taylor.SecondOrder._beyond", lambda honest, *given: 0.0 * honest(*given)),
        plant("taylor.SecondOrder.__init__", no_remainders_of_layers_before),
        plant("taylor.SecondOrder.bound", intervals_of_another_piece),
    ],
    Law(reach_by_pieces, smooth): [
        plant("branch_and_bound.OutputRows.to_first_order", lambda honest, rows, sweep: honest(rows, sweep) - 0.2),
    ],
    Law(sensitivity_by_pieces, smooth): [
        plant("branch_and_bound.jacobian", lambda honest, network, slopes: 0.3 * honest(network, slopes)),
    ],
}


@pytest.mark.parametrize(
    ("law", "mistake"),
    [(law, mistake) for law, mistakes in PLANTED.items() for mistake in (nothing, *mistakes)],
    ids=lambda one: one.says.__name__ if isinstance(one, Law) else one.__name__,
)
def test_a_mistake_in_a_rule_is_seen(law: Law, mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    seen = False
    for number in range(6 if mistake is nothing else 60):
        with suppress(ProofFailed):
            seen = seen or law.broken(ROWS[0], 0, number)
    assert seen == (mistake is not nothing)
