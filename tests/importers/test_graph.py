"""Graphs of operations: every rewrite keeps the function, and the schedule carries no more than it must."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graphs import built, evaluated, grown
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import lipcert as lc
from lipcert.importers.builder import Builder, Frame, Tensor, Unsupported
from lipcert.importers.graph import Apply, Graph
from lipcert.importers.lowering import depths, levels, lower, prune
from lipcert.model.arrays import Array


def _points(count: int, inputs: int, scale: float = 2.0) -> Array:
    return scale * np.random.default_rng(7).standard_normal((count, inputs))


def _assert_same(one: Graph | lc.Network, two: Graph | lc.Network, inputs: int) -> None:
    x = _points(200, inputs)
    first, second = (evaluated(it)(x) if isinstance(it, Graph) else it(x) for it in (one, two))
    np.testing.assert_allclose(first, second, rtol=1e-12, atol=1e-12)


def _ops(graph: Graph) -> list[type]:
    return [type(node.op) for node in graph.nodes]


# one rewrite at a time -----------------------------------------------------------------------------------------


def test_products_with_constants_are_scalings() -> None:
    def body(b: Any, x: Any) -> Any:
        both = b.concat([x, np.array([2.0, 3.0, 5.0])], 0)
        turned = b.view(b.constant(np.array([1.0, 2.0, 4.0])), lambda i: i[::-1])
        return b.add(b.multiply(x, turned), b.view(both, lambda i: i[3:]))

    network = lower(built((3,), body)).network
    assert network.sizes == (3, 3)
    np.testing.assert_array_equal(network(np.ones(3)), [6.0, 5.0, 6.0])


def test_elements_taken_twice_are_taken_once_and_others_apart() -> None:
    def body(b: Any, x: Any) -> Any:
        one, same, two = (b.pick(x, np.array(index)) for index in ([0, 1], [0, 1], [2, 1]))
        assert one.node == same.node != two.node
        return b.concat([b.add(one, two, -1.0), b.pick(x, np.array([0, -1]), 7.0)], 0)

    assert lower(built((3,), body)).network(np.array([1.0, 2.0, 5.0])).tolist() == [-4.0, 0.0, 1.0, 7.0]


def test_an_activation_of_constants_is_a_row_of_neurons() -> None:
    """Its value is no float, so it cannot be folded; it can be computed by neurons that look at nothing."""
    graph = built((3,), lambda b, x: b.add(x, b.activate(b.constant(np.array([1.0, -2.0, 3.0])), "tanh")))
    network = lower(graph).network
    assert network.sizes == (3, 6, 3)
    _assert_same(graph, network, 3)
    graph = built((3,), lambda b, x: b.multiply(x, b.activate(b.constant(np.ones(3)), "tanh")))
    assert np.allclose(lower(graph).network(np.arange(3.0)), np.tanh(1.0) * np.arange(3.0))


def _assert_maxima(graph: Graph, seen: Array, inputs: int) -> None:
    x = _points(100, inputs)
    wanted = np.where(seen >= 0, x[:, seen], -np.inf).max(axis=-1)
    for found in (evaluated(graph)(x), lower(graph).network(x)):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("kernel", "stride", "pads"), [((2, 2), (2, 2), 0), ((3, 3), (2, 2), 1), ((3, 2), (1, 1), 0)])
def test_maxima_become_tournaments(kernel: tuple[int, int], stride: tuple[int, int], pads: int) -> None:
    shape = (1, 2, 6, 5)
    frame = Frame(kernel, stride, [(pads, pads)] * 2, (1, 1))
    seen, places = Builder(shape).windows(Tensor(0, shape), frame)
    graph = built(shape, lambda b, x: b.maximum(x, seen, places))
    _assert_maxima(graph, seen, 60)


def test_equal_pairs_are_played_once() -> None:
    seen = np.array([[0, 1, 2], [1, 0, -1], [0, 1, 3]])
    plain = built((4,), lambda b, x: b.maximum(x, seen, (3,)))
    duels = [node.size for node in plain.nodes if isinstance(node.op, Apply)]
    assert duels == [1, 2]


def test_a_tournament_carries_no_loser() -> None:
    """Of three values one is carried and one is what the gap is added to; in the next round one of two."""
    graph = built((6,), lambda b, x: b.maximum(x, np.arange(6).reshape(2, 3), (2,)))
    assert lower(graph).network.sizes == (6, 6, 4, 2)


def test_ties_and_windows_of_one() -> None:
    seen = np.array([[2, -1, -1], [1, 1, 1], [-1, 0, -1]])
    graph = built((3,), lambda b, x: b.maximum(x, seen, (3,)))
    assert Apply not in _ops(graph)
    _assert_maxima(graph, seen, 3)
    with pytest.raises(Unsupported, match="outside the input"):
        Builder((2,)).maximum(Tensor(0, (2,)), np.array([[-1, -1]]), (1,))


def test_pruning_drops_what_nothing_uses() -> None:
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((5, 3)), rng.standard_normal((4, 5)), rng.standard_normal((2, 4))]
    weights[2][:, 1] = 0.0
    weights[1][1] = 7.0  # its neuron goes, and with it the only use of neuron 3
    weights[1][[0, 2, 3], 3] = 0.0
    slopes = lc.activation("leaky_relu", negative_slope=np.array([0.1, 0.2, 0.3, 0.4, 0.5]))
    network = lc.Network.from_weights(weights, None, [slopes, "tanh"])
    small = prune(network)
    assert small.sizes == (3, 4, 3, 2)
    _assert_same(network, small, 3)
    whole = lc.Network.from_weights([sparse.csr_array(w) for w in weights], None, [slopes, "tanh"])
    _assert_same(network, prune(whole), 3)


def test_a_network_that_ignores_its_input() -> None:
    graph = built((2,), lambda b, x: b.scale(b.activate(x, "relu"), 0.0, [1.0, 2.0]))
    network = lower(graph).network
    assert network.outputs == 2
    _assert_same(graph, network, 2)
    constant = lower(built((2,), lambda b, x: b.constant(np.ones(3)))).network
    np.testing.assert_array_equal(constant(np.zeros(2)), np.ones(3))


# the whole way -------------------------------------------------------------------------------------------------


def _branches(b: Any, x: Any) -> Any:
    """Branches of different depth that meet again, a concatenation with a constant, a value used twice."""
    rng = np.random.default_rng(3)
    y = b.activate(b.affine(x, rng.standard_normal((5, 4)), rng.standard_normal(5), (5,)), "relu")
    z = b.activate(b.affine(y, rng.standard_normal((6, 5)), 0.1, (6,)), "tanh")
    short = b.affine(x, rng.standard_normal((6, 4)), 0.2, (6,))
    both = b.add(z, short)
    late = b.activate(b.concat([both, np.array([0.5, -0.5]), y], 0), "elu")
    return b.add(b.mean(late, None, False), b.concat([b.activate(both, "sin"), x], 0))


def test_branches_meet() -> None:
    graph = built((4,), _branches)
    lowered = lower(graph)
    _assert_same(graph, lowered.network, 4)
    assert lowered.network.depth == 4
    assert len(lowered.origins) == 4


def test_levels_carry_the_smallest_tensors() -> None:
    def body(b: Any, x: Any) -> Any:  # 8 → 2 → 8 inside the skip: two numbers are enough
        narrow = b.affine(x, np.ones((2, 8)), 0.0, (2,))
        wide = b.affine(narrow, np.ones((8, 2)), 0.0, (8,))
        y = b.activate(b.activate(x, "relu"), "tanh")
        return b.add(y, wide)

    graph = built((8,), body)
    assert [sum(graph.nodes[i].size for i in level.carried) for level in levels(graph)] == [2, 2, 0]
    assert lower(graph).network.sizes == (8, 10, 10, 8)
    assert max(depths(graph)) == 2
    _assert_same(graph, lower(graph).network, 8)


def test_sparse_and_dense_storage() -> None:
    def body(b: Any, x: Any) -> Any:
        kernel = np.random.default_rng(0).standard_normal((4, 2, 3, 3))
        y = b.activate(b.conv(x, kernel, None, Frame((3, 3), (1, 1), [(1, 1)] * 2, (1, 1))), "relu")
        return b.matmul(b.view(y, lambda i: i.reshape(1, -1)), np.random.default_rng(1).standard_normal((4 * 81, 7)))

    graph = built((1, 2, 9, 9), body)
    network = lower(graph).network
    assert sparse.issparse(network.layers[0].weight)
    assert not sparse.issparse(network.layers[1].weight)
    _assert_same(graph, network, 162)


def test_what_is_dead_is_not_lowered() -> None:
    build = Builder((3,))
    build.activate(build.input, "silu")
    graph = build.finish(build.activate(build.input, "relu"))
    assert [t for t in _ops(graph.live()) if t is Apply] == [Apply]
    assert lower(graph).network.sizes == (3, 3, 3)


def test_neurons_of_one_kind_are_one_group() -> None:
    def body(b: Any, x: Any) -> Any:
        one, two = b.activate(x, "relu"), b.activate(b.scale(x, -1.0), "relu")
        return b.add(b.add(one, two), b.activate(x, "leaky_relu", negative_slope=np.arange(3.0)))

    graph = built((3,), body)
    neurons = lower(graph).network.layers[0].neurons
    assert neurons is not None
    assert [(row.name, index.tolist()) for row, index in neurons.groups] == [
        ("relu", [0, 1, 2, 3, 4, 5]),
        ("leaky_relu", [6, 7, 8]),
    ]
    _assert_same(graph, lower(graph).network, 3)


@given(seed=st.integers(0, 10**6), steps=st.integers(1, 14))
def test_any_graph_is_lowered_faithfully(seed: int, steps: int) -> None:
    """Random graphs: every operation, operands from anywhere before."""
    rng = np.random.default_rng(seed)

    def grow(b: Any, x: Any, y: Any) -> Any:
        size = int(rng.integers(1, 6))
        match rng.integers(7):
            case 0 | 1:
                weight = rng.standard_normal((size, x.size)) / np.sqrt(x.size)
                return b.affine(x, weight, rng.standard_normal(size), (size,))
            case 2 | 3:
                return b.activate(x, str(rng.choice(["relu", "tanh", "elu", "sin"])))
            case 4:
                return b.concat([x, y, np.ones(1)], 0)
            case 5:
                return b.add(x, b.pick(y, rng.integers(0, y.size, x.size)), float(rng.choice([1.0, -1.0])))
        windows = rng.integers(-1, x.size, (size, 4))
        windows[:, 2] = rng.integers(0, x.size, size)  # none without an element
        return b.maximum(x, windows, (size,))

    graph = grown(4, steps, rng, grow)
    _assert_same(graph, lower(graph).network, 4)


# index arithmetic ----------------------------------------------------------------------------------------------


def test_padding_and_cropping() -> None:
    build = Builder((2, 3))
    network = lower(build.finish(build.pad(build.input, [(0, 0), (1, -1)], 7.0))).network
    assert network(np.arange(6.0)).tolist() == [7.0, 0.0, 1.0, 7.0, 3.0, 4.0]


def test_shapes_that_do_not_fit_are_offenders() -> None:
    build: Any = Builder((2, 3))
    wrong: Callable[[], Any]
    for name, wrong in {
        "a": lambda: build.add(build.input, np.ones((2, 2))),
        "b": lambda: build.view(build.input, lambda i: i.reshape(4, 2)),
        "c": lambda: build.matmul(build.input, np.ones((2, 2))),
        "d": lambda: build.divide(build.input, np.array([1.0, 0.0, 2.0])),
        "e": lambda: build.concat([build.input, np.ones((1, 1))], 0),
        "f": lambda: build.activate(build.input, "elu", alpha=-1.0),
    }.items():
        build.step(name, "Kind", [(2, 3)], (), lambda _, wrong=wrong: [wrong()])
    with pytest.raises(lc.UnreadableModel) as caught:
        build.finish(build.input)
    lines = str(caught.value).splitlines()
    assert lines[0] == "6 operations have no exact translation:"
    assert [line.split(":")[0].strip() for line in lines[1:]] == list("abcdef")
