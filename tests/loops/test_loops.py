"""Closed loops: the network of a loop is the loop, tubes hold simulations, rates are above what is met."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import lipcert as lc
from closed_loops import GAIN, LOOPS, A, B, controller, loop, pendulum, simulated, spread_out
from lipcert.errors import InvalidInput, ProofFailed
from lipcert.questions.loops.compose import balanced, squared, unrolled
from networks import random_network

START = lc.Box([0.4, -0.1], [0.6, 0.1])
PIECES = lc.Split(lc.ClosedForm(), np.inf, pieces=30)


def held(tube: lc.Tube, states: np.ndarray) -> bool:
    return bool(((states >= tube.lower[:, None]) & (states <= tube.upper[:, None])).all())


def test_the_network_of_a_loop_is_the_loop() -> None:
    rng = np.random.default_rng(0)
    u, x, w = controller(), rng.uniform(-1, 1, (50, 2)), rng.uniform(-1, 1, (50, 1))
    c, E = np.array([0.1, -0.2]), np.array([[0.3], [0.7]])
    found = lc.feedback(A, B, u, c, E)(np.hstack([x, w]))
    np.testing.assert_allclose(found, x @ A.T + u(x) @ B.T + c + w @ E.T, rtol=0, atol=1e-13)
    expected = np.stack([x[:, 0] + 0.05 * x[:, 1], x[:, 1] + 0.05 * (9.81 * np.sin(x[:, 0]) + 5 * u(x)[:, 0])], 1)
    np.testing.assert_allclose(loop("pendulum")(x), expected, rtol=0, atol=1e-13)
    step = lc.feedback(A, B, u, disturbance=E)
    forces = rng.uniform(-1, 1, (3, 50, 1))
    states = simulated(step, x, 3, forces)
    np.testing.assert_allclose(
        unrolled(step, 3)(np.hstack([x, *forces])), np.hstack(list(states[1:])), rtol=0, atol=1e-12
    )
    nets = [random_network(seed, (3, 4, 3), "relu") for seed in (1, 2, 3)]
    y = rng.uniform(-1, 1, (20, 3))
    np.testing.assert_allclose(lc.compose(*nets)(y), nets[2](nets[1](nets[0](y))), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", LOOPS)
def test_tubes_hold_what_is_simulated_and_hardly_more(name: str) -> None:
    step = loop(name)
    tube = lc.tube(step, START, 15, PIECES)
    states = simulated(step, spread_out(START, 5000), 15)
    assert held(tube, states)
    widths = states.max(axis=1) - states.min(axis=1)
    assert ((tube.upper - tube.lower) / widths).max() < 1.03
    assert tube.steps == 15
    assert tube.avoids(lc.Box([0.7, -9.0], [3.0, 9.0]))
    assert not tube.avoids(START)
    at = tube.inside(lc.Box([-0.3, -1.0], [0.35, 1.0]))
    assert at is not None
    assert (np.abs(states[at]) <= [0.35, 1.0]).all()
    assert not (states[at - 1] <= [0.35, 1.0]).all()
    assert tube.inside(lc.Box([-0.3, 5.0], [0.3, 6.0])) is None


def test_disturbances_come_anew_in_every_step() -> None:
    step, force = lc.feedback(A, B, controller(), disturbance=np.eye(2)), lc.Box([-0.01, -0.1], [0.01, 0.1])
    tube = lc.tube(step, START, 5, lc.ClosedForm(), disturbance=force)
    rng = np.random.default_rng(1)
    forces = rng.choice([-1.0, 1.0], (5, 4004, 2)) * force.upper
    assert held(tube, simulated(step, spread_out(START, 4000), 5, forces))
    still = lc.tube(loop("linear"), START, 5, lc.ClosedForm())
    assert ((tube.upper - tube.lower)[1:] > (still.upper - still.lower)[1:]).all()
    assert lc.verify(step, tube).steps == 5


def test_segments_begin_where_the_one_before_ends() -> None:
    step = loop("pendulum")
    whole, parts = (lc.tube(step, START, 6, lc.Scalar(), unroll=unroll) for unroll in (6, 2))
    assert [one.steps for one in parts.segments] == [2, 2, 2]
    assert held(parts, simulated(step, spread_out(START, 2000), 6))
    assert lc.Box(parts.lower[2], parts.upper[2]).contains(parts.segments[1].answer.region.center)
    assert ((whole.upper - whole.lower)[3:] < (parts.upper - parts.lower)[3:]).all()
    lc.verify(step, parts)
    first, second, third = parts.segments
    for segments in ((), (first, third, second), (second, third), (first, second, replace(third, steps=1))):
        with pytest.raises(ProofFailed):
            lc.verify(step, replace(parts, segments=segments))


def test_products_are_squares_with_any_scales() -> None:
    step, x = loop("turning"), np.random.default_rng(5).uniform(-1, 1, (200, 2))
    long = unrolled(step, 2)
    assert long.coupled
    for scales in ((0, 0), (3, -7), balanced(long, START)):
        found = squared(long, scales)
        assert not found.coupled
        np.testing.assert_allclose(found(x), long(x), rtol=0, atol=1e-10)
    np.testing.assert_allclose(found(x)[:, 2:], step(step(x)), rtol=0, atol=1e-13)
    assert squared(loop("linear"), ()) is loop("linear")
    soft = lc.Network.from_weights([np.eye(2), np.eye(2)], activation=[([], lc.Coupling.of(0, 2, rows=[(1, 2)]))])
    np.testing.assert_allclose(lc.compose(step, soft)(x), soft(step(x)), rtol=0, atol=1e-13)
    for wrong in ((), (0,), (0, 0, 0), (0, 1000)):
        with pytest.raises(ProofFailed, match="scale"):
            squared(long, wrong)


def test_gains_from_disturbances() -> None:
    """Of a linear plant the gain is a norm; a sine that is pushed has it, and no disturbance may be forgotten."""
    push = np.array([[0.0, 0.01], [0.05, 0.0]])
    step, force = lc.feedback(A, B, controller(), disturbance=push), lc.Box([-1.0, -1.0], [1.0, 1.0])
    found = lc.contraction(step, lc.Ball([0.0, 0.0], 0.1), PIECES, disturbance=force)
    np.testing.assert_allclose(found.gain, np.linalg.norm(np.linalg.solve(found.shape, push), 2), rtol=1e-9)
    assert found.contains([[0.0, 0.0], [0.06, 0.06], [2.0, 2.0]]).tolist() == [True, True, False]
    rng = np.random.default_rng(4)
    x, w = rng.uniform(-0.07, 0.07, (2, 3000, 2)), rng.uniform(-1.0, 1.0, (2, 3000, 2))
    one, two = (step(np.hstack([x[k], w[k]])) for k in (0, 1))
    apart, near = (np.linalg.norm(np.linalg.solve(found.shape, d.T), axis=0) for d in (one - two, x[0] - x[1]))
    assert (apart <= found.rate * near + found.gain * np.linalg.norm(w[0] - w[1], axis=1)).all()
    assert lc.verify(step, found).gain <= found.gain
    assert found.forced is not None
    other = replace(found.certificate, region=lc.Box([0.0] * 4, [1e-3] * 4))
    for wrong in (
        replace(found, forced=None),
        replace(found, forced=found.certificate),
        replace(found, certificate=found.forced),
        replace(found, certificate=other),
    ):
        with pytest.raises(ProofFailed):
            lc.verify(step, wrong)


@pytest.mark.parametrize("name", ["linear", "pendulum", "turning"])
def test_rates_are_above_what_is_met(name: str) -> None:
    step = loop(name)
    for region in (lc.Box([-0.3, -0.3], [0.3, 0.3]), lc.Ball([0.1, 0.0], 0.2)):
        found = lc.contraction(step, region, seconds=60.0)
        points = region.sample(3000, np.random.default_rng(2))
        assert found.contains(points).all()
        inside = found.certificate.region.sample(20000, np.random.default_rng(3)) @ found.shape.T
        there = np.linalg.solve(found.shape, step.jacobian(inside) @ found.shape)
        met = float(np.linalg.norm(there, 2, axis=(1, 2)).max())
        assert met <= found.rate <= 1.01 * met
        assert found.rate < 1.0
    with pytest.raises(ProofFailed):
        lc.verify(step, replace(found, shape=found.shape * [[1.0, 1.0], [1.0, 1.01]]))


def test_a_rate_is_about_every_step_within_the_weight_tolerance() -> None:
    """A weight that is 2⁻⁵⁰ larger: M⁻¹ diag(1 + 2⁻⁵⁰, 1) M = I + 2⁻³² [[1 + ε, 1 + ε], [-1, -1]]."""
    tiny = 2.0**-18
    step, shape = lc.Network.from_weights([0.5 * np.eye(2)]), [[1.0, 1.0], [1.0, 1.0 + tiny]]
    found = lc.contraction(step, lc.Ball([0.0, 0.0], 1.0), lc.ClosedForm(), shape=shape)
    changed = 0.5 * np.eye(2) + 2.0**-33 * np.array([[1.0 + tiny, 1.0 + tiny], [-1.0, -1.0]])
    assert 0.5 < np.linalg.norm(changed, 2) <= found.rate < 0.51


@pytest.mark.parametrize("name", ["linear", "saturated", "turning"])
def test_nothing_leaves_an_invariant_ellipsoid(name: str) -> None:
    step = loop(name)
    found = lc.invariant_ellipsoid(step, within=lc.Box([-0.5, -1.0], [0.5, 1.0]), seconds=2.0)
    states = simulated(step, found.edge(10000), 100)
    assert (np.abs(found.edge(10000)) <= [0.5, 1.0]).all()
    assert all(found.contains(one).all() for one in states[1:])
    assert np.abs(states[-1] - found.middle).max() < 0.1 * np.abs(states[0] - found.middle).max()
    assert lc.verify(step, found).rate < 1.0
    ball = found.ball
    larger = replace(found.contraction.certificate, region=lc.Ball(ball.center, 1.5 * ball.radius))
    clip = lc.Box(ball.center - 0.5 * ball.radius, ball.center + 2.0 * ball.radius)
    part = lc.certify(found.contraction.moved(step), lc.Ball(ball.center, ball.radius, clip=clip), PIECES)
    other = lc.Ball(ball.center + 0.1 * ball.radius, 0.0)
    for wrong in (
        replace(found, contraction=replace(found.contraction, certificate=larger)),
        replace(found, contraction=replace(found.contraction, certificate=part)),  # the loop may leave the clip
        replace(found, center=replace(found.center, region=other)),
        replace(found, center=replace(found.center, upper=found.center.upper + 1.0)),
    ):
        with pytest.raises(ProofFailed):
            lc.verify(step, wrong)


def test_errors_say_what_to_do() -> None:
    u, step = controller(), loop("linear")
    wide = lc.feedback(A, B, u, disturbance=np.eye(2))
    tube = lc.tube(step, START, 1)
    wrong: dict[str, Callable[[], object]] = {
        "these must agree": lambda: lc.compose(u, u),
        "one network or more": lc.compose,
        "A must be": lambda: lc.feedback(A, np.eye(2), u),
        "disturbance must have 2 rows": lambda: lc.feedback(A, B, u, disturbance=[[1.0, 2.0, 3.0]]),
        "the plant must be from 2 states": lambda: lc.closed_loop(u, u),
        "bounded region of initial states": lambda: lc.tube(step, lc.Everywhere(), 3),
        "steps must be a whole number": lambda: lc.tube(step, START, 0),
        "needs a disturbance of 2": lambda: lc.tube(wide, START, 3),
        "needs a disturbance of 1": lambda: lc.contraction(u, START),
        "contraction needs a bounded": lambda: lc.contraction(step, lc.Everywhere()),
        "shape must be a matrix": lambda: lc.contraction(step, START, shape=np.eye(3)),
        "has no inverse": lambda: lc.contraction(step, START, shape=np.ones((2, 2))),
        "too near to one without": lambda: lc.contraction(step, START, shape=1e-200 * np.eye(2)),
        "invariant_ellipsoid is about": lambda: lc.invariant_ellipsoid(wide),
        "is not inside the box": lambda: lc.invariant_ellipsoid(step, within=lc.Box([1.0, 1.0], [2.0, 2.0])),
        "layers of the same sizes": lambda: lc.difference(u, controller(12), START),
        "disturbance must be a Box": lambda: lc.tube(wide, START, 3, disturbance=(-1, 1)),  # type: ignore[arg-type]
        "within must be a Box": lambda: lc.invariant_ellipsoid(step, within=lc.Ball([0, 0], 1)),  # type: ignore[arg-type]
        "equilibrium must have 2": lambda: lc.invariant_ellipsoid(step, [0.0, 0.0, 0.0]),
        "no end of its own": lambda: lc.contraction(step, START, seconds=None),  # type: ignore[arg-type]
        "unsafe must have 2": lambda: tube.avoids(lc.Box([0.0] * 3, [1.0] * 3)),
        "target must be a Box": lambda: tube.inside(lc.Ball([0, 0], 1)),  # type: ignore[arg-type]
        "precision must be one of": lambda: lc.evaluation_error(u, START, "int8"),
        "ulps must be": lambda: lc.evaluation_error(u, START, ulps=-1.0),
        "needs a bounded region": lambda: lc.evaluation_error(u, lc.Everywhere()),  # type: ignore[arg-type]
    }
    for message, ask in wrong.items():
        with pytest.raises(InvalidInput, match=message):
            ask()
    with pytest.raises(ProofFailed, match="stable equilibrium"):
        lc.invariant_ellipsoid(lc.feedback(A, B, lc.Network.from_weights([-GAIN[None]])), seconds=0.5)
    assert pendulum().inputs == 3


def test_boxes_without_a_size_get_that_of_the_loop() -> None:
    step, wide = loop("linear"), lc.feedback(A, B, controller(), disturbance=np.eye(2))
    method, small, sized = lc.ClosedForm(), lc.Box(-0.1, 0.1), lc.Box([-0.1, -0.1], [0.1, 0.1])
    one, two = (lc.tube(wide, box, 2, method, disturbance=box) for box in (small, sized))
    np.testing.assert_array_equal(one.upper, two.upper)
    one, two = (lc.tube(step, box, 2, method) for box in (small, sized))
    np.testing.assert_array_equal(one.lower, two.lower)
    shape = np.eye(2)
    one_rate, two_rate = (lc.contraction(step, box, method, shape=shape).rate for box in (small, sized))
    assert one_rate == two_rate
