"""Softmax rows and products: the inequality of each unit of a step, bounds against points, planted mistakes."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb

import lipcert as lc
from attack.couplings import drawn
from attack.couplings import value as exact_value
from exact import matrix, positive_semidefinite, precision, rational
from lipcert.arguments.values import softmax
from lipcert.definitions.functions import jet
from lipcert.definitions.rows import function
from lipcert.kernel import branch_and_bound
from lipcert.kernel import coupling as rules
from lipcert.kernel.arithmetic import Near
from lipcert.kernel.enclosures import activated, trajectory
from lipcert.kernel.neuron_bounds import fit, slope_bounds
from lipcert.model.arrays import Array, dense
from lipcert.model.couplings import Coupling
from lipcert.model.network import Network, Neurons
from planted import plant, without_epsilon
from second_opinion import refusal

SHAPES: list[tuple[int, int, list[tuple[int, int]], list[tuple[Any, Any]]]] = [
    (2, 10, [(2, 4)], []),
    (0, 5, [(1, 5)], []),
    (1, 6, [], [([[1, 2], [0, 5]], [[3, 4], [2, 3]])]),
    (2, 9, [(1, 3)], [([[2], [6], [0]], [[7], [8], [1]])]),
]


def random_coupled(rng: np.random.Generator) -> Network:
    """A small network with softmax rows, products, and activations of all kinds."""
    weights, biases, rows, width = [], [], [], int(rng.integers(2, 5))
    for _ in range(rng.integers(1, 4)):
        plain = int(rng.integers(0, 4))
        softmaxes = [(int(rng.integers(1, 3)), int(rng.integers(1, 5)))] if rng.random() < 0.7 else []
        size = plain + sum(count * n for count, n in softmaxes) + int(rng.integers(2, 6))
        terms = int(rng.integers(1, size // 2 + 1))
        index = np.stack([rng.permutation(size)[: 2 * terms] for _ in range(rng.integers(1, 4))])
        coupling = Coupling.of(plain, size, softmaxes, [(index[:, :terms], index[:, terms:])])
        weights.append(rng.normal(size=(size, width)) / np.sqrt(width))
        biases.append(rng.normal(size=size))
        names = rng.choice(["relu", "tanh", "identity", "exp", "square", "gelu"], plain)
        rows.append((Neurons.of([str(name) for name in names], plain), coupling))
        width = coupling.width
    weights.append(rng.normal(size=(int(rng.integers(1, 4)), width)) / np.sqrt(width))
    biases.append(rng.normal(size=len(weights[-1])))
    return Network.from_weights(weights, biases, rows)


def worst(shape: Any, seed: int, reach: float, local: bool = True) -> float:
    """The largest wᵀE⁻¹w/ΔvᵀDΔv of any unit, over pairs of values in a ball of an ellipsoid: at most one."""
    rng = np.random.default_rng(seed)
    plain, size, softmaxes, products = shape
    coupling, neurons = Coupling.of(plain, size, softmaxes, products), Neurons.of(["tanh"] * plain, plain)
    factor, center = rng.normal(size=(size, size)) / np.sqrt(size), 2.0 * rng.normal(size=size)
    S = factor @ factor.T + 1e-12 * np.eye(size)
    axes = 1.0001 * reach * np.sqrt(np.diagonal(S))
    interval = center - axes, center + axes
    first = interval[0][:plain], interval[1][:plain]
    slopes, ends = slope_bounds(neurons, *first), activated(neurons, first)
    found = rules.form(coupling, S, 0, interval, slopes, ends, Near.of(center) if local else None, reach)
    moves = rng.normal(size=(400, 2, size))
    moves *= reach / np.linalg.norm(moves, axis=-1, keepdims=True)
    moves[::2, 1] = -moves[::2, 0]
    one, two = (center + moves[:, side] @ factor.T for side in (0, 1))
    z = [coupling.value(v, neurons.value(v[:, :plain])) for v in (one, two)]
    low, high = found.ends
    assert all(((low - 1e-12 <= part) & (part <= high + 1e-12)).all() for part in z)
    w, change = z[0] - z[1] - (one - two) @ dense(found.M.value.T), one - two
    rest, largest = np.abs(w), 0.0
    for unit in found.units:
        left = (w[:, unit.outputs] ** 2 / unit.weights).sum(axis=-1)
        moved = change[:, unit.coords]
        right = (moved * (unit.Q @ moved[..., None])[..., 0]).sum(axis=-1)
        largest = max(largest, float((left / (right + 1e-24)).max()))
        rest[:, unit.outputs] = 0.0
    assert rest.max(initial=0.0) < 1e-10  # what no unit has is linear
    return largest


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reach", [1e-3, 0.3, 3.0])
def test_units_hold_what_is_not_linear(shape: Any, reach: float) -> None:
    for seed in range(6):
        for local in (True, False):
            assert worst(shape, seed, reach, local) <= 1.0 + 1e-6


def beyond_lines(shape: Any, seed: int, reach: float) -> Fraction:
    """How far Av + rest is missed by values in an interval, in rational and ball arithmetic: at most zero."""
    flint = pytest.importorskip("flint")
    rng = np.random.default_rng(seed)
    coupling = Coupling.of(*shape)
    center, half = rng.normal(size=(2, coupling.size)) * np.array([[2.0], [reach]])
    lower, upper = center - np.abs(half), center + np.abs(half)
    A, rest = rules.coupled_lines(coupling, (lower, upper))
    lines, ends, worst = dense(A), np.stack([rest.below, rest.above]), Fraction(-1)
    for _ in range(25):
        picked = np.where(
            rng.random(coupling.size) < 0.4, lower, np.where(rng.random(coupling.size) < 0.6, upper, center)
        )
        v, found = [Fraction(float(x)) for x in picked], []
        for _, index in coupling.softmax_rows():
            for row in index:
                e = [flint.arb(flint.fmpq(v[j].numerator, v[j].denominator)).exp() for j in row]
                found += [Fraction(float((one / sum(e, flint.arb(0))).mid())) for one in e]
        for one in coupling.products:
            found += [
                sum(v[a] * v[b] for a, b in zip(x, y, strict=True)) for x, y in zip(one.one, one.two, strict=True)
            ]
        for z, row, low, high in zip(found, lines, *ends, strict=True):
            gap = z - sum((Fraction(float(a)) * x for a, x in zip(row, v, strict=True)), Fraction(0))
            worst = max(worst, gap - Fraction(float(high)), Fraction(float(low)) - gap)
    return worst


@pytest.mark.parametrize("shape", SHAPES)
def test_lines_hold_the_results(shape: Any) -> None:
    for seed in range(6):
        for reach in (0.0, 1e-3, 0.3, 3.0):
            assert beyond_lines(shape, seed, reach) <= 1e-15


def step_holds(shape: Any, seed: int, reach: float) -> float:
    """Minus one unless P̂ ≽ M(S⁻¹ - D)⁻¹Mᵀ + E up to 2⁻⁴⁰ of its trace, in rational arithmetic; then one.

    The step may take multipliers that are larger by so little.
    """
    rng = np.random.default_rng(seed)
    plain, size, *rest = shape
    coupling, neurons = Coupling.of(plain, size, *rest), Neurons.of(["tanh"] * plain, plain)
    factor, center = rng.normal(size=(size, size)) / np.sqrt(size), rng.normal(size=size)
    S = factor @ factor.T + 1e-3 * np.eye(size)
    interval = center - 0.2 * reach, center + 0.2 * reach
    first = interval[0][:plain], interval[1][:plain]
    told = rules.form(coupling, S, 0, interval, slope_bounds(neurons, *first), activated(neurons, first), None, 1.0)
    T = told.base * rng.uniform(2.0, 6.0) * size
    P, (M, inverse) = rules.coupled_step(S, told, T), (matrix(dense(told.M.value)), matrix(S).inv())
    D, E = np.full((size, size), Fraction(0)), np.full(coupling.width, Fraction(0))
    for unit, taus in zip(told.units, told.taken(T), strict=True):
        for index, Q, outputs, weights, tau in zip(unit.coords, unit.Q, unit.outputs, unit.weights, taus, strict=True):
            D[np.ix_(index, index)] += np.vectorize(Fraction, otypes=[object])(Q) / Fraction(float(tau))
            E[outputs] += np.vectorize(Fraction, otypes=[object])(weights) * Fraction(float(tau))
    K = inverse - matrix(D)
    assert positive_semidefinite(K)
    room = Fraction(float(np.trace(P))) / 2**40
    exact = M * K.inv() * M.transpose() + matrix(np.diag(E - room))
    exact = (exact + exact.transpose()) * rational(0.5)
    return 1.0 if positive_semidefinite(matrix(P) - exact) else 2.0


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_steps_hold_in_rational_arithmetic(shape: Any) -> None:
    assert all(step_holds(shape, seed, reach) <= 1.0 for seed in range(4) for reach in (0.3, 3.0))


def smaller_shares(honest: Any, low: Array, high: Array) -> tuple[Array, Array]:
    """Upper bounds of softmax values that are too small."""
    least, most = honest(low, high)
    return least, np.maximum(0.5 * most, least)


def one_each(honest: Any, around: Any, index: Array) -> Any:
    """A softmax row whose results have multipliers of their own."""
    unit, M, ends = honest(around, index)
    own = np.einsum("kcc->kc", unit.Q)[..., None, None].reshape(-1, 1, 1)
    flat = index.reshape(-1, 1)
    base = np.repeat(unit.base, index.shape[1])
    return replace(unit, coords=flat, Q=own, outputs=flat, weights=unit.weights.reshape(-1, 1), base=base), M, ends


def swapped(patch: pytest.MonkeyPatch) -> None:
    """The factors themselves in place of their partners."""
    patch.setattr("lipcert.kernel.coupling.Products.partners", property(lambda product: product.both))


def narrower(honest: Any, coupling: Any, interval: Any) -> Any:
    """Lines that are half as far apart."""
    A, rest = honest(coupling, interval)
    return A, replace(rest, error=0.5 * rest.error)


def without_terms(honest: Any, told: Any, T: Array) -> Any:
    """The remainders of a step without E."""
    H, coords, E = honest(told, T)
    return H, coords, 0.5 * E


MISTAKES: list[tuple[Any, Any, Any]] = [
    (plant("coupling.shares", smaller_shares), worst, SHAPES[1]),
    (plant("coupling._softmax", one_each), worst, SHAPES[1]),
    (plant("coupling._spread", lambda honest, *given: 0.3 * honest(*given)), worst, SHAPES[1]),
    (plant("coupling._Around.ellipsoid", lambda honest, *given: 0.25 * honest(*given)), worst, SHAPES[2]),
    (swapped, worst, SHAPES[2]),
    (swapped, beyond_lines, SHAPES[2]),
    (plant("coupling.coupled_lines", narrower), beyond_lines, SHAPES[2]),
    (plant("coupling.coupled_lines", narrower), beyond_lines, SHAPES[1]),
    (plant("coupling.shares", smaller_shares), beyond_lines, SHAPES[1]),
    (plant("coupling.Form.factor", without_terms), step_holds, SHAPES[3]),
]


@pytest.mark.parametrize(("mistake", "law", "shape"), MISTAKES)
def test_planted_mistakes_are_caught(monkeypatch: pytest.MonkeyPatch, mistake: Any, law: Any, shape: Any) -> None:
    """By the laws of units, lines and steps; a wrong range of results fails an assertion of the law itself."""
    mistake(monkeypatch)
    limit = 1e-12 if law is beyond_lines else 1.0 + 1e-6
    with pytest.raises(AssertionError):
        assert all(law(shape, seed, reach) <= limit for seed in range(20) for reach in (0.3, 3.0))


def test_bounds_hold_for_random_networks() -> None:
    methods: list[Any] = ["closed-form", "scalar", "diagonal", lc.Auto(np.inf, 9)]
    for seed in range(60):
        rng = np.random.default_rng(seed)
        network, radius = random_coupled(rng), 10 ** rng.uniform(-6, 0.3)
        x = rng.normal(size=network.inputs)
        region = lc.Ball(x, radius) if seed % 3 else lc.Box(x - radius, x + radius)
        certificate = lc.certify(network, region, methods[seed % 4])
        steepest = np.linalg.norm(network.jacobian(region.sample(500, rng)), 2, axis=(1, 2)).max()
        assert steepest <= certificate.bound * (1.0 + 1e-12)
        if radius < 1e-4:
            assert certificate.bound <= 1.02 * steepest + 1e-3
        assert lc.verify(network, certificate) <= certificate.bound
        assert not refusal(network, certificate)
        if certificate.tree is None:
            assert refusal(network, replace(certificate, bound=steepest * (1.0 - 1e-9) - 1e-12))


@pytest.mark.parametrize("mistake", [*dict.fromkeys(one for one, law, _ in MISTAKES if law is not beyond_lines)])
def test_planted_mistakes_are_caught_by_the_second_opinion(monkeypatch: pytest.MonkeyPatch, mistake: Any) -> None:
    mistake(monkeypatch)
    found = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        network = random_coupled(rng)
        try:
            certificate = lc.certify(network, lc.Ball(rng.normal(size=network.inputs), 0.5), "scalar")
        except lc.ProofFailed:
            continue
        monkeypatch.undo()
        found += bool(refusal(network, certificate))
        mistake(monkeypatch)
    assert found


def test_a_product_is_bounded_exactly_where_it_can_be() -> None:
    """x·y over |x| ≤ a, |y| ≤ a has the largest slope √2·a, in rational arithmetic 2a²."""
    product = Coupling.of(0, 2, [], [([[0]], [[1]])])
    network = Network.from_weights([np.eye(2), [[1.0]]], None, [([], product)])
    bound = lc.certify(network, lc.Ball([0.0, 0.0], 0.5)).bound
    assert Fraction(bound) ** 2 >= Fraction(1, 4)  # over the ball the gradient (y, x) has norm 1/2 at most
    assert bound < 0.5 * (1.0 + 1e-6) * np.sqrt(2.0)


def test_trajectories_enclose_and_lower_bounds_are_proved() -> None:
    flint = pytest.importorskip("flint")
    rng = np.random.default_rng(5)
    logits = 3.0 * rng.normal(size=4)
    network = Network.from_weights([np.eye(4), np.eye(4), np.eye(4)], None, [([], Coupling.of(0, 4, [(1, 4)])), "relu"])
    value, error = trajectory(network, logits[None])[1]
    exact = [flint.arb(float(v)).exp() for v in logits]
    for k in range(4):
        p = exact[k] / sum(exact, flint.arb(0))
        assert abs(float(p.mid()) - value[0, k]) <= error[0, k]
    ball = lc.Ball(logits, 0.1)
    low, bound = lc.lower_bound(network, ball), lc.certify(network, ball).bound
    jacobian = np.diag(softmax(logits)) - np.outer(softmax(logits), softmax(logits))
    assert np.linalg.norm(jacobian, 2) * (1.0 - 1e-9) <= low.value <= bound


def test_what_has_no_bound_says_why() -> None:
    product = Coupling.of(0, 2, [], [([[0]], [[1]])])
    network = Network.from_weights([np.eye(2), [[1.0]]], None, [([], product)])
    with pytest.raises(lc.ProofFailed, match="all of space"):
        lc.certify(network)
    with pytest.raises(lc.InvalidInput, match="at most 16 inputs, this one has 17"):
        lc.certify(
            Network.from_weights([np.eye(2, 17), [[1.0]]], None, [([], product)]), lc.Ball([0.0] * 17, 0.5), "split"
        )
    root = Network.from_weights([[[1.0]], [[1.0]]], None, "rsqrt")
    with pytest.raises(lc.ProofFailed, match=r"layer 1: rsqrt takes positive numbers only.*shrink the region to about"):
        lc.certify(root, lc.Ball([1.0], 2.0))
    assert lc.certify(root, lc.Ball([1.0], 1e-6)).bound == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize("name", ["exp", "reciprocal", "rsqrt", "sqrt", "log"])
def test_rows_over_positive_intervals(name: str) -> None:
    network = Network.from_weights([[[1.0]], [[1.0]]], None, name)
    points = np.linspace(0.25, 1.75, 1001)
    slopes = np.abs(network.jacobian(points[:, None])).max()
    for method in ("closed-form", "auto"):
        bound = lc.certify(network, lc.Ball([1.0], 0.75), method).bound
        assert slopes <= bound <= slopes * (1.0 + 1e-6)


@pytest.mark.parametrize("method", ["closed-form", "diagonal", "auto"])
def test_products_that_overflow_are_a_failed_proof(method: str) -> None:
    product = Coupling.of(0, 2, [], [([[0]], [[1]])])
    network = Network.from_weights([1e100 * np.eye(2), [[1.0], [1.0]], [[1.0]]], None, [([], product), ([], product)])
    with pytest.raises(lc.ProofFailed, match="too large"):
        lc.certify(network, lc.Ball([1.0, 2.0], 0.1), method)


def test_units_of_a_part_are_those_of_the_results_that_enter_it() -> None:
    """Two values have three results."""
    products = Coupling.of(1, 2, [], [([[0], [0]], [[1], [1]])])
    network = Network.from_weights([np.eye(2), np.ones((2, 3)), [[1.0, 1.0]]], None, [(["exp"], products), "tanh"])
    ball, part = lc.Ball([0.1, 0.2], 0.1), dict[str, Any](layers=(1, 3))
    assert lc.certify(network, ball, "closed-form", **part, inputs=(2,)).verified
    plain = lc.certify(network, ball, "closed-form", **part).bound
    scaled = lc.certify(network, ball, "closed-form", **part, input_norm=lc.L2(scale=[2.0, 2.0, 2.0]))
    assert scaled.bound == pytest.approx(2.0 * plain)
    with pytest.raises(lc.InvalidInput, match="for 3 coordinates"):
        lc.certify(network, ball, "closed-form", **part, input_norm=lc.L2(scale=[2.0, 2.0]))


def test_answers_about_networks_with_couplings() -> None:
    rng = np.random.default_rng(3)
    network = random_coupled(rng)
    while network.outputs < 2:
        network = random_coupled(rng)
    ball = lc.Ball(rng.normal(size=network.inputs), 1e-2)
    points = ball.sample(300, rng)
    found = lc.reach(network, ball)
    assert ((found.lower <= network(points)) & (network(points) <= found.upper)).all()
    lc.verify(network, found)
    radius = lc.certified_radius(network, ball.center, seconds=5.0)
    lc.verify(network, radius)
    near = lc.Ball(ball.center, radius.radius).sample(300, rng)
    assert (network(near).argmax(axis=1) == network(ball.center).argmax()).all()
    bound = lc.certify(network, ball, input_norm=lc.LInf()).bound
    signs = rng.choice([-1.0, 1.0], (100, network.inputs))
    steepest = np.linalg.norm(network.jacobian(points[:50]) @ signs.T, axis=1).max()
    assert steepest <= bound
    pairs = lc.sensitivity(network, ball, lc.Scalar())
    assert (np.abs(network.jacobian(points)).max(axis=0) <= pairs.matrix).all()
    assert not refusal(network, pairs)
    assert lc.certify(network, ball, "scalar", inputs=(0,)).bound <= lc.certify(network, ball, "scalar").bound
    with pytest.raises(lc.ProofFailed, match="products"):
        lc.certify(network, ball, "lipsdp-neuron")


def test_methods_are_in_order_with_couplings() -> None:
    rng, better = np.random.default_rng(5), 0
    for _ in range(6):
        network = random_coupled(rng)
        ball = lc.Ball(rng.normal(size=network.inputs), 0.1)
        try:
            closed, joint, auto = (
                lc.certify(network, ball, one).bound for one in ("closed-form", "joint", lc.Auto(np.inf, 9))
            )
        except lc.ProofFailed:
            continue
        assert auto <= joint * (1.0 + 1e-9) <= closed * (1.0 + 2e-9)
        better += auto < 0.999 * closed
    assert better


def is_another_function(seed: int) -> bool:
    """Whether a network and its elementwise form differ in ball arithmetic, or leave what is known of the form."""
    rng = np.random.default_rng(seed)
    network = random_coupled(rng)
    form: Any = vars(branch_and_bound)["elementwise"]
    plain, known = form(network, [])
    assert not plain.coupled
    for x in rng.normal(size=(3, network.inputs)):
        with precision(256):
            pairs = zip(*(exact_value(each, [arb(float(c)) for c in x]) for each in (network, plain)), strict=True)
            if not all(a.overlaps(b) and (a - b).rad() < 1e-40 * (1 + abs(a).upper()) for a, b in pairs):
                return True
        ends = zip(plain.preactivations(x), known, strict=False)
        if not all((low[0] <= v).all() and (v <= high[0]).all() for v, (low, high) in ends):
            return True
    return False


def test_elementwise_forms_are_the_same_function() -> None:
    assert not any(is_another_function(seed) for seed in range(40))


def reshaped(change: Any) -> Any:
    """A mistake in the elementwise form: weights, biases and lower ends of a layer become others."""

    def wrong(honest: Any, *given: Any) -> Any:
        plain, known = honest(*given)
        ends = [*known, (np.zeros(plain.outputs), None)]
        changed = [change(one.weight, one.bias, end[0]) for one, end in zip(plain.layers, ends, strict=True)]
        layers = [replace(one, linear=part[0], bias=part[1]) for one, part in zip(plain.layers, changed, strict=True)]
        return Network(tuple(layers)), [(part[2], end[1]) for part, end in zip(changed, known, strict=False)]

    return plant("branch_and_bound.elementwise", wrong)


FORMS = [
    reshaped(lambda weight, bias, low: (np.where(np.abs(weight) == 0.5, 0.5, weight), bias, low)),  # sums twice
    reshaped(lambda weight, bias, low: (weight, np.where(low[0] == 1.0, 0.0, bias), low)),  # exp(0) is left out
    reshaped(lambda weight, bias, low: (weight, bias, np.where(low == 1.0, 2.0, low))),
]


@pytest.mark.parametrize("mistake", FORMS)
def test_planted_mistakes_in_elementwise_forms_are_caught(monkeypatch: pytest.MonkeyPatch, mistake: Any) -> None:
    mistake(monkeypatch)
    assert any(is_another_function(seed) for seed in range(10))


def test_planted_an_epsilon_that_is_left_out_of_an_interval_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values at points leave the intervals."""
    network = lc.load(torch.nn.LayerNorm(4, 0.3).double().eval(), input_shape=(4,))
    ball = lc.Ball(np.arange(4.0), 0.3)

    def outside() -> bool:
        layers = lc.certify(network, ball, "scalar").layers
        pairs = zip(network.preactivations(ball.sample(300, np.random.default_rng(0))), layers, strict=False)
        return any(((v < one.lower) | (v > one.upper)).any() for v, one in pairs)

    assert not outside()
    without_epsilon(monkeypatch)
    assert outside()


def test_pieces_of_networks_with_couplings() -> None:
    """Bounds hold, never above that of the whole region, are proved again, and also in ball arithmetic."""
    better = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        network = random_coupled(rng)
        region = lc.Ball(rng.normal(size=network.inputs), float(10 ** rng.uniform(-1.5, 0.0)))
        try:
            whole = lc.certify(network, region, "scalar")
        except lc.ProofFailed:
            continue
        found = lc.certify(network, region, lc.Split(lc.Scalar(), np.inf, 0.01, pieces=9))
        steepest = np.linalg.norm(network.jacobian(region.sample(500, rng)), 2, axis=(1, 2)).max()
        assert steepest <= found.bound * (1.0 + 1e-12) <= whole.bound * (1.0 + 2e-12)
        assert lc.verify(network, found) <= found.bound
        assert not refusal(network, found)
        if found.tree is not None:
            better += found.bound < 0.99 * whole.bound
            with pytest.raises(lc.ProofFailed):
                lc.verify(network, replace(found, bound=steepest * (1.0 - 1e-9) - 1e-12))
    assert better > 1


@pytest.mark.parametrize("seed", [87, 469, 1114, 1215, 1706])
def test_tighter_intervals_of_the_second_opinion_are_no_reason_to_refuse(seed: int) -> None:
    """The multipliers that were stored are a little beside the best ones there."""
    rng = np.random.default_rng(seed)
    network, size = drawn(rng), float(10.0 ** rng.uniform(-8.0, 0.5))
    x = rng.normal(size=network.inputs)
    region = lc.Ball(x, size) if rng.random() < 0.6 else lc.Box(x - size, x + size)
    certificate = lc.certify(network, region, ["closed-form", "scalar", "diagonal"][seed % 3])
    assert not refusal(network, certificate)
    assert refusal(network, replace(certificate, bound=0.9 * lc.lower_bound(network, region, seconds=1.0).value))


@pytest.mark.parametrize("name", ["exp", "reciprocal", "rsqrt", "sqrt", "log"])
def test_fits_hold_over_positive_intervals(name: str) -> None:
    """Values and slopes, in ball arithmetic, are within a fit's errors; where φ'' may underflow it proves nothing."""
    f, one, rng = function(name, ()), Neurons.of(name, 1), np.random.default_rng(0)
    for _ in range(40):
        low = np.array([[float(10.0 ** rng.uniform(-6.0, 2.0))]])
        high = low * (1.0 + float(10.0 ** rng.uniform(-6.0, 1.0)))
        center = low + rng.random() * (high - low)
        found = fit(one, center, (low, high), np.ones((1, 1)))
        value, slope, rate, bow, error, rest = (
            arb(float(part[0, 0]))
            for part in (found.value, found.slope, found.rate, found.bow, found.error, found.rest)
        )
        for share in np.linspace(0.0, 1.0, 21):
            v = arb(float(low[0, 0])) + arb(float(share)) * (arb(float(high[0, 0])) - arb(float(low[0, 0])))
            s = v - arb(float(center[0, 0]))
            with precision(200):
                assert not abs(f.value(v) - value - slope * s - rate * s**2 / 2 - bow * s**3 / 6) > rest
                assert not abs(jet(f.formulas[0], v)[1] - slope - rate * s - bow * s**2 / 2) > error
    if name != "log":
        far = -1000.0 * np.ones((1, 1)) if name == "exp" else np.full((1, 1), 1e200)
        wide = far + np.abs(far) * 0.1
        assert np.isnan(fit(one, far, (far, wide), np.ones((1, 1))).error).all()
