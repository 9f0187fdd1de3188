"""Holes that an attack on the proofs found, one test each, named after its number; all of them failed before."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import sparse

import lipcert as lc
from lipcert.answers.certificate import Certificate
from lipcert.errors import InvalidInput, LipcertError, ProofFailed
from lipcert.kernel import arithmetic as rounding
from lipcert.kernel.branch_and_bound import AXIS
from lipcert.kernel.domain import Domain
from lipcert.kernel.enclosures import BackSubstitution
from lipcert.kernel.neuron_bounds import relax, slope_bounds
from lipcert.model.activations import Activation
from lipcert.model.couplings import Coupling
from lipcert.model.network import Layer, Network, Neurons
from lipcert.model.regions import Region
from lipcert.suggest.hints import LEAF, Tree
from networks import spread
from planted import other_powers

ANGLES = np.load(Path(__file__).parents[1] / "data" / "finding_1_angles.npy")
A, C, E, D = 0.7310585786300049, 0.6180339887498949, 0.4142135623730951, 1e-22


def cancelling(turns: int, gain: float) -> tuple[Network, float]:
    """A network whose leading terms cancel, and its slope for 1/2 < x < 1, exactly."""
    rotations = [np.array([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]]) for t in ANGLES[:turns]]
    first, second = [[A], [1.0], [1.0], [1.0]], [[C, -(A * C), D, -D], [E, -(A * E), D, -D]]
    weights = [np.array(first), np.array(second), *rotations, np.full((1, 2), gain)]
    biases: list[Any] = [[10.0, 10.0, 0.0, -0.5]] + [None] * (len(weights) - 1)
    network = Network.from_weights(weights, biases, ["relu"] + ["identity"] * (len(weights) - 2))
    slopes = [Fraction(A), Fraction(1), Fraction(1), Fraction(1)]
    for weight in weights[1:]:
        slopes = [
            sum((Fraction(float(w)) * s for w, s in zip(row, slopes, strict=True)), Fraction(0)) for row in weight
        ]
    return network, float(abs(slopes[0]))


NONE = np.zeros(1, dtype=int)
LEAF_ONLY = Tree(NONE + LEAF, NONE, np.zeros(1), NONE, 0.0)
"""A tree without a cut."""
SIGNS = Tree(
    np.array([0, 0, 0, LEAF, LEAF, LEAF, LEAF]),
    np.array([2, 3, 3, 0, 0, 0, 0]),
    np.zeros(7),
    np.array([1, 5, 3, 0, 0, 0, 0]),
    0.0,
)
"""Cut by the signs of the two neurons of the cancelling network that have a kink in the region."""


@pytest.mark.parametrize(
    ("turns", "gain"), [(20, 1e14), *(pytest.param(turns, 1e17, marks=pytest.mark.slow) for turns in (40, 60))]
)
def test_finding_1_errors_of_a_tree_are_scaled_by_the_powers_of_its_own_chain(turns: int, gain: float) -> None:
    network, slope = cancelling(turns, gain)
    ball = lc.Ball([0.0], 1.0)
    claim = lc.certify(network, ball, lc.ClosedForm())
    assert slope <= lc.verify(network, replace(claim, tree=SIGNS))
    split = lc.Split(method=lc.ClosedForm(), seconds=np.inf, pieces=100)
    assert slope <= lc.certify(network, ball, split).bound
    assert slope <= lc.reach(network, ball, split).bound


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("hardsigmoid", {"alpha": 1.0, "beta": 2.0**53}),
        ("hardsigmoid", {"alpha": 1.0, "beta": -(2.0**60)}),
        ("hardsigmoid", {"alpha": 1e-300}),
        ("elu", {"alpha": 1e300}),
        ("celu", {"alpha": 1e300}),
        ("celu", {"alpha": 1e-300}),
        ("softplus", {"beta": 1e-50}),
        ("softplus", {"beta": 1e300}),
    ],
)
def test_findings_5_and_6_parameters_that_no_proof_covers_are_refused(name: str, parameters: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match=f"activation '{name}' needs"):
        lc.activation(name, **parameters)
    row = lc.activation(name)
    values = tuple(parameters.get(key, value) for key, value in row.row.parameters.items())
    with pytest.raises(InvalidInput, match=f"activation '{name}' needs"):  # nor by a back door, nor neuron by neuron
        Activation(name, values)
    with pytest.raises(InvalidInput, match=f"activation '{name}' needs"):
        Activation(name, tuple(np.array([default, value]) for default, value in zip(row.parameters, values)))


def test_finding_5_the_steep_part_of_a_hardsigmoid_is_seen_at_the_largest_shift() -> None:
    shift = 1e6
    for alpha in (1e-6, 1.0, 1e6):
        network = Network.from_weights([[[1.0]], [[1.0]]], None, lc.activation("hardsigmoid", alpha=alpha, beta=shift))
        center = -(shift - 0.5) / alpha
        bound = lc.certify(network, lc.Ball([center], 0.1 / alpha), lc.ClosedForm()).bound
        assert Fraction(bound) >= Fraction(alpha)


@pytest.mark.parametrize("alpha", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("x", [-700.0, -740.0, -744.5, -746.0, -760.0])
def test_finding_6_slopes_that_underflow_are_within_their_bounds(alpha: float, x: float) -> None:
    with mpmath.workprec(400):
        slope = mpmath.mpf(alpha) * mpmath.exp(mpmath.mpf(x))
        for method in (lc.ClosedForm(), lc.Split(lc.Joint(iterations=4), np.inf, pieces=30)):
            network = Network.from_weights([[[1.0]], [[1.0]]], None, lc.activation("elu", alpha=alpha))
            assert lc.certify(network, lc.Ball([x], 1e-3), method).bound >= slope
            assert lc.lower_bound(network, lc.Ball([x], 0.0), samples=3, steps=1).value <= slope


@pytest.mark.parametrize("beta", [1e-6, 1e-3, 1.0, 1e6])
def test_finding_6_values_of_softplus_are_as_good_as_they_are_said_to_be(beta: float) -> None:
    neurons = Neurons.of(lc.activation("softplus", beta=beta), 1)
    from lipcert.kernel.neuron_bounds import value_error

    with mpmath.workprec(600):
        for t in np.linspace(-745.0, 40.0, 200):
            v = np.array([t / beta])
            exact = mpmath.log1p(mpmath.exp(mpmath.mpf(beta) * mpmath.mpf(float(v[0])))) / mpmath.mpf(beta)
            value = neurons.value(v)
            assert abs(exact - mpmath.mpf(float(value[0]))) <= mpmath.mpf(float(value_error(neurons, value)[0]))


def test_finding_7_a_lower_bound_whose_squares_underflow_is_below_the_truth() -> None:
    for entry in (1.75e-162, 2.5e-162, 1e-170, 3e-300, 1.0):
        network = Network.from_weights([np.full((3000, 1), entry)])
        truth = 3000 * Fraction(entry) ** 2
        found = lc.lower_bound(network, lc.Ball([0.0], 1.0), samples=3, steps=1).value
        assert Fraction(found) ** 2 <= truth


@pytest.mark.parametrize(("gain", "radius"), [(1e50, 1e-170), (1e100, 1e-200), (1.0, 1e-170), (1e50, 1e-300)])
def test_finding_7_reach_sets_of_tiny_balls_contain_their_outputs(gain: float, radius: float) -> None:
    found = lc.reach(Network.from_weights([[[gain]]]), lc.Ball([0.0], radius))
    top = Fraction(gain) * Fraction(radius)
    assert top <= Fraction(float(found.upper[0]))
    assert (top - Fraction(float(found.center[0]))) ** 2 <= Fraction(float(found.shape[0, 0]))


def test_finding_8_networks_that_differ_have_digests_that_differ() -> None:
    """Six leaky neurons whose parameters spell out the three groups of another network: one row of bytes for both."""

    def network(*groups: tuple[Activation, list[int]]) -> Network:
        neurons = Neurons(6, tuple((row, np.array(index)) for row, index in groups))
        return Network((Layer(np.ones((6, 1)), np.zeros(6), neurons), Layer(np.ones((1, 6)), np.zeros(1), None)))

    def leaky(*slopes: float) -> Activation:
        return Activation("leaky_relu", (np.array(slopes),))

    other = network((leaky(0.5), [0]), (Activation("relu"), [1, 2]), (leaky(0.0, 5e-324, 1e-323), [3, 4, 5]))
    spelled = np.frombuffer(b"relu|" + np.array([1, 2]).tobytes() + b"leaky_relu|")
    one = network((leaky(0.5, 0.0, *spelled.tolist()), list(range(6))))
    assert np.isfinite(spelled).all()
    assert one.digest != other.digest


@pytest.mark.parametrize(
    ("scale", "turn"),
    spread(2, {str(scale): scale for scale in (1e-300, 1e-160, 1e-110, 1e110, 1e160, 1e300)}, {"even": 0, "odd": 1}),
)
def test_finding_9_extreme_weights_give_a_bound_or_an_error_of_ours(scale: float, turn: int) -> None:
    rng = np.random.default_rng(1)
    plain, ball = rng.standard_normal((3, 4, 4)), lc.Ball([0.5, 0.1, 0.2, 0.3], 0.1)
    for number, places in enumerate(itertools.product((1.0, scale, 1.0 / scale), repeat=2)):
        weights = [plain[0] * places[0], plain[1] * places[1], plain[2]]
        network = Network.from_weights(weights, None, "relu")
        questions: list[Callable[[], object]] = [
            lambda net=network: lc.certify(net, ball, lc.ClosedForm()),  # type: ignore[misc]
            lambda net=network: lc.reach(net, ball, lc.ClosedForm()),  # type: ignore[misc]
            lambda net=network: lc.sensitivity(net, ball, lc.ClosedForm()),  # type: ignore[misc]
            lambda net=network: lc.certified_radius(net, ball.center, radii=[0.1]),  # type: ignore[misc]
        ]
        for question in questions[(number + turn) % 2 :: 2]:
            try:
                question()
            except LipcertError:
                continue


def test_finding_9_a_margin_is_rounded_down_where_the_label_is_not_the_prediction() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        weight, bias, point = rng.standard_normal((2, 6)), rng.standard_normal(2), rng.standard_normal(6)
        network = Network.from_weights([weight], [bias])
        other = int(np.argmin(network(point)))
        rows = [
            sum(Fraction(w) * Fraction(x) for w, x in zip(row, point)) + Fraction(b) for row, b in zip(weight, bias)
        ]
        assert Fraction(lc.certified_radius(network, point, other).margin) <= rows[other] - rows[1 - other]


def test_finding_10_ellipsoids_are_brought_to_scale_before_they_are_squared() -> None:
    for s in (1e-60, 1e-80, 1e-81, 1e-100, 1e-150):
        t, g = 1.0 / s, 1e-3
        weights = [[[s], [s]], [[t, 0.0], [0.0, t]], [[0.0, 0.0], [10.0, g]]]
        network = Network.from_weights(weights, [[-0.5 * s, 5.0 * s], [-0.1, 0.0], [1.0, -5.0 * g]])
        assert lc.certified_radius(network, [0.0]).radius < 0.701


def test_finding_10_a_row_that_underflows_loses_what_multiplies_large_values() -> None:
    """rows·slope is subnormal: what it loses multiplies |v|, however flat the slope is."""
    first, second = (float.fromhex(x) for x in ("0x1.0ca94d33e01dep+616", "-0x1.11eb8789a54d8p-617"))
    slope = float.fromhex("0x1.79f64252fe6aap-451")
    exact, computed = (Fraction(second) * Fraction(slope), Fraction(second * slope))
    assert abs(computed) < abs(exact) * (1 - Fraction(1, 10_000))
    # the second neuron's pre-activation at x = 1 is just above zero, and just below it with the computed row
    most, seen = (-2 * row * Fraction(first) for row in (exact, computed))
    leaky, bias = lc.activation("leaky_relu", negative_slope=slope), -float((most + seen) / 2)
    network = Network.from_weights([[[-first]], [[second]], [[1.0]]], [[-first], [bias], None], [leaky, "relu"])
    trace = BackSubstitution(network, Domain.of([lc.Ball([0.5], 0.5)]), None)
    flat, none, unknown = np.full((1, 1), slope), np.zeros(0), np.full((1, 1), np.inf)
    trace.settle((np.array([[-2.0 * first]]), np.array([[-first]])), (flat, flat), (none, none))
    assert Fraction(float(trace.tightened(1, -unknown, unknown)[1][0, 0])) >= most + Fraction(bias) > 0


def meets_a_tiny_ball() -> tuple[Network, Certificate]:
    cut = 1.75e-162
    network = Network.from_weights([[[1.0]], [[1.0]]], [[-1.1 * cut], None], "relu")
    claim = lc.certify(network, lc.Ball([0.0], 2e-162), lc.ClosedForm())
    none = np.zeros(3, dtype=int)
    tree = Tree(np.array([AXIS, LEAF, LEAF]), none, np.array([cut, 0.0, 0.0]), np.array([1, 0, 0]), 0.0)
    return network, replace(claim, tree=tree)


def test_finding_10_a_piece_that_meets_a_tiny_ball_is_not_empty() -> None:
    assert lc.verify(*meets_a_tiny_ball()) >= 1.0


@pytest.mark.parametrize("size", [1e-100, 3e-170, 1e-200, 1e-300, 5e-324])
def test_finding_10_norms_of_tiny_numbers_are_above(size: float) -> None:
    stack = np.full((1, 2, 2), size)
    assert Fraction(float(rounding.norm_above(stack.ravel()))) >= 2 * Fraction(size)
    assert Fraction(float(rounding.norm_below(stack.ravel()))) <= 2 * Fraction(size)


def test_finding_10_no_division_by_zero_at_natural_scale() -> None:
    weights = [[[2.0], [0.0]], [[2.0, -1.0]], [[0.0], [1.0]]]
    network = Network.from_weights(weights, [[-5.0, -3.0], [-3.0], [0.0, 3.0]], ["hardswish", "relu"])
    assert lc.certified_radius(network, [0.5]).radius >= 0.0


def test_finding_11_a_bound_covers_weights_that_are_off_by_a_unit_in_the_last_place() -> None:
    """What an importer rounds when it folds affine maps is part of the theorem; so are all networks as near as that."""
    rng = np.random.default_rng(5)
    methods = [lc.ClosedForm(), lc.Split(lc.Joint(iterations=4), np.inf, pieces=30)]
    for number in range(6):
        network, _ = cancelling(int(rng.integers(1, 8)), 10.0 ** rng.integers(0, 18))
        bound = lc.certify(network, lc.Ball([0.0], 1.0), methods[number % 2]).bound
        for _ in range(5):
            slopes = [Fraction(A), Fraction(1), Fraction(1), Fraction(1)]
            for layer in network.layers[1:]:
                off = 1 + 2 * rng.choice([-1, 1], layer.weight.shape) * Fraction(2) ** -53
                slopes = [
                    sum(Fraction(float(w)) * o * s for w, o, s in zip(*rows, slopes)) for rows in zip(layer.weight, off)
                ]
            assert abs(slopes[0]) <= Fraction(bound)


# The mistakes of finding 1, planted again where errors and powers of two are now kept.


def no_charges(patch: pytest.MonkeyPatch) -> None:
    """What rounding may have lost is charged nowhere."""
    for module in ("arithmetic", "step"):
        patch.setattr(import_module(f"lipcert.kernel.{module}"), "raised", lambda matrix, amount: matrix)


def test_finding_1_powers_planted_again_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    network, slope = cancelling(60, 1e17)
    claim = replace(lc.certify(network, lc.Ball([0.0], 1.0), lc.ClosedForm()), tree=SIGNS)
    assert slope <= lc.verify(network, claim)
    other_powers(monkeypatch)
    assert slope > lc.verify(network, claim)


def test_finding_1_charges_planted_again_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is computed is exact, and all terms cancel; but not for weights that are off by a unit."""
    a, c, gain = 0.5, 0.375, 1e17
    weights = [np.array([[a], [1.0]]), np.array([[c, -a * c]]), np.array([[gain]])]
    network, again = (Network.from_weights(weights, [[10.0, 10.0], None, None], ["relu", "identity"]) for _ in "ab")
    off = 2 * Fraction(2) ** -53
    slope = Fraction(gain) * (Fraction(a * c) * (1 + off) - Fraction(a * c) * (1 - off))
    assert slope > 8
    claim = replace(lc.certify(network, lc.Ball([0.0], 1.0), lc.ClosedForm()), tree=LEAF_ONLY)
    assert slope <= Fraction(lc.verify(network, claim))
    no_charges(monkeypatch)
    assert slope > Fraction(lc.verify(again, claim))  # nothing is known of it from before


def test_pieces_of_a_huge_ball_are_not_empty() -> None:
    """The other end of finding 10: squares that overflow."""
    at = 1.2e160
    network = Network.from_weights([[[1.0]], [[1.0]]], [[-at], None], "relu")
    claim = lc.certify(network, lc.Ball([0.0], 1.5e160), lc.ClosedForm())
    none = np.zeros(3, dtype=int)
    tree = Tree(np.array([AXIS, LEAF, LEAF]), none, np.array([0.9 * at, 0.0, 0.0]), np.array([1, 0, 0]), 0.0)
    assert lc.verify(network, replace(claim, tree=tree)) >= 1.0


def test_an_interval_that_is_no_number_is_the_whole_line() -> None:
    """Where pre-activations overflow nothing is known of a slope; it once counted as that of the right end."""
    network = Network.from_weights([[[1.5, -1.5]], [[1.0]]], [[-5.0], None], "relu")
    assert lc.lower_bound(network, lc.Ball([1.5e308, 1.5e308], 1.0), samples=0).value == 0.0  # the slope there is zero
    nothing = np.array([np.nan])
    for name in ("relu", "tanh", "elu", "sin", "hardsigmoid"):
        neurons = Neurons.of(name, 1)
        everywhere = slope_bounds(neurons, np.array([-np.inf]), np.array([np.inf]))
        for ends in ((nothing, nothing), (nothing, np.ones(1)), (-np.ones(1), nothing)):
            alpha, beta = slope_bounds(neurons, *ends)
            assert everywhere[0] <= alpha < beta <= everywhere[1]
        _, lower_offset, _, upper_offset, floor, roof = relax(neurons, nothing, nothing, np.zeros(1), np.zeros(1))
        assert -lower_offset[0] == upper_offset[0] == -floor[0] == roof[0] == np.inf


def test_a_finite_value_beside_an_infinite_one_is_not_cut_off() -> None:
    """Neurons of a layer share an array: those beyond 1e300 were cut to that where another one overflowed."""
    first = [[2.0, 0.0], [1.5, 0.0], [0.0, 1.0]]
    second = sparse.csr_array(np.array([[0.0, 1e-308, 1.0]]))  # no product with the infinite value
    network = Network.from_weights([first, second, [[1.0]]], [None, [-1.0], None], "relu")
    center = np.array([1e308, 1.0])
    with np.errstate(over="ignore"):
        found = network(center)
    assert found[0] == pytest.approx(1.5)


def test_columns_of_a_tree_that_differ_in_length_are_refused() -> None:
    network = Network.from_weights([[[1.0]], [[1.0]]])
    claim = lc.certify(network, lc.Ball([0.0], 1.0), lc.ClosedForm())
    for change in ({"void": NONE}, {"index": np.zeros(2, dtype=int)}, {"weight": np.ones(3)}):
        with pytest.raises(ProofFailed, match="differ in length"):
            lc.verify(network, replace(claim, tree=replace(LEAF_ONLY, **change)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_parameters_that_are_not_finite_are_refused_by_the_back_door_too(value: float) -> None:
    for name, parameters in (("leaky_relu", (value,)), ("hardtanh", (-1.0, value)), ("hardtanh", (value, 1.0))):
        with pytest.raises(InvalidInput, match="finite"):
            Activation(name, parameters)


@pytest.mark.parametrize("activation", ["relu", "identity", "tanh"])
@pytest.mark.parametrize("region", [lc.Ball([0.5], 0.25), lc.Box([0.25], [0.75]), lc.Everywhere()], ids=str)
def test_a_row_that_underflows_beside_a_huge_one_still_moves(activation: str, region: Region) -> None:
    """1e150·φ(1e-150·x) has the slope 1, whatever else its layers do."""
    weights = [[[1e150], [1e-150]], [[1e-155, 1e150]]]
    network = Network.from_weights(weights, activation=activation)
    for method in (lc.ClosedForm(), lc.Scalar()):
        try:
            assert lc.certify(network, region, method).bound >= 0.999
        except ProofFailed:  # one multiplier for both rows is more than a float can hold
            assert isinstance(region, lc.Everywhere)


def narrowed(proof: Any) -> Any:
    """Hints that begin with an ellipsoid of 2⁻³⁰ times the unit ball, and have multipliers for it."""
    shrink = [
        replace(one, start=np.full(3, 2.0**-30), exponents=tuple(power - 30 for power in one.exponents))
        for one in proof.sweeps
    ]
    return replace(proof, sweeps=tuple(shrink))


def narrowed_answers(network: Network) -> Iterator[Any]:
    """Answers that would be proved if ellipsoids from a small start passed for ones from the unit ball."""
    ball, few = lc.Ball(np.zeros(3), 0.5), lc.ClosedForm()
    reach = lc.reach(network, ball, few)
    box = reach.center - 1e-6, reach.center + 1e-6
    hull, shape = (box[0][None], box[1][None]), 1e-12 * np.eye(2)
    proofs = tuple(narrowed(one) for one in reach.proofs[:1])
    yield replace(reach, lower=box[0], upper=box[1], hull=hull, shape=shape, proofs=proofs)
    matrix = lc.sensitivity(network, ball, method=few)
    proofs = tuple(narrowed(one) for one in matrix.proofs[:1])
    yield replace(matrix, matrix=np.full((2, 3), 1e-6), proofs=proofs)
    radius = lc.certified_radius(network, np.zeros(3), radii=[10.0], method=few, curvature=False)
    assert radius.proof is not None
    yield replace(radius, radius=10.0, bound=1.0, basis="lipschitz", proof=narrowed(radius.proof))


@pytest.mark.parametrize("alone", [False, True])
def test_an_ellipsoid_from_a_small_start_is_not_one_from_the_unit_ball(
    alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second opinion, asked ``alone``, took them for such ones too: outputs within 1e-8 that differ by 3."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=shape) for shape in ((6, 3), (5, 6), (2, 5))]
    network = Network.from_weights(weights, [None, None, [1.0, 0.0]], "tanh")
    claims = list(narrowed_answers(network))
    if alone:
        monkeypatch.setattr("lipcert.questions.verify.derived", lambda *_: None)
    for claim in claims:
        with pytest.raises(ProofFailed, match="begin with a unit ball"):
            lc.verify(network, claim, exact=alone)


@pytest.mark.parametrize("norms", [{}, {"output_norm": lc.LInf()}])
def test_the_region_of_a_network_is_not_that_of_a_part_with_as_many_inputs(norms: dict[str, Any]) -> None:
    """The layers after z = 5x, |x| ≤ 1, take z: exp(z_0) and z_0·z_1 were verified as if |z| ≤ 1."""
    coupling = Coupling.of(1, 2, [], [([[0]], [[1]])])
    network = Network.from_weights([5.0 * np.eye(2), np.eye(2), np.eye(2)], None, ["identity", (["exp"], coupling)])
    part = lc.certify(network, lc.Box([-1.0, -1.0], [1.0, 1.0]), lc.ClosedForm(), layers=(1, 3), **norms)
    (hints,) = part.part_sweeps
    bare = replace(part, bound=1e9, part_sweeps=(replace(hints, multipliers=(np.zeros(2),)),))
    for claim in (part, bare):
        assert lc.verify(network, claim) >= np.exp(5.0)


def test_a_part_with_fewer_inputs_of_a_network_with_products_is_verified() -> None:
    """It ended in an error of numpy."""
    coupling = Coupling.of(0, 2, [], [([[0]], [[1]])])
    network = Network.from_weights([[[1.0], [2.0]], np.eye(2), [[1.0]]], None, ["identity", ([], coupling)])
    part = lc.certify(network, lc.Ball([1.0], 0.5), lc.ClosedForm(), layers=(1, 3))
    assert np.hypot(1.5, 3.0) <= lc.verify(network, part) <= part.bound


def test_a_shape_of_a_loop_that_makes_weights_vanish_is_refused() -> None:
    """A rate of 6e-305 was verified, also by the second opinion, where it is 1: 1e-230·1e-100 is no float."""
    weights = [[[1e-100], [1e-230]], [[0.0, 1e210]], [[1e20]]]
    step, region = Network.from_weights(weights, [[0.0, -1e-24], None, None]), lc.Box([-1e207], [1e207])
    usual = lc.contraction(Network.from_weights([[[0.5]]]), region, lc.ClosedForm(), shape=[[1.0]])
    for M in (1e-100, 1e-95):
        with pytest.raises(InvalidInput, match="out of the range of floats"):
            lc.contraction(step, region, lc.ClosedForm(), shape=[[M]])
        with pytest.raises(ProofFailed, match="about the whole loop"):
            lc.verify(step, replace(usual, network=step.digest, shape=np.array([[M]])))


def test_a_chain_of_cuts_that_begins_at_no_leaf_is_refused() -> None:
    """Half 3 has no input and is cut all the same: it ended in a KeyError."""
    network = Network.from_weights([[[1.0], [1.0]], [[1.0, 1.0]]], [[0.0, 1.0], None])
    tree = Tree(
        np.array([0, 0, 0, 0, *[LEAF] * 5]),
        np.array([0, 1, 1, 1, 0, 0, 0, 0, 0]),
        np.zeros(9),
        np.array([1, 5, 3, 7, 0, 0, 0, 0, 0]),
        0.0,
        np.array([3, 3, 7, 7]),
        np.array([0, 1, 0, 1]),
        np.array([1.0, -1.0, 1.0, -1.0]),
        passed=np.array([2, 3]),
    )
    claim = lc.certify(network, lc.Everywhere(), lc.ClosedForm())
    with pytest.raises(ProofFailed, match="no child of another"):
        lc.verify(network, replace(claim, tree=tree))
