"""The passes of lipcert.audit as an oracle for the checker: for the stored weights, with the checker's multipliers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from flint import arb

from exact import ball, rational
from lipcert.audit.balls import Balls, Interval, plus_diagonal, positive_definite
from lipcert.audit.engine import Layer, Pass, inputs_of, read
from lipcert.definitions.functions import Function, most
from lipcert.kernel.step import Step
from lipcert.kernel.sweep import Sweep
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.suggest.hints import Hints, View


class Oracle(Pass):
    """One sweep for multipliers that are functions of (neuron, r); ``S`` is the ellipsoid at the output."""

    def __init__(
        self, network: Network, region: Region, hints: Hints, known: Sequence[Interval], rules: Sequence[Any]
    ) -> None:
        self.rules = rules
        super().__init__(read(network, spread=0.0), inputs_of(region, network.inputs), hints, known)

    def multipliers(self, index: int) -> Balls:
        alpha, beta = self.slopes[index]
        radii = [((b - a) / 2).upper() for a, b in zip(alpha, beta, strict=True)]
        found = [self.rules[index](k, r) if r > 0 and self.S[k, k] > 0 else arb(0) for k, r in enumerate(radii)]
        return np.array([*found, None], dtype=object)[:-1]


def single(step: Step, which: int) -> Step:
    """The step of one region of a stack, without its first axis and without the rows that fill up the stack."""
    on = step.h[which] > 0.0
    active, h, g, lifted = (x[which][on] for x in (step.active, step.h, step.g, step.lifted))
    return replace(step, P=step.P[which], active=active, m=step.m[which], h=h, g=g, lifted=lifted)


def neuron_of(view: View, which: int, place: int) -> int:
    """Which neuron of its layer a row of what is kept is."""
    return place if view.neurons is None else int(view.neurons[which][place])


def rules_of(sweep: Sweep, which: int = 0) -> list[Any]:
    """T and r of each neuron as a proof of one region used them, turned into rules for the oracle.

    For slopes inside those of the proof, T in proportion to r gives a P that is nowhere above the proof's; so the
    oracle's bound with this rule is at most the proved one, if the proof is right.
    """
    rules = []
    for view, stacked in zip(sweep.views, sweep.steps, strict=True):
        step = single(stacked, which)
        chosen = {
            neuron_of(view, which, int(k)): (rational(lifted) / rational(g) ** 2, rational(h) / rational(g))
            for k, lifted, g, h in zip(step.active, step.lifted, step.g, step.h, strict=True)
        }

        def rule(neuron: int, r: arb, chosen: Any = chosen, exponent: int = int(view.exponent[which])) -> arb:
            T, reach = chosen[neuron]
            return arb(T) * arb(4) ** exponent * r / arb(reach)

        rules.append(rule)
    return rules


def check_inside(sweep: Sweep, which: int, oracle: Oracle) -> None:
    """Every interval and slope range of the oracle must lie inside those of the proof."""
    for (lows, highs), (exact_low, exact_high) in zip(sweep.intervals, oracle.intervals, strict=True):
        for low, high, least, most_ in zip(lows[which], highs[which], exact_low, exact_high, strict=True):
            assert low == -np.inf or ball(low) <= least
            assert high == np.inf or ball(high) >= most_
    for view, stacked, (alpha, beta) in zip(sweep.views, sweep.steps, oracle.slopes, strict=True):
        step = single(stacked, which)
        for k, h, g in zip(step.active, step.h, step.g, strict=True):
            middle, reach, neuron = ball(step.m[k]), ball(h) / ball(g), neuron_of(view, which, int(k))
            assert middle - reach <= alpha[neuron].upper()
            assert middle + reach >= beta[neuron].lower()


def value_over(f: Function, v: arb) -> arb:
    """φ over the small ball v: at its midpoint and beyond, by what the slope allows."""
    low, high = f.on(v.lower(), v.upper()).slopes()
    return f.value(v.mid()) + (v - v.mid()) * most([abs(low).upper(), abs(high).upper()])


def exact_layers(network: Network) -> tuple[Layer, ...]:
    """The layers of a network, its weights without radii."""
    return read(network, spread=0.0)


def norm(entries: Balls) -> arb:
    """The Euclidean norm."""
    return sum((x * x for x in entries), arb(0)).sqrt()


def below(S: Balls, bound: float) -> bool:
    """Whether sqrt(λmax(S)) is proved to be less than a bound."""
    return positive_definite(plus_diagonal(-S, ball(bound) ** 2))
