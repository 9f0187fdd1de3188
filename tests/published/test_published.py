"""Methods of the literature: sound on everything, equal to the tables of the paper, and honest about failure."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import lipcert as lc
from lipcert import published as pub
from lipcert.methods import semidefinite
from lipcert.methods.method import Problem
from lipcert.methods.semidefinite import Inequality, Solution, solve, symmetric_sum
from lipcert.model.arrays import Array
from lipcert.model.regions import Region
from lipcert.published import NotApplicable, Published, SolverFailed, Trivial, lipsdp
from lipcert.published.eclipse import Handover, acc, closed_form, fast, positive
from lipcert.published.lipsdp import ACCURACY
from lipcert.questions.certify import METHODS
from lipcert.reproduce.cells import paper_center, paper_network
from lipcert.reproduce.printed import Printed, paper_table
from lipcert.runtime import machine
from lipcert.suggest.hints import Lipschitz
from networks import pairs, random_network, sampled_norms, sampled_quotients, spread

GLOBAL: list[Published] = [pub.Trivial(), pub.SeqLip(), pub.AAO(), pub.LipDiff(steps=60), pub.GeoLIP(), pub.Eclipse()]
GLOBAL += [pub.EclipseFast()]
GLOBAL += [pub.LipSDP("neuron"), pub.LipSDP("layer"), pub.LipSDP("neuron", split=1), pub.LipSDP("layer", split=2)]
LOCAL: list[Published] = [pub.EclipseGenLocal(variant) for variant in ("Acc", "Fast", "CF")]
PROVED = (
    pub.Trivial,
    pub.LipSDP,
    pub.GeoLIP,
    pub.GLipSDP,
    pub.Eclipse,
    pub.EclipseFast,
    pub.EclipseGenLocal,
)
"""Methods that leave multipliers behind."""

FOLD = lc.activation("leaky_relu", negative_slope=-1.0)
"""The absolute value: its slopes are ±1 or anything between."""

ACTIVATIONS: dict[str, Any] = {
    "relu": "relu",
    "leaky": lc.activation("leaky_relu", negative_slope=0.3),
    "fold": FOLD,
    "elu": lc.activation("elu", alpha=2.0),
    "tanh": "tanh",
    "silu": "silu",
    "sin": "sin",
    "identity": "identity",
    "mixed": [["relu", "identity", "tanh", "gelu", "sigmoid"], "hardtanh", ["selu", "identity"] * 3],
}
REGIONS: dict[str, Any] = {
    "small ball": lc.Ball(np.full(3, 0.3), 0.3),
    "large ball": lc.Ball(np.full(3, 0.3), 6.0),
    "box": lc.Box([-1, 0, 0], [1, 0.5, 2]),
}
SIZES = (3, 5, 4, 6, 2)


def name(method: Any) -> str:
    return repr(method).replace("'", "")


def problem(network: lc.Network, region: Any = None) -> Problem:
    return Problem(network, region or lc.Everywhere(), (Lipschitz(),))


def obeys(network: lc.Network, region: Any, bound: float) -> None:
    """No sampled slope exceeds the bound."""
    rng = np.random.default_rng(5)
    norms, error = sampled_norms(network, region.sample(300, rng))
    assert (norms - error <= bound).all()
    quotients, noise = sampled_quotients(network, *pairs(region, 200, rng))
    assert (quotients - noise <= bound).all()


@pytest.mark.parametrize(("method", "activation"), spread(5, {name(m): m for m in GLOBAL}, ACTIVATIONS))
def test_global_methods_hold_everywhere(method: Published, activation: Any) -> None:
    network = random_network(3, SIZES, activation)
    try:
        certificate = lc.certify(network, method=method)
    except NotApplicable:
        assert isinstance(method, (pub.Eclipse, pub.EclipseFast))
        assert activation in ("silu", "sin") or isinstance(activation, list) or "-1.0" in repr(activation)
        return
    for region in REGIONS.values():
        obeys(network, region, certificate.bound)
    assert certificate.verified == isinstance(method, PROVED)
    assert lc.certify(network, REGIONS["small ball"], method).bound == certificate.bound  # the region does not matter
    value = method.value(network)
    assert certificate.bound <= value * (1 + 1e-4)  # its multipliers prove what it says
    assert method.value(network, REGIONS["small ball"]) == value


@pytest.mark.parametrize(
    ("method", "activation", "region"), spread(5, {name(m): m for m in LOCAL}, ACTIVATIONS, REGIONS)
)
def test_local_methods_hold_on_the_region(method: Published, activation: Any, region: Any) -> None:
    network = random_network(3, SIZES, activation)
    try:
        certificate = lc.certify(network, region, method)
    except NotApplicable:
        assert "CF" in repr(method)
        return
    except SolverFailed:  # where slopes differ in sign the paper promises nothing
        assert activation == FOLD
        return
    obeys(network, region, certificate.bound)
    assert certificate.verified == isinstance(method, PROVED)
    value = method.value(network, region)
    if isinstance(method, pub.EclipseGenLocal) and activation != FOLD:
        assert certificate.bound <= value * (1 + 1e-4)


@pytest.mark.parametrize("method", [*GLOBAL[1:3], pub.LipSDP(), pub.LipSDP(split=2), pub.EclipseFast(), LOCAL[1]])
def test_parts_of_a_network(method: Published) -> None:
    network = random_network(11, (4, 6, 5, 6, 3))
    region = lc.Ball(np.zeros(4), 0.5)
    if isinstance(method, pub.EclipseGenLocal):  # slopes as the pass over the whole network found them
        bound = lc.certify(network, region, method, layers=(0, 2)).bound
        assert bound <= method.value(network.slice(0, 2), region) * (1 + 1e-6)
    else:
        part = network.slice(1, 3).select([0, 2], [1, 3])
        certificate = lc.certify(network, region, method, layers=(1, 3), inputs=[0, 2], outputs=[1, 3])
        assert certificate.bound <= method.value(part) * (1 + 1e-4)
        obeys(part, lc.Ball(np.zeros(2), 5.0), certificate.bound)


def test_one_layer_and_sparse_and_still_networks() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((3, 5))
    single = lc.Network.from_weights([matrix])
    still = lc.Network.from_weights([matrix, np.zeros((4, 3)), rng.standard_normal((2, 4))])
    dense = random_network(2, (4, 6, 5, 2))
    biases = [layer.bias for layer in dense.layers]
    thin = lc.Network.from_weights([sparse.csr_array(layer.weight) for layer in dense.layers], biases)
    for method in [*GLOBAL, *LOCAL]:
        exact = np.linalg.norm(np.abs(matrix).sum(axis=1)) if method == pub.GeoLIP() else np.linalg.norm(matrix, 2)
        assert method.value(single) == pytest.approx(exact, rel=1e-6), method
        assert method.value(thin) == pytest.approx(method.value(dense), rel=1e-6), method
        assert method.value(still) < 1e-140, method  # what underflow is charged
        assert lc.certify(still, method=method).bound <= 1e-100, method


# two roads to one optimum


def test_glipsdp_is_lipsdp() -> None:
    pytest.importorskip("cvxpy")
    for activation in ("relu", "silu", ACTIVATIONS["mixed"]):
        network = random_network(3, SIZES, activation)
        certificate = lc.certify(network, method=pub.GLipSDP())
        assert certificate.verified
        assert pub.GLipSDP().value(network) == pytest.approx(pub.LipSDP().value(network), rel=2e-6)
        assert certificate.bound == pytest.approx(pub.LipSDP().value(network), rel=1e-4)
        for region in REGIONS.values():
            obeys(network, region, certificate.bound)


def test_seqlip_tries_every_corner() -> None:
    network = random_network(9, (2, 5, 4, 2))
    slopes = [itertools.product((0.0, 1.0), repeat=n) for n in (5, 4)]
    truth = max(
        np.linalg.norm(network.jacobian_of([np.array(one), np.array(two)]), 2)
        for one, two in itertools.product(*slopes)
    )
    exact = pub.SeqLip().value(network)
    assert truth <= exact <= pub.Trivial().value(network)
    two_layers = random_network(10, (3, 6, 2), lc.activation("leaky_relu", negative_slope=-0.5))
    corners = itertools.product((-0.5, 1.0), repeat=6)
    best = max(np.linalg.norm(two_layers.jacobian_of([np.array(c)]), 2) for c in corners)
    assert pub.SeqLip().value(two_layers) == pytest.approx(best, rel=1e-12)  # one factor: the largest Jacobian itself
    wide = random_network(1, (2, 40, 2))
    with pytest.raises(lc.ProofFailed, match=r"2\^40 corners"):
        lc.certify(wide, method=pub.SeqLip())


# the Eclipse family, to the letter


def hand(seed: int, alpha: Array, beta: Array) -> Handover:
    rng = np.random.default_rng(seed)
    count = len(alpha)
    root, W = np.eye(4) + 0.1 * rng.standard_normal((4, 4)), rng.standard_normal((count, 4))
    M = root @ root.T
    return Handover(0, W, M, W @ np.linalg.solve(M, W.T), alpha, beta, rng.standard_normal((2, count)))


def test_variants_choose_as_the_paper_says() -> None:
    given = hand(0, np.array([0.0, 0.2, 1.0, 0.5, 0.0]), np.array([1.0, 0.9, 1.0, 0.5, 1.0]))
    plain = closed_form(given)
    assert (plain.alpha == 0.0).all()
    assert (plain.beta == given.beta).all()
    assert plain.Lambda == pytest.approx(2.0 / np.linalg.norm(given.beta[:, None] * given.S * given.beta, 2))
    one, each = fast(given, 1e10), acc(given, 1e10)
    assert np.ptp(one.Lambda) == 0.0
    assert each.Lambda[[2, 3]] == pytest.approx(100.0 * each.Lambda[[0, 1, 4]].mean())  # l_i = 100
    assert each.c >= one.c * (1 - 1e-6)
    assert acc(given, 3.0).Lambda.max() <= 3.0  # the cap
    falling = hand(1, np.array([-1.0, -0.5, -0.7]), np.array([0.0, -0.2, -0.7]))
    turned = closed_form(falling)
    assert (turned.beta == 0.0).all()
    assert (turned.alpha == falling.alpha).all()


@pytest.mark.parametrize(
    ("width", "layers"),
    [
        pytest.param(*size, marks=() if size in ((10, 5), (20, 10)) else pytest.mark.slow)
        for size in ((10, 5), (10, 15), (10, 25), (20, 10), (40, 5), (60, 5))
    ],
)
def test_small_cells_of_the_paper(width: int, layers: int) -> None:
    """Every printed digit; the tables' local methods used the radius √5."""
    network, ball = paper_network(width, layers, "relu"), lc.Ball(paper_center(), np.sqrt(5.0))
    table = paper_table("table1")
    values = {name: method.value for name, make in METHODS.items() if isinstance(method := make(), Published)}
    for name in ("trivial", "eclipse-fast", "eclipse-gen-local-cf", "eclipse-gen-local-fast"):
        assert round(values[name](network, ball), 3) == table[name, width, layers, 1.0].value, name
    if width * layers <= 250:
        for name in ("lipsdp-neuron", "lipsdp-layer", "eclipse", "geolip", "aao"):
            printed = table.get((name, width, layers, 1.0), Printed()).value
            if printed is not None:
                assert values[name](network) == pytest.approx(printed, rel=5e-3, abs=5e-4), name


# solvers


def small_inequality(seed: int = 0) -> Inequality:
    rng = np.random.default_rng(seed)
    left, right = (sparse.csc_array(np.vstack([np.eye(3), rng.uniform(-0.3, 0.3, (2, 3))])) for _ in range(2))
    constant = np.diag([0.0, 0.0, 0.0, 1.0, 1.0])
    return Inequality(constant, left, right, rng.standard_normal((5, 2)), np.arange(3), np.full(3, 0.5))


def by_clarabel(problem: Inequality) -> Solution:
    """The same inequality as a cvxpy problem, for Clarabel."""
    cvxpy = pytest.importorskip("cvxpy")
    x, c = cvxpy.Variable(problem.start.size, nonneg=True), cvxpy.Variable()
    product = problem.left.toarray() @ cvxpy.diag(x[problem.groups]) @ problem.right.toarray().T
    matrix = problem.constant + 0.5 * (product + product.T) - c * (problem.output @ problem.output.T)
    limits = [] if problem.budget is None else [problem.budget @ x <= 1.0]
    cvxpy.Problem(cvxpy.Maximize(c), [matrix >> 0, *limits]).solve(solver="CLARABEL", **ACCURACY)
    return Solution(float(c.value), x.value, x.value)


def test_interior_point_method_is_feasible_and_optimal() -> None:
    for seed in range(5):
        for budget in (None, np.array([0.5, 0.4, 0.6])):
            problem = replace(small_inequality(seed), budget=budget)
            found, other = solve(problem), by_clarabel(problem)
            assert found.c == pytest.approx(other.c, rel=1e-6)
            square = problem.output @ problem.output.T
            for x, c in ((found.x, found.c), (found.roomy, 0.99 * found.c)):
                assert (x > 0).all()
                assert positive(problem.constant + symmetric_sum(problem.left, problem.right, x) - c * square)
                assert budget is None or budget @ x <= 1.0


def test_an_inaccurate_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cvxpy")
    for settings in ({"max_iter": 3}, {"max_iter": 9, "reduced_tol_gap_rel": 1.0, "reduced_tol_feas": 1.0}):
        monkeypatch.setattr(lipsdp, "ACCURACY", settings)
        with pytest.raises(SolverFailed, match="Clarabel"):
            lc.certify(random_network(3, SIZES), method=pub.GLipSDP())


def test_own_solver_reports_when_it_stops_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(semidefinite, "_ITERATIONS", 3)
    with pytest.raises(SolverFailed, match="short of six digits"):
        lc.certify(random_network(3, SIZES), method=pub.LipSDP())
    infeasible = replace(small_inequality(), start=np.full(3, 1e4), constant=-np.eye(5))
    with pytest.raises(SolverFailed, match="no interior"):
        solve(infeasible)


def test_wrong_options_are_named() -> None:
    with pytest.raises(lc.InvalidInput, match="'neuron' or 'layer', got 'network'"):
        pub.LipSDP("network")  # type: ignore[arg-type]
    with pytest.raises(lc.InvalidInput, match="at least 1"):
        pub.LipSDP(split=0)
    with pytest.raises(lc.InvalidInput, match="variant must be one of Acc, Fast, CF"):
        pub.EclipseGenLocal("fast")
    with pytest.raises(lc.InvalidInput, match="widest"):
        pub.SeqLip(widest=31)
    with pytest.raises(lc.InvalidInput, match="steps"):
        pub.LipDiff(steps=-1)


# the product of norms: its value by hand, and above everything it should be above


NARROW = random_network(11, (3, 6, 4, 2), "tanh")


def test_the_product_of_norms_is_proved_and_stored(tmp_path: Path) -> None:
    found = lc.certify(NARROW, method=Trivial())
    assert found.verified
    assert not found.sweeps
    assert lc.certify(NARROW, lc.Ball(np.zeros(3), 0.1), Trivial()).bound == found.bound
    part = lc.certify(NARROW, method=Trivial(), layers=(1, 2), inputs=[0, 2], outputs=[3])
    assert part.bound == pytest.approx(np.linalg.norm(NARROW.layers[1].weight[3, [0, 2]]), rel=1e-11)
    found.save(tmp_path / "product.json")
    assert lc.verify(NARROW, lc.Certificate.load(tmp_path / "product.json")) <= found.bound
    with pytest.raises(lc.ProofFailed, match="claims"):
        lc.verify(NARROW, replace(found, bound=found.bound * 0.999999))


@pytest.mark.parametrize("region", [lc.Everywhere(), lc.Ball(np.zeros(3), 5.0)])
@pytest.mark.parametrize("method", [lc.ClosedForm(), lc.Scalar(), lc.Joint(), lc.Auto(seconds=1.0), lc.Split()])
def test_what_does_not_fit_into_memory_has_the_product(
    region: Region, method: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = random_network(11, (3, 30, 20, 2), "relu")
    product = lc.certify(network, method=Trivial()).bound
    monkeypatch.setattr(machine, "_SMALL", 10)
    monkeypatch.setattr(machine, "available_memory", lambda: 1000)
    found = lc.certify(network, region, method)
    assert (found.bound, found.verified, found.found_by) == (product, True, "Trivial")
    assert found.note.startswith("the product of norms, for all inputs: layer")
    assert lc.verify(network, found) <= found.bound
