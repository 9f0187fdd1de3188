"""The search on symbols: its gradient, what it gains, and that the first bound does not wait for time."""

from __future__ import annotations

import numpy as np
import pytest

import lipcert as lc
from lipcert.model.arrays import Array
from lipcert.proof.hints import Hints
from lipcert.proof.torus import torus_of
from lipcert.search.fourier import FourierChain, FourierValue, closed_form


def block(head: bool, size: int = 6, channels: int = 3) -> lc.Network:
    """A convolution with stride and a residual block, whose skip is carried by identity channels."""
    rng = np.random.default_rng(4)
    first, second = rng.standard_normal((2, channels, channels, 3, 3)) / 3.0
    centre = np.zeros((channels, channels, 3, 3))
    centre[np.arange(channels), np.arange(channels), 1, 1] = 1.0
    start = rng.standard_normal((channels, 2, 3, 3)) / 3.0
    kernels = [start, np.concatenate([first, centre]), np.concatenate([second, centre], axis=1)]
    places = channels * size * size
    rows = ["relu", ["relu"] * places + ["identity"] * places, *(["relu", "tanh"] if head else [])]
    dense = [rng.standard_normal(shape) / 3.0 for shape in ((4, places), (3, 4))] if head else []
    return lc.conv_stack(kernels, (2 * size, 2 * size), rows, stride=[2, 1, 1], padding=1, head=dense)


def chain_of(network: lc.Network) -> FourierChain:
    space = torus_of(network)
    assert space is not None
    rest = network.layers[len(space.slopes) : -1]
    everywhere = [np.full((2, layer.size), [[-np.inf], [np.inf]]) for layer in rest]
    dense = [layer.neurons.slope_range(*ends) for layer, ends in zip(rest, everywhere, strict=True) if layer.neurons]
    return FourierChain(network, space, [*space.slopes, *dense])


@pytest.mark.parametrize("head", [False, True])
def test_the_gradient_is_that_of_the_value(head: bool) -> None:
    chain, rng = chain_of(block(head)), np.random.default_rng(1)
    assert [link.open.size for link in chain.links] == [3, 3, *([3, 4] if head else [])]
    walk = chain.greedy(closed_form)
    x = walk.x + 0.4
    here = chain.value(x, 1e-2)
    assert here is not None
    assert chain.at(walk.x).log_bound == pytest.approx(walk.log_bound, rel=1e-9)
    assert chain.at(x).log_bound == pytest.approx(here.log_bound, rel=1e-9)
    for _ in range(4):
        way = rng.standard_normal(x.size)
        ahead, behind = chain.value(x + 1e-5 * way, 1e-2), chain.value(x - 1e-5 * way, 1e-2)
        assert ahead is not None
        assert behind is not None
        assert here.gradient @ way == pytest.approx((ahead.f - behind.f) / 2e-5, rel=1e-5)


@pytest.mark.parametrize("method", [lc.Joint(seconds=0), lc.Auto(seconds=0)])
def test_the_first_bound_takes_what_it_takes(method: lc.Joint) -> None:
    network = block(head=True, size=14)
    first = lc.certify(network, method=lc.ClosedForm())
    found = lc.certify(network, method=method)
    assert found.found_by == "ClosedForm"
    assert found.verified
    assert found.bound == first.bound
    assert lc.certify(network, method=lc.Joint()).bound < first.bound


def test_the_highest_frequencies_suffice_for_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was left out is looked at afterwards: the bound is that of a search at all frequencies."""
    rng = np.random.default_rng(3)
    kernels = [rng.standard_normal((4, 4 if k else 2, 3, 3)) / 3.0 for k in range(4)]
    network = lc.conv_stack(kernels, (13, 13))
    found = lc.certify(network, method=lc.Joint())
    seen: list[int] = []
    value = FourierChain.value

    def counted(self: FourierChain, x: Array, mu: float) -> FourierValue | None:
        seen.append(len(self.chosen))
        return value(self, x, mu)

    monkeypatch.setattr(FourierChain, "value", counted)
    monkeypatch.setattr("lipcert.search.fourier._SMALLEST", 4)
    monkeypatch.setattr("lipcert.search.fourier._FIRST", 20)
    few = lc.certify(network, method=lc.Joint())
    assert min(seen) < max(seen) < len(torus_of(network).frequencies()[0])  # type: ignore[union-attr]
    assert few.bound == pytest.approx(found.bound, rel=3e-3)
    monkeypatch.setattr("lipcert.search.fourier._SMALLEST", 10**9)
    seen.clear()
    assert lc.certify(network, method=lc.Joint()).bound == pytest.approx(found.bound, rel=1e-3)
    assert set(seen) == {len(torus_of(network).frequencies()[0])}  # type: ignore[union-attr]


def test_heights_are_those_of_each_frequency() -> None:
    chain = chain_of(block(head=False))
    walk = chain.greedy(closed_form)
    heights = chain.heights(walk.hints)
    assert heights.max() == pytest.approx(2.0 * walk.log_bound, rel=1e-9)
    alone = [chain.at_others(np.array([k])).heights(walk.hints)[0] for k in range(len(heights))]
    np.testing.assert_allclose(heights, alone, rtol=1e-9)
    again = chain.at_others(chain.chosen[::2]).again(walk.hints)
    assert again.log_bound == pytest.approx(0.5 * heights[::2].max(), rel=1e-9)
    smaller = Hints((), tuple(0.3 * T for T in walk.hints.multipliers), walk.hints.exponents)
    some = np.isinf(chain.heights(smaller))  # not feasible there
    assert some.any()
    np.testing.assert_array_equal(
        some, [np.isinf(chain.at_others(np.array([k])).heights(smaller)[0]) for k in chain.chosen]
    )
