"""The sweeps of lipcert.exact as an oracle for the checker: for the stored weights, with the checker's multipliers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flint import arb, arb_mat

from exact import ball
from lipcert.exact.enclose import Interval
from lipcert.exact.functions import Function, most
from lipcert.exact.linear import plus_diagonal, positive_definite
from lipcert.exact.model import Layer, inputs_of, read
from lipcert.exact.sweep import Swept
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.proof.hints import Hints


class Oracle(Swept):
    """One sweep for multipliers that are functions of (neuron, r); ``S`` is the ellipsoid at the output."""

    def __init__(
        self, network: Network, region: Region, hints: Hints, known: Sequence[Interval], rules: Sequence[Any]
    ) -> None:
        self.rules = rules
        super().__init__(read(network, spread=0.0), inputs_of(region, network.inputs), hints, known)

    def multipliers(self, index: int) -> list[arb]:
        assert self.S is not None
        alpha, beta = self.slopes[index]
        radii = [((b - a) / 2).upper() for a, b in zip(alpha, beta, strict=True)]
        return [self.rules[index](k, r) if r > 0 and self.S[k, k] > 0 else arb(0) for k, r in enumerate(radii)]


def value_over(f: Function, v: arb) -> arb:
    """φ over the small ball v: at its midpoint and beyond, by what the slope allows."""
    low, high = f.on(v.lower(), v.upper()).slopes()
    return f.value(v.mid()) + (v - v.mid()) * most([abs(low).upper(), abs(high).upper()])


def exact_layers(network: Network) -> tuple[Layer, ...]:
    """The layers of a network, its weights without radii."""
    return read(network, spread=0.0)


def norm(entries: Sequence[arb]) -> arb:
    """The Euclidean norm."""
    return sum((x * x for x in entries), arb(0)).sqrt()


def below(S: arb_mat, bound: float) -> bool:
    """Whether sqrt(λmax(S)) is proved to be less than a bound."""
    return positive_definite(plus_diagonal(-S, [ball(bound) ** 2] * S.nrows()))
