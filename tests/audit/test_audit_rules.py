"""The second opinion agrees in every norm and unit, and planted mistakes are refused."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb

import lipcert as lc
from lipcert.audit.balls import balls, dot
from lipcert.audit.engine import advance, inputs_of, read
from lipcert.audit.taylor import Expansion, remainders
from lipcert.definitions.functions import Function, View, ball, precision
from lipcert.definitions.rows import function
from lipcert.kernel.fourier import by_channel, prove_symbols
from lipcert.model.activations import Activation
from lipcert.model.regions import PLAIN, Region
from lipcert.questions import verify as questions
from lipcert.suggest.hints import Hints
from networks import ROW_LABELS, ROWS, random_network
from second_opinion import refused

SCALE = (0.5, 2.0, 1.0, 3.0)
INTO = (lc.L1(), lc.LInf(), lc.L2(scale=SCALE), lc.LInf(scale=SCALE), lc.L1(scale=0.3))
OUT = (lc.L1(), lc.L2(), lc.LInf(), lc.L2(scale=(0.1, 10.0, 1.0)))
REGIONS: tuple[Region, ...] = (
    lc.Ball(np.zeros(4), 0.5),
    lc.Ball(np.full(4, 0.2), 0.5, norm=lc.LInf(scale=SCALE)),
    lc.Ball(np.full(4, 0.2), 0.5, norm=lc.L1(scale=SCALE)),
    lc.Box(-np.ones(4), np.ones(4)),
    lc.Everywhere(),
    lc.Ball(np.zeros(4), 0.5, clip=(-0.3, 0.3)),
)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_norms_and_units(activation: str) -> None:
    network = random_network(3, (4, 8, 7, 3), activation, gain=2.0)
    methods = [lc.Scalar(), lc.ClosedForm(), lc.Joint(iterations=8)]
    for number, (into, out) in enumerate(itertools.product(INTO, OUT)):
        ends: Any = {"input_norm": into, "output_norm": out}
        found = lc.certify(network, REGIONS[number % len(REGIONS)], methods[number % 3], **ends)
        assert lc.verify(network, found, exact=True) <= found.bound, (into, out)
        if found.region.bounded:
            lower = lc.lower_bound(network, found.region, samples=40, steps=4, starts=3, **ends)
            assert refused(network, replace(found, bound=lower.value * (1.0 - 1e-6)))
    parts: list[dict[str, Any]] = [
        {"inputs": [0, 2], "outputs": [1], "input_norm": lc.LInf(scale=(1.0, 2.0))},
        {"layers": (1, 3), "input_norm": lc.LInf(), "output_norm": lc.L1()},
    ]
    for part in parts:
        found = lc.certify(network, REGIONS[0], lc.Scalar(), **part)
        assert lc.verify(network, found, exact=True) <= found.bound
        assert refused(network, replace(found, bound=0.99 * found.bound))


def test_trees_in_other_norms_and_over_all_of_space() -> None:
    network = random_network(1, (2, 6, 5, 2), "relu", gain=2.0)
    split = lc.Split(lc.ClosedForm(), np.inf, 0.03)
    units: Any = {"input_norm": lc.LInf(scale=(0.5, 2.0)), "output_norm": lc.L1()}
    for region, norms in ((lc.Everywhere(), {}), (lc.Box([-1.0] * 2, [1.0] * 2), units)):
        found = lc.certify(network, region, split, **norms)
        assert found.tree is not None
        assert lc.verify(network, found, exact=True) <= found.bound
        assert refused(network, replace(found, bound=0.9 * found.bound))


def test_planted_mistakes_are_refused() -> None:
    network = random_network(5, (3, 8, 7, 3), "tanh", gain=1.5)
    found = lc.certify(network, lc.Ball([0.3, -0.2, 0.9], 0.4), lc.Joint(), enclosures=(lc.Lipschitz(),))
    true = lc.verify(network, found, exact=True)
    smaller = [replace(sweep, multipliers=tuple(0.9 * T for T in sweep.multipliers)) for sweep in found.sweeps]
    assert true > found.bound * (1.0 - 1e-9)
    assert refused(network, replace(found, bound=found.bound * (1.0 - 1e-9)))
    assert refused(network, replace(found, sweeps=tuple(smaller)))
    assert refused(network, replace(found, region=lc.Ball([0.3, -0.2, 0.9], 0.4 * (1.0 + 1e-6))))


def test_a_slope_that_is_narrowed_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit's own slopes matter: narrowed by 1e-6, it proves less than what is attained."""
    network = lc.Network.from_weights([[[2.0]], [[1.5]]], activation="tanh")
    found = lc.certify(network, lc.Ball([0.0], 1.0), lc.ClosedForm())
    assert lc.verify(network, found, exact=True) >= 3.0
    honest = View.slopes
    monkeypatch.setattr(View, "slopes", lambda view: (honest(view)[0], honest(view)[1] - 1e-6))
    assert lc.verify(network, found, exact=True) < 3.0


def test_a_step_holds_for_every_slope() -> None:
    """D S D ≼ P for slopes at the corners, any multipliers; and a P that is 0.9 times as large does not."""
    rng = np.random.default_rng(0)
    with precision(128):
        for _ in range(10):
            factor = rng.standard_normal((4, 4))
            S = balls(factor @ factor.T + 1e-9 * np.eye(4))
            ends = np.sort(rng.normal(0.5, 0.6, (2, 4)), axis=0)
            P = advance((S + S.T) / 2, (balls(ends[0]), balls(ends[1])), balls(rng.uniform(0.1, 9.0, 4)))
            for corner in itertools.product(*ends.T):
                D = balls(corner)
                gap = np.array((P - D[:, None] * S * D).tolist(), dtype=float)
                assert np.linalg.eigvalsh(gap)[0] > -1e-12


def test_balls_hold_exact_products() -> None:
    rng = np.random.default_rng(2)
    A, B = rng.standard_normal((3, 5)) * 1e8, rng.standard_normal((5, 2))
    with precision(64):
        product: Any = dot(balls(A), balls(B))
        for i, k in np.ndindex(3, 2):
            true = sum((Fraction(a) * Fraction(b) for a, b in zip(A[i].tolist(), B[:, k].tolist())), Fraction(0))
            assert product[i, k].contains(arb(true.numerator) / arb(true.denominator))


@pytest.mark.parametrize("activation", ["tanh", "gelu", "elu", "relu"])
def test_taylor_models_hold_values_and_jacobians(activation: str) -> None:
    network, rng = random_network(2, (3, 6, 5, 2), activation, gain=1.5), np.random.default_rng(0)
    box = lc.Box([-0.2, 0.1, 0.3], [0.1, 0.3, 0.6])
    found = lc.certify(network, box, lc.ClosedForm())
    points = box.sample(500, rng)
    with precision(128):
        inputs = inputs_of(box, 3)
        assert inputs is not None
        known = [(balls(layer.lower), balls(layer.upper)) for layer in found.layers]
        model = Expansion(read(network), inputs, known)
        low, high = (np.array(end.tolist(), dtype=float) for end in model.v.ends())
        bound, entries = float(model.bound(PLAIN)), np.array(model.entries().tolist(), dtype=float)
    assert ((low <= network(points)) & (network(points) <= high)).all()
    jacobians = network.jacobian(points)
    assert (np.abs(jacobians) <= entries).all()
    worst = np.linalg.norm(jacobians, 2, axis=(1, 2)).max()
    assert worst <= bound
    assert activation == "relu" or bound < 1.2 * worst
    assert isinstance(read(network)[0].functions[0], Function)


@pytest.mark.parametrize("row", ROWS, ids=ROW_LABELS)
def test_remainders_hold_and_are_sharp(row: Activation) -> None:
    """How far φ and φ' are from cubics, at points of intervals of all lengths; half of it is not enough."""
    rng, x = np.random.default_rng(0), np.linspace(-1.0, 1.0, 33)
    ratios = []
    with precision(128):
        f = function(row.name, tuple(float(np.ravel(p)[0]) for p in row.parameters))
        for _ in range(8):
            m, h = rng.normal(0.0, 2.0, 1), 10.0 ** rng.uniform(-4.0, 0.3, 1)
            fits = [np.polyfit(h * x, y, 3)[::-1] for y in (row.value(m + h * x), row.slope(m + h * x))]
            found = remainders(f, m, h, np.stack(fits)[:, :, None])[:, 0]
            for at in x:
                v = ball(m[0]) + ball(h[0]) * ball(at)
                value, (low, high) = f.value(v.mid()), f.on(v.lower(), v.upper()).slopes()
                p, q = (sum((ball(c) * (v - ball(m[0])) ** k for k, c in enumerate(fit)), arb(0)) for fit in fits)
                far = abs(value - p), min(abs(low - q), abs(high - q), key=float)
                assert all(float(x) <= bound + 1e-14 for x, bound in zip(far, found, strict=True))
                ratios += [float(far[0]) / found[0]] if found[0] > 1e-8 else []
    assert not ratios or max(ratios) > 0.1


def test_one_multiplier_for_each_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a convolution they are proved with its matrix; slopes of all of space are those of the frequencies."""
    kernels = [np.random.default_rng(k).standard_normal(shape) for k, shape in enumerate([(3, 2, 3, 3), (2, 3, 3, 3)])]
    network = lc.conv_stack(kernels, image=(5, 4), activation="relu")
    sweep = Hints((), (np.array([400.0, 300.0, 500.0]),), (0,))
    assert by_channel(network, sweep)
    claim = replace(lc.certify(network, method=lc.ClosedForm()), sweeps=(sweep,), bound=prove_symbols(network, sweep))
    assert 0.5 * claim.bound < lc.verify(network, claim, exact=True) <= claim.bound
    assert refused(network, replace(claim, bound=lc.lower_bound(network, lc.Ball(np.zeros(40), 10.0)).value))
    monkeypatch.setattr(questions, "_WIDE_KERNELS", 50)
    with pytest.raises(lc.InvalidInput, match="per channel"):
        lc.verify(network, claim, exact=True)
