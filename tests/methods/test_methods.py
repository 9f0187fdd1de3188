"""Multipliers: each method against its own definition, the rung below, an SDP solver and bounds that are known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import linalg

import lipcert as lc
from lipcert.methods.greedy import largest, top
from lipcert.methods.method import Greedy, Method, Stage
from lipcert.model.arrays import Array, dense
from lipcert.questions.compare import compare
from networks import random_network

LADDER: list[Greedy] = [lc.ClosedForm(), lc.Scalar(), lc.Diagonal()]
every_greedy = pytest.mark.parametrize("method", LADDER, ids=str)
every_method = pytest.mark.parametrize("method", [*LADDER, lc.Joint(), lc.Auto()], ids=["CF", "S", "D", "J", "A"])


def objective(stage: Stage, T: Array) -> float:
    """λmax(W⁺ P(T) W⁺ᵀ) from its formula; infinite where T is not feasible."""
    S, m, r, W = stage.S, stage.m, stage.r, dense(stage.ahead)
    active = np.flatnonzero((r > 0) & (T > 0))
    core = np.diag(T[active]) - (r[:, None] * S * r)[np.ix_(active, active)]
    if active.size and np.linalg.eigvalsh(core)[0] <= 0:
        return math.inf
    half = (m[:, None] * S * r)[:, active]
    P = m[:, None] * S * m + half @ np.linalg.solve(core, half.T) + np.diag(T)
    return float(np.linalg.eigvalsh(W @ P @ W.T)[-1])


def stage(seed: int, n: int, out: int, affine: float = 0.2, signed: bool = False) -> Stage:
    rng = np.random.default_rng(seed)
    root = rng.normal(0, 1, (n, n))
    alpha = rng.uniform(-0.5 if signed else 0.0, 0.5, n)
    beta = np.where(rng.random(n) < affine, alpha, alpha + rng.random(n))
    return Stage(0, root @ root.T / n, 0, alpha, beta, rng.normal(0, 1, (out, n)))


SHAPES = [(1, 1), (2, 3), (5, 2), (8, 8), (20, 5)]
STAGES = [stage(k, *shape, affine=0.2 if k else 0.0, signed=k % 2 == 0) for k, shape in enumerate(SHAPES)]


every_stage = pytest.mark.parametrize("here", STAGES, ids=[f"{s.S.shape[0]}x{s.ahead.shape[0]}" for s in STAGES])


@every_stage
def test_diagonal_reaches_the_optimum_of_the_sdp(here: Stage) -> None:
    cvxpy = pytest.importorskip("cvxpy")
    pytest.importorskip("clarabel")
    active, m, r, W = here.active, here.m, here.r, dense(here.ahead)
    B = W @ (m[:, None] * here.S * m) @ W.T
    G = (W @ (m[:, None] * here.S))[:, active] * r[active]
    R = (r[:, None] * here.S * r)[np.ix_(active, active)]
    H = W[:, active]
    tau, T = cvxpy.Variable(), cvxpy.Variable(active.size, nonneg=True)
    block = cvxpy.bmat([[tau * np.eye(len(B)) - B - H @ cvxpy.diag(T) @ H.T, G], [G.T, cvxpy.diag(T) - R]])
    problem = cvxpy.Problem(cvxpy.Minimize(tau), [0.5 * (block + block.T) >> 0])
    problem.solve(solver="CLARABEL")
    assert problem.status == "optimal"
    ours = objective(here, lc.Diagonal(tolerance=1e-8).choose(here))
    assert ours == pytest.approx(problem.value, rel=1e-5)


@every_greedy
def test_degenerate_stages(method: Greedy) -> None:
    rng = np.random.default_rng(0)
    n = 4
    dead = Stage(0, np.zeros((n, n)), 0, np.zeros(n), np.ones(n), rng.normal(0, 1, (2, n)))
    assert (method.choose(dead) == 0).all(), "neurons that do not move need nothing"
    affine = Stage(0, np.eye(n), 0, np.ones(n), np.ones(n), rng.normal(0, 1, (2, n)))
    assert (method.choose(affine) == 0).all()
    blind = Stage(0, np.eye(n), 0, np.zeros(n), np.ones(n), np.zeros((2, n)))
    T = method.choose(blind)
    assert np.isfinite(T).all()
    assert (T > 0.25).all(), "feasible, though nothing looks at the neurons"
    rank_one = Stage(0, np.ones((n, n)), 0, np.zeros(n), np.ones(n), rng.normal(0, 1, (2, n)))
    assert np.isfinite(objective(rank_one, method.choose(rank_one)))


# bounds that are known in closed form, at every scale


@every_method
def test_one_layer_is_the_spectral_norm(method: Method) -> None:
    W = np.random.default_rng(0).normal(0, 1, (4, 6))
    net = lc.Network.from_weights([W])
    for region in (None, lc.Ball(np.zeros(6), 0.3), lc.Box(np.zeros(6), np.ones(6))):
        assert lc.certify(net, region, method).bound == pytest.approx(np.linalg.norm(W, 2), rel=1e-8)


@every_method
@pytest.mark.parametrize("spec", ["relu", lc.activation("leaky_relu", negative_slope=-0.3), "sigmoid", "silu"], ids=str)
def test_scalar_chains_multiply_their_steepest_slopes(method: Method, spec: str) -> None:
    """One neuron a layer: T cancels out of the formula at its best value, and |W| and max|φ'| multiply."""
    weights = [2.0, -0.7, 1.3, 3.0]
    net = lc.Network.from_weights([[[w]] for w in weights], activation=spec)
    low, high = lc.activation(spec).slope_range(np.array([-np.inf]), np.array([np.inf]))
    steepest = max(abs(float(low[0])), abs(float(high[0])))
    expected = float(np.prod(np.abs(weights))) * steepest ** (len(weights) - 1)
    assert lc.certify(net, None, method).bound == pytest.approx(expected, rel=1e-3 if method == lc.Joint() else 1e-5)


# eigenvalues


@pytest.mark.parametrize("n", [1, 2, 40, 350])
def test_largest_eigenvalue(n: int) -> None:
    rng = np.random.default_rng(n)
    root = rng.normal(0, 1, (n, n))
    matrix = root @ root.T
    value, vector = top(matrix)
    assert value == pytest.approx(np.linalg.eigvalsh(matrix)[-1], rel=1e-9)
    np.testing.assert_allclose(matrix @ vector, value * vector, rtol=1e-4, atol=1e-4 * value)
    assert float(largest(matrix)) == pytest.approx(value)


def test_the_top_of_a_matrix_that_lapack_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for one eigenvalue only, LAPACK sometimes returns none."""
    monkeypatch.setattr(linalg, "eigh", lambda matrix, **_: (np.zeros(0), np.zeros((len(matrix), 0))))
    value, vector = top(np.diag([1.0, 3.0, 2.0]))
    assert value == 3.0
    np.testing.assert_allclose(np.abs(vector), [0.0, 1.0, 0.0])


def test_neurons_that_switch_together_have_a_mixed_pattern() -> None:
    """For relu(v) - relu(v/2), v = 3x + 1, slopes are 0 and 1.5; the pattern between them counts all the same.

    It is that of a network whose bias moved by 2⁻⁵³ of it, well within what a certificate allows: there the slope is 3.
    """
    network = lc.Network.from_weights([[[3.0], [1.5]], [[1.0, -1.0]]], [[1.0, 0.5], [0.0]])
    bound = lc.certify(network, lc.Ball([0.0], 1.0), lc.Split(tolerance=1e-6, pieces=300)).bound
    assert bound >= 3.0
    first, last = network.layers
    biases = [Fraction(1), Fraction(1, 2) * (1 - Fraction(1, 2**53))]
    x = Fraction(-1, 3) + Fraction(1, 3 * 2**54)  # 3x + 1 > 0 > 1.5x + b
    signs = [Fraction(float(w)) * x + b for w, b in zip(first.weight[:, 0], biases, strict=True)]
    assert signs[0] > 0 > signs[1]
    assert float(last.weight[0, 0] * first.weight[0, 0]) == 3.0


# methods that others write: whatever they choose, what is certified holds, and repairs are told


NET = random_network(1, (3, 8, 8, 2), "relu")
BALL = lc.Ball([0.1, -0.2, 0.3], 0.5)


@dataclass(frozen=True)
class Dominant(lc.Greedy):
    factor: float = 2.0

    def choose(self, stage: lc.Stage) -> Array:
        return self.factor * np.abs(stage.r[:, None] * stage.S * stage.r).sum(axis=1)


@dataclass(frozen=True)
class Odd(lc.Greedy):
    what: str

    def choose(self, stage: lc.Stage) -> Any:
        if self.what == "unable":
            raise np.linalg.LinAlgError("Eigenvalues did not converge")
        n = len(stage.alpha)
        odd = {"nan": np.full(n, np.nan), "negative": -np.ones(n), "zero": np.zeros(n), "huge": np.full(n, 1e300)}
        return {**odd, "one": 3.0, "short": np.ones(n + 1), "tiny": np.full(n, 1e-300)}[self.what]


@pytest.mark.parametrize(
    ("method", "note", "worse"),
    [
        (Dominant(), "", 10.0),
        (Dominant(0.05), "enlarged", math.inf),
        (Odd("tiny"), "enlarged", math.inf),
        *[(Odd(what), "replaced", 10.0) for what in ("nan", "negative", "zero", "unable")],
    ],
    ids=str,
)
def test_a_method_of_ones_own_is_proved(method: Greedy, note: str, worse: float) -> None:
    """Multipliers that are no numbers are replaced, those that are too small are enlarged, and the note says so."""
    cert = lc.certify(NET, BALL, method)
    assert cert.verified
    assert note in cert.note
    assert bool(note) == bool(cert.note)
    assert lc.lower_bound(NET, BALL).value <= lc.verify(NET, cert) <= cert.bound
    assert cert.bound < worse * lc.certify(NET, BALL, "closed-form").bound


def test_the_wrong_number_of_multipliers_is_an_error() -> None:
    with pytest.raises(lc.InvalidInput, match=r"layer 1: a method must choose \d+ multipliers"):
        lc.certify(NET, BALL, Odd("short"))
    assert lc.certify(NET, BALL, Odd("one")).verified


def test_values_beside_names_in_a_comparison() -> None:
    found = compare(NET, BALL, {"mine": Dominant(0.05), "theirs": "trivial"}, timeout=120.0)
    assert [row.status for row in found.rows] == ["certified", "certified"]
    assert found["mine"].verified
    assert "enlarged" in found["mine"].note
    assert found["theirs"].published
    assert not found["mine"].published
    with pytest.raises(lc.InvalidInput, match="different ones"):
        compare(NET, BALL, ["trivial", "trivial"])
    with pytest.raises(lc.InvalidInput, match=r"a value, not a class; write Dominant\(\)"):
        compare(NET, BALL, [Dominant])  # type: ignore[list-item]
