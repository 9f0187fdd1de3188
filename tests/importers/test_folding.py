"""Merged affine maps: every weight and bias is within 2⁻⁵⁰ of the exact composition, relatively, or maps stay apart."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from graphs import built, evaluated, grown
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import lipcert as lc
from lipcert.importers.builder import Builder, Frame, Unsupported
from lipcert.importers.graph import Graph, Linear
from lipcert.importers.lowering import Merged, fold, levels, lower, separate
from lipcert.importers.precise import Precise, PreciseMatrix
from lipcert.model.arrays import Array, dense
from rational import ALLOWED, assert_near, fractions, number_at, times

Row = dict[Any, Fraction]

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def _chain(maps: list[tuple[Any, Array]]) -> Graph:
    def body(b: Any, x: Any) -> Any:
        for weight, bias in maps:
            x = b.affine(x, weight, bias, (len(bias),))
        return x

    return built((maps[0][0].shape[1],), body)


def _assert_chain(maps: list[tuple[Any, Array]], network: lc.Network) -> None:
    """The network is one layer, the composition of the maps; [W b; 0 1] composes both at once."""
    size = maps[0][0].shape[1]
    whole = [[Fraction(i == j) for j in range(size + 1)] for i in range(size + 1)]
    for weight, bias in maps:
        step = [[*row, Fraction(float(b))] for row, b in zip(fractions(weight), bias, strict=True)]
        whole = times([*step, [Fraction(0)] * weight.shape[1] + [Fraction(1)]], whole)
    assert network.depth == 1
    layer = network.layers[0]
    assert_near(layer.weight, [row[:-1] for row in whole[:-1]])
    assert_near(layer.bias[:, None], [row[-1:] for row in whole[:-1]])


def _random_maps(rng: np.random.Generator, sizes: list[int], spread: float, density: float) -> list[tuple[Any, Array]]:
    maps = []
    for n, m in itertools.pairwise(sizes):
        weight = rng.standard_normal((m, n)) * 10.0 ** rng.uniform(-spread, spread, (m, n))
        weight[rng.random((m, n)) > density] = 0.0
        stored = weight if density == 1.0 else sparse.csr_array(weight)
        maps.append((stored, rng.standard_normal(m) * 10.0 ** rng.uniform(-spread, spread, m)))
    return maps


# the finding ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("density", [1.0, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_finding_11_folding_rounds_each_coefficient_once(seed: int, density: float) -> None:
    rng = np.random.default_rng(seed)
    maps = _random_maps(rng, [5, 9, 7, 6, 4][: 3 + seed % 3], (0.0, 0.0, 3.0, 8.0)[seed], density)
    _assert_chain(maps, lower(_chain(maps)).network)


def test_finding_11_cancellation_keeps_its_digits() -> None:
    """W₂W₁ = (1 + 2⁻³⁰)(1 - 2⁻³⁰) - 1 = -2⁻⁶⁰; in plain floating point it is 0."""
    one = np.array([[1.0 + 2.0**-30, 0.5], [1.0, 0.5]])
    two = np.array([[1.0 - 2.0**-30, -1.0]])
    third = np.array([[3.0], [1.0 / 3.0]])
    maps = [(one, np.array([0.1, 0.2])), (two, np.array([0.1])), (third, np.array([0.0, 1e-30]))]
    _assert_chain(maps, lower(_chain(maps)).network)
    assert lower(_chain(maps[:2])).network.layers[0].weight[0, 0] == -(2.0**-60)


def test_large_chains() -> None:
    """Dense and sparse products with hundreds of terms; some rows of them in fractions."""
    rng = np.random.default_rng(0)
    for density in (1.0, 0.02):
        maps = _random_maps(rng, [60, 150, 100], 2.0, density)
        network = lower(_chain(maps)).network
        assert network.depth == 1
        rows = rng.integers(0, 100, 3)
        exact = times(fractions(maps[1][0][rows]), fractions(maps[0][0]))
        assert_near(network.layers[0].weight[rows], exact)


# where folding must not happen ---------------------------------------------------------------------------------


def test_what_cannot_be_rounded_is_not_folded() -> None:
    """x/3 - x/3 is 0, but a third is not a float, so that nobody can see it: the maps stay apart."""
    graph = built((2,), lambda b, x: b.add(b.divide(x, np.array(3.0)), b.divide(x, np.array(3.0)), -1.0))
    network = lower(graph).network
    assert network.sizes == (2, 4, 2)
    assert network.layers[0].neurons is not None
    assert network.layers[0].neurons.describe() == "identity"
    thirds = np.kron([[1], [-1]], np.eye(2, dtype=int)).tolist()
    assert_near(network.layers[0].weight, [[Fraction(v, 3) for v in row] for row in thirds])
    np.testing.assert_array_equal(network(np.array([5.0, 7.0])), [0.0, 0.0])


@pytest.mark.parametrize("size", [1e-200, 1e200, 3e-162])
def test_overflow_and_underflow_keep_maps_apart(size: float) -> None:
    """Products of 1e±400 are no floats; those of 1e-323 have lost their digits."""
    maps = [(np.full((2, 3), size), np.zeros(2)), (np.full((4, 2), size), np.ones(4))]
    network = lower(_chain(maps)).network
    assert network.sizes == (3, 2, 4)
    for layer, (weight, bias) in zip(network.layers, maps, strict=True):
        np.testing.assert_array_equal(layer.weight, weight)
        np.testing.assert_array_equal(layer.bias, bias)


def test_only_the_maps_in_question_stay_apart() -> None:
    """A branch that folds is not held up by one that does not; the values meet again."""

    def body(b: Any, x: Any) -> Any:
        y = b.affine(b.affine(x, np.full((2, 2), 1e-200), 0.0, (2,)), np.full((2, 2), 1e-200), 1.0, (2,))
        z = b.affine(b.affine(x, np.eye(2) * 0.1, 0.5, (2,)), np.eye(2) * 0.3, 0.25, (2,))
        return b.activate(b.add(y, z), "relu")

    graph = built((2,), body)
    network = lower(graph).network
    assert network.depth == 3
    points = np.random.default_rng(0).standard_normal((20, 2))
    np.testing.assert_allclose(network(points), evaluated(graph)(points), rtol=1e-14)


def test_a_coefficient_beyond_floats_is_refused() -> None:
    with pytest.raises(lc.UnreadableModel, match="no double is near enough"):
        lower(built((2,), lambda b, x: b.divide(x, np.array(5e-324))))


def test_constants_beyond_floats_stay_apart_too() -> None:
    graph = built(
        (1,), lambda b, x: b.add(x, b.affine(b.constant(np.full(1, 1e-200)), np.full((1, 1), 1e-200), 0.0, (1,)))
    )
    network = lower(graph).network
    assert network.sizes == (1, 2, 1)
    assert sorted(network.layers[1].weight[0]) == [1e-200, 1.0]


# coefficients that no model stores -----------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1e-5, float(np.float32(1e-3))])
def test_finding_11_batch_norm(epsilon: float) -> None:
    """gain·(Wx + b - mean)/√(variance + epsilon) + offset, with a gain of 0 and a difference that nearly cancels."""
    rng = np.random.default_rng(5)
    weight, bias, (mean, gain, offset) = (
        rng.standard_normal((6, 4)),
        rng.standard_normal(6),
        rng.standard_normal((3, 6)),
    )
    gain[2], mean[3], variance = 0.0, bias[3] * (1 + 2**-50), 10.0 ** rng.uniform(-4, 3, 6)

    def body(b: Any, x: Any) -> Any:
        return b.batch_norm(b.affine(x, weight, bias, (1, 6)), mean, variance, gain, offset, epsilon)

    (layer,) = lower(built((1, 4), body)).network.layers
    with mp.workprec(400):
        for i in range(6):
            factor = mp.mpf(gain[i]) / mp.sqrt(mp.mpf(variance[i]) + mp.mpf(epsilon))
            truth = [factor * mp.mpf(w) for w in weight[i]]
            truth.append(factor * (mp.mpf(bias[i]) - mp.mpf(mean[i])) + mp.mpf(offset[i]))
            for value, number in zip([*dense(layer.weight)[i], layer.bias[i]], truth, strict=True):
                assert abs(mp.mpf(value) - number) <= mp.mpf(2) ** -50 * abs(mp.mpf(value))


def test_batch_norm_refuses_a_variance_that_is_none() -> None:
    build = Builder((1, 2))
    with pytest.raises(Unsupported, match=r"must be positive, the least is -0\.5"):
        build.batch_norm(build.input, np.zeros(2), np.array([1.0, -0.6]), 1.0, 0.0, 0.1)


def test_averages_and_quotients() -> None:
    """(mean over three, after a linear map) / 7, minus a constant: one layer, in thirds and sevenths."""
    rng = np.random.default_rng(2)
    weight, shift = rng.standard_normal((9, 4)), rng.standard_normal(3)

    def body(b: Any, x: Any) -> Any:
        y = b.view(b.affine(x, weight, 0.1, (9,)), lambda i: i.reshape(3, 3))
        return b.add(b.divide(b.mean(y, [1], False), np.array(7.0)), shift, -0.3)

    (layer,) = lower(built((4,), body)).network.layers
    rows = fractions(weight)
    exact = [[sum((rows[3 * i + k][j] for k in range(3)), Fraction(0)) / 21 for j in range(4)] for i in range(3)]
    assert_near(layer.weight, exact)
    tenth, lot = Fraction(0.1), Fraction(-0.3)
    assert_near(layer.bias[:, None], [[tenth / 7 + lot * Fraction(s)] for s in shift])


def test_weights_that_padding_adds_up() -> None:
    """A circular window sees a position twice; the two weights are added without loss, then scaled."""
    kernel = np.array([[[0.1, 0.2, 0.7]]])
    wrapped = np.array([[[1, 0, 1, 0]]])
    graph = built(
        (1, 1, 2),
        lambda b, x: b.scale(b.conv(b.pick(x, wrapped), kernel, None, Frame((3,), (1,), [(0, 0)], (1,))), 1.0 / 3.0),
    )
    (layer,) = lower(graph).network.layers
    left, middle, right = (Fraction(v) for v in (0.1, 0.2, 0.7))
    third = Fraction(1.0 / 3.0)
    assert_near(
        layer.weight, [[third * v for v in (middle, left + right)], [third * v for v in (left + right, middle)]]
    )


@pytest.mark.parametrize("turn", [0.5**0.5, float(np.float32(0.5**0.5)), -1.9])
def test_gelu_spelt_out_keeps_its_own_constant(turn: float) -> None:
    """x(1 + erf(dx)) = (2/t)·gelu(tx), t = d√2, is read with t itself, not with the float32 number nearest to 1."""
    graph = built((1,), lambda b, x: b.multiply(x, b.scale(b.activate(b.scale(x, turn), "erf"), 1.0, 1.0)))
    first, last = lower(graph).network.layers
    with mp.workprec(300):
        t = mp.sqrt(2) * mp.mpf(turn)
        for value, truth in ((first.weight[0, 0], t), (last.weight[0, 0], 2 / t)):
            assert abs(mp.mpf(value) - truth) <= mp.mpf(2) ** -50 * abs(mp.mpf(value))


def test_a_sixth_is_a_sixth(monkeypatch: pytest.MonkeyPatch) -> None:
    """clip(x/6 + 1/2, 0, 1): the slope of the table, a float, is corrected in the weight before it."""
    rng = np.random.default_rng(0)
    one, two = rng.standard_normal((4, 10)), rng.standard_normal((40, 4))

    def check() -> None:
        graph = built((10,), lambda b, x: b.hard_sigmoid(b.affine(b.affine(x, one, 0.0, (4,)), two, 0.0, (40,))))
        layer, _ = lower(graph).network.layers
        assert layer.neurons is not None
        slope = Fraction(float(layer.neurons.groups[0][0].parameters[0]))
        truth = [[v / (6 * slope) for v in row] for row in times(fractions(two), fractions(one))]
        assert_near(layer.weight, truth, Fraction(1, 2**53))

    check()
    monkeypatch.setattr(Builder, "hard_sigmoid", lambda b, x: b.activate(x, "hardsigmoid"))
    with pytest.raises(AssertionError):
        check()


# whole models --------------------------------------------------------------------------------------------------


def _coefficients(graph: Graph, wanted: tuple[int, int], known: tuple[int, ...]) -> Row:
    """An element (node, place) as an affine function of the known values, pulled back in fractions."""
    total: Row = {}
    pending: list[tuple[int, int, Fraction]] = [(*wanted, Fraction(1))]
    while pending:  # the rows that are looked at are few, so no care is taken to meet each node once
        position, place, weight = pending.pop()
        node = graph.nodes[position]
        if position in known:
            key = (position, place)
            total[key] = total.get(key, Fraction(0)) + weight
            continue
        assert isinstance(node.op, Linear)
        total["one"] = total.get("one", Fraction(0)) + weight * number_at(node.op.shift, place)
        for part, operand in zip(node.op.parts, node.inputs, strict=True):
            entries = range(*np.searchsorted(part.rows, [place, place + 1]))
            pending += [(operand, int(part.columns[e]), weight * number_at(part.values, e)) for e in entries]
    return total


def _assert_merged(graph: Graph, merged: list[Merged], rows: int, rng: np.random.Generator) -> None:
    """Some rows of every layer, before pruning, against fractions."""
    for level, (layer, *_) in zip(levels(graph), merged, strict=True):
        weight, bias = layer.weight, layer.bias
        last = not level.applied
        targets = [graph.output] if last else [graph.nodes[i].inputs[0] for i in level.applied] + list(level.carried)
        places = [(t, r) for t in targets for r in range(graph.nodes[t].size)]
        starts = dict(zip(level.known, np.cumsum([0, *(graph.nodes[i].size for i in level.known)])))
        for row in rng.choice(len(places), min(rows, len(places)), replace=False):
            exact = _coefficients(graph, places[row], level.known)
            wanted = {starts[k[0]] + k[1]: v for k, v in exact.items() if k != "one"}
            stored = dense(weight[[row]])[0]
            for column in {*np.flatnonzero(stored).tolist(), *wanted}:
                value, number = Fraction(float(stored[column])), wanted.get(column, Fraction(0))
                assert abs(value - number) <= ALLOWED * abs(value)
            offset = Fraction(float(bias[row]))
            assert abs(offset - exact.get("one", Fraction(0))) <= ALLOWED * abs(offset)


MODELS: Mapping[str, tuple[int, ...]] = {
    "models/ACASXU_run2a_1_1_batch_2000.onnx": (5, 50, 50, 50, 50, 50, 50, 5),
    "models/Convnet_avgpool.onnx": (784, 18432, 10),
    "models/Convnet_maxpool.onnx": (784, 18432, 18432, 9216, 4608, 2304, 10),
    "models/ffnnSIGMOID__Point_6x200.onnx": (784, 200, 200, 200, 200, 200, 200, 10),
    "models/mnist-net_256x2.onnx": (784, 256, 256, 10),
    "models/resnet_2b.onnx": (3072, 2048, 2048, 1024, 2048, 1024, 100, 10),
    "l2/cifar10_cnn_a.onnx": (3072, 4096, 2048, 100, 10),
    "l2/mnist_convsmall.onnx": (784, 3136, 1568, 100, 10),
    "l2/mnist_mlp.onnx": (784, 100, 100, 10),
}
"""Models and the sizes of their networks, the same as when folding was done in plain floating point."""


LONG = [name for name in MODELS if "Convnet" in name or "SIGMOID" in name]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in MODELS])
def test_models_fold_into_as_few_layers_as_ever(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (SHARED / name).is_file():
        pytest.skip(f"{SHARED / name} is not there")
    pytest.importorskip("onnx")
    from lipcert.importers import onnx as reader

    seen: list[Graph] = []

    def watched(graph: Graph) -> Any:
        seen.append(graph)
        return lower(graph)

    monkeypatch.setattr(reader, "lower", watched)
    assert lc.load(SHARED / name).sizes == MODELS[name]
    graph = seen[0].live()
    _assert_merged(graph, fold(graph)[0], 3, np.random.default_rng(0))


@settings(max_examples=50)
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 10))
def test_any_graph_is_folded_exactly(seed: int, steps: int) -> None:
    """Random graphs of every linear operation, with skips, constants and maxima, some beyond the range of floats."""
    rng = np.random.default_rng(seed)

    def grow(b: Any, x: Any, y: Any) -> Any:
        size, kind = rng.integers(1, 4), rng.integers(-1, 6)
        if kind < 1:
            weight = rng.standard_normal((size, x.size)) * 10.0 ** rng.choice([-210, -9, -1, 0, 1, 9, 210])
            return b.affine(x, weight, rng.standard_normal(size), (size,))
        others = [
            lambda: b.activate(x, "relu"),
            lambda: b.concat([x, y, np.full(1, 0.1)], 0),
            lambda: b.add(x, b.pick(y, rng.integers(0, y.size, x.size)), -0.7),
            lambda: b.divide(x, rng.uniform(1, 9, x.size)),
            lambda: b.maximum(x, rng.integers(0, x.size, (size, 3)), (size,)),
        ]
        return others[kind - 1]()

    graph = grown(3, steps, rng, grow).live()
    merged, apart = fold(graph)
    while apart:
        graph = separate(graph, apart)
        merged, apart = fold(graph)
    _assert_merged(graph, merged, 4, rng)


def test_planted_a_product_in_plain_floating_point_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(self: PreciseMatrix, other: PreciseMatrix) -> PreciseMatrix:
        return PreciseMatrix.of(sparse.csr_array(self.nearest @ other.nearest))

    monkeypatch.setattr(PreciseMatrix, "__matmul__", plain)
    for test in (test_finding_11_cancellation_keeps_its_digits, test_large_chains):
        with pytest.raises(AssertionError):
            test()


def test_planted_a_coefficient_rounded_too_early_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        """The offset is 0.1/3 - fl(0.1/3), all of which is beyond double precision."""
        graph = built((1,), lambda b, x: b.divide(b.add(b.divide(b.add(x, 0.1), 3.0), 0.1 / 3.0, -1.0), 7.0))
        (layer,) = lower(graph).network.layers
        assert_near(layer.bias[:, None], [[(Fraction(0.1) / 3 - Fraction(0.1 / 3.0)) / 7]])

    exact = Precise.reciprocal
    check()
    monkeypatch.setattr(Precise, "reciprocal", lambda self: Precise.of(exact(self).high))
    with pytest.raises(AssertionError):
        check()


def test_products_of_too_many_terms_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    from lipcert.importers import precise as module

    maps = _random_maps(np.random.default_rng(0), [9, 70, 60], 0.0, 1.0)
    assert lower(_chain(maps)).network.sizes == (9, 60)
    monkeypatch.setattr(module, "_MOST_TERMS", 100)
    network = lower(_chain(maps)).network
    assert network.sizes == (9, 70, 60)
    for layer, (weight, bias) in zip(network.layers, maps, strict=True):
        np.testing.assert_array_equal(layer.weight, weight)
        np.testing.assert_array_equal(layer.bias, bias)


# numbers beyond double precision: the true value is never farther from them than the error says


anything = st.floats(allow_nan=False, allow_infinity=False)
moderate = st.floats(min_value=2.0**-200, max_value=2.0**200)


def _assert_holds(numbers: Precise, truth: Fraction, place: Any = 0) -> None:
    """|high + low - truth| ≤ error; infinities claim nothing; a good float is within the tolerance."""
    high, low, error = (float(part.reshape(-1)[place]) for part in numbers.parts)
    if np.isfinite([high, low, error]).all():
        assert abs(Fraction(high) + Fraction(low) - truth) <= Fraction(error)
    if numbers.good.reshape(-1)[place]:
        assert abs(Fraction(high) - truth) <= ALLOWED * abs(Fraction(high))


@given(anything, anything, anything, anything)
def test_sums_and_products_hold(a: float, b: float, c: float, d: float) -> None:
    product = (Precise.of(a) + b) * (Precise.of(c) - d)
    truth = (Fraction(a) + Fraction(b)) * (Fraction(c) - Fraction(d))
    _assert_holds(product, truth)
    _assert_holds(product * product - 0.1, truth * truth - Fraction(0.1))


@given(moderate, st.floats(min_value=-0.4, max_value=0.4), st.booleans())
def test_reciprocals_and_roots_hold(size: float, rest: float, negative: bool) -> None:
    number = Precise.of(-size if negative else size) + rest * size
    truth = Fraction(-size if negative else size) + Fraction(rest * size)
    inverse = number.reciprocal()
    assert inverse.good.all()
    assert float(inverse.error) <= 2.0**-95 * abs(float(inverse.high))
    _assert_holds(inverse, 1 / truth)
    if negative:
        return
    root = number.inverse_root()
    assert root.good.all()
    assert float(root.error) <= 2.0**-95 * abs(float(root.high))
    low, high = (
        Fraction(float(root.high)) + Fraction(float(root.low)) + s * Fraction(float(root.error)) for s in (-1, 1)
    )
    assert low * low * truth <= 1 <= high * high * truth


def test_reciprocals_and_roots_out_of_range_are_refused() -> None:
    for number in (5e-324, 0.0, np.inf, np.nan):
        assert not Precise.of(number).reciprocal().good.any()
    for number in (0.0, -1.0, np.inf, np.nan):
        assert not Precise.of(number).inverse_root().good.any()


def test_powers_of_two_stay_exact() -> None:
    powers = 2.0 ** np.arange(-60, 60)
    assert not Precise.of(powers).reciprocal().error.any()
    assert not Precise.of(powers**2).inverse_root().error.any()
