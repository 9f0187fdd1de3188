"""Certificates that verify, certificates that must not, and bugs planted in the proof."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from test_oracle import compare, random_case

import lipcert as lc
from exact import PRECISION, precision
from lipcert.answers.certificate import Certificate
from lipcert.errors import ProofFailed
from lipcert.kernel import arithmetic as near
from lipcert.kernel import neuron_bounds as relaxation
from lipcert.kernel import step as step_module
from lipcert.kernel import sweep as sweep_module
from lipcert.kernel.domain import Domain
from lipcert.kernel.enclosures import BackSubstitution
from lipcert.kernel.facts import Part
from lipcert.kernel.fourier import prove_symbols
from lipcert.methods.method import Method
from lipcert.model.arrays import Array
from lipcert.model.convolution import Convolution
from lipcert.model.network import Layer, Network, Neurons
from lipcert.model.regions import Region
from lipcert.suggest.hints import Hints, Linear, Lipschitz
from networks import proved_bound, random_network
from oracle import below

CENTER, STEPS = np.array([0.3, -0.2, 0.9]), np.array([0.1, 0.2, 0.3])
REGIONS: dict[str, Region] = {
    "ball": lc.Ball(CENTER, 0.7),
    "small ball": lc.Ball(CENTER, 1e-3),
    "point": lc.Ball(CENTER, 0.0),
    "clipped ball": lc.Ball(CENTER, 0.7, clip=(CENTER - 0.3, CENTER + 0.5)),
    "box": lc.Box(CENTER - 0.1, CENTER + STEPS),
    "everywhere": lc.Everywhere(),
}


def mixed_network() -> Network:
    return random_network(5, (3, 6, 5, 4, 2), ["elu", "relu", "tanh"], gain=2.0)


# Claims that do not follow.


def certificate_of(network: Network, region: Region | None = None, method: Method | None = None) -> Certificate:
    return lc.certify(network, region or REGIONS["ball"], method or lc.Scalar())


def refused(network: Network, certificate: Certificate, message: str | None = None) -> None:
    with pytest.raises(ProofFailed, match=message):
        lc.verify(network, certificate)


def test_a_claim_lowered_by_1e_minus_9() -> None:
    network = mixed_network()
    certificate = certificate_of(network)
    refused(network, replace(certificate, bound=certificate.bound * (1.0 - 1e-9)), "hints prove no better than")
    refused(network, replace(certificate, bound=float("nan")))
    assert lc.verify(network, replace(certificate, bound=certificate.bound * 2.0)) <= certificate.bound


def with_layer(network: Network, index: int, layer: Layer) -> Network:
    return Network((*network.layers[:index], layer, *network.layers[index + 1 :]))


def test_a_radius_that_is_understated() -> None:
    network = mixed_network()
    certificate = certificate_of(network, lc.Ball(CENTER, 0.5))
    for radius in (0.5 * (1 + 1e-6), 0.51, 5.0):
        refused(network, replace(certificate, region=lc.Ball(CENTER, radius)))
    refused(network, replace(certificate, region=lc.Everywhere()))
    box = certificate_of(network, REGIONS["box"])
    refused(network, replace(box, region=lc.Box(CENTER - 0.1, CENTER + STEPS * (1.0 + 1e-6))))


def test_other_parts_than_the_one_that_was_bounded() -> None:
    network = mixed_network()
    whole = certificate_of(network)
    refused(network, replace(whole, part=Part((1, 4))), "about the whole network, not about its layers 1 to 4")
    one = lc.certify(network, REGIONS["ball"], lc.Scalar(), layers=(2, 4))
    refused(network, replace(one, part=Part((1, 4))))
    refused(network, replace(one, part=Part((0, 4))))
    refused(network, replace(one, part=Part((2, 9))), "no such part")
    small = lc.certify(network, REGIONS["ball"], lc.Scalar(), outputs=[0])
    refused(network, replace(small, part=Part((0, 4), None, (1,))))
    refused(network, replace(small, part=Part((0, 4), None, (7,))), "no such part")
    refused(network, replace(small, part=Part((0, 4))))


def test_hints_of_a_part_cannot_bring_a_region_of_their_own() -> None:
    """All layers have 3 inputs here, so that the input region would fit an inner layer, where it means nothing."""
    network = random_network(2, (3, 3, 3, 3, 2), "elu", gain=2.0)
    part = {"layers": (2, 4)}
    honest = lc.certify(network, lc.Ball(CENTER, 0.01), lc.Scalar(), **part)  # type: ignore[arg-type]
    alone = lc.certify(network.slice(2, 4), lc.Ball(CENTER, 0.01), lc.Scalar())
    forged = replace(honest, part_sweeps=alone.sweeps, bound=alone.bound)
    refused(network, forged, "must not enclose it")


def broken(sweep: Hints) -> dict[str, Hints]:
    """Hints that are nonsense in one way or another."""
    some, lines_ = sweep.multipliers, sweep.lines
    return {
        "a layer too few": replace(sweep, multipliers=some[:-1]),
        "a layer too many": replace(sweep, multipliers=(*some, some[-1]), exponents=(*sweep.exponents, 0)),
        "lines missing": replace(sweep, lines=()),
        "lines too many": replace(sweep, lines=(*lines_, lines_[0])),
        "wrong sizes": replace(sweep, multipliers=(some[1], *some[1:])),
        "wrong sizes of lines": replace(sweep, lines=((lines_[0][0], lines_[0][1][:-1]), *lines_[1:])),
        "lines that are no pairs": replace(sweep, lines=((lines_[0][0],), *lines_[1:])),  # type: ignore[arg-type]
        "exponents out of range": replace(sweep, exponents=(10**30, *sweep.exponents[1:])),
        "a negative depth": replace(sweep, enclosures=(Lipschitz(), Linear(depth=-3))),
        "matrices for vectors": replace(sweep, multipliers=(np.outer(some[0], some[0]), *some[1:])),
    }


def test_nonsensical_hints_are_refused() -> None:
    network = mixed_network()
    certificate = certificate_of(network)
    for name, sweep in broken(certificate.sweeps[0]).items():
        with pytest.raises(ProofFailed):
            raise AssertionError(f"{name} passed with {lc.verify(network, replace(certificate, sweeps=(sweep,)))}")
    refused(network, replace(certificate, sweeps=()), "no better than")


@pytest.fixture(scope="module")
def attained() -> tuple[Network, Certificate, float]:
    """A network, a bound, and what is at most the truth."""
    network = mixed_network()
    certificate = certificate_of(network)
    return network, certificate, lc.lower_bound(network, certificate.region).value


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -1.0, 0.0, 1e300, 1e-300, 5e-324])
def test_wild_numbers_in_hints_prove_nothing_false(value: float, attained: tuple[Network, Certificate, float]) -> None:
    """Any hints give a valid bound or none; a claim below the truth never passes, and nothing crashes."""
    network, certificate, truth = attained
    sweep = certificate.sweeps[0]
    for layer, what in itertools.product(range(3), ("multipliers", "lower", "upper", "exponents")):
        changed = sweep
        if what == "multipliers":
            wild = sweep.multipliers[layer].copy()
            wild[0] = value
            changed = replace(sweep, multipliers=_put(sweep.multipliers, layer, wild))
        elif what == "exponents":
            changed = replace(sweep, exponents=_put(sweep.exponents, layer, 900))
        else:
            pair = [side.copy() for side in sweep.lines[layer]]
            pair[what == "upper"][1] = value
            changed = replace(sweep, lines=_put(sweep.lines, layer, tuple(pair)))
        try:
            proved = proved_bound(network, certificate.region, (changed,))
        except ProofFailed:
            continue
        assert not proved < truth
        refused(network, replace(certificate, sweeps=(changed,), bound=0.999 * truth))


def _put(values: tuple[Any, ...], index: int, value: Any) -> Any:
    return (*values[:index], value, *values[index + 1 :])


def test_weights_that_the_error_bounds_are_not_for() -> None:
    certificate = certificate_of(network := mixed_network())
    first = network.layers[0]
    single = with_layer(network, 0, replace(first, linear=np.array(first.weight, dtype=np.float32)))
    kernel = Convolution(np.ones((1, 1, 2), dtype=np.float32), (3,), (1,), ((0, 0),), (1,))
    convolves = Network((Layer(kernel, np.zeros(2), None),))
    asks: list[tuple[Any, ...]] = [
        (proved_bound, single, certificate.region, certificate.sweeps),
        (proved_bound, single, certificate.region, ()),  # the product of norms, which may be 3e-8 too small
        (proved_bound, convolves, lc.Everywhere(), ()),
        (prove_symbols, convolves, Hints((), (), ())),
    ]
    for ask, *told in asks:
        with pytest.raises(ProofFailed, match="layer 1 must have weights and biases of float64"):
            ask(*told)
    twice = sparse.csr_array((np.ones(2), np.zeros(2, dtype=int), np.array([0, 2])), shape=(1, 3))
    doubled = Network((Layer(twice, np.zeros(1), Neurons.of("relu", 1)), Layer(np.ones((1, 1)), np.zeros(1), None)))
    with pytest.raises(ProofFailed, match="without repeated entries"):
        proved_bound(doubled, lc.Everywhere(), (Hints((), (np.ones(1),), (0,)),))


def narrower(honest: Callable[..., tuple[Array, Array]]) -> Callable[..., tuple[Array, Array]]:
    """The same function, its two ends moved together by 1e-6 of what is between them."""

    def ends(*given: Any) -> tuple[Array, Array]:
        lower, upper = honest(*given)
        return lower + 1e-6 * (upper - lower), upper - 1e-6 * (upper - lower)

    return ends


# Bugs planted in the checker: the oracle, which shares no code with it, disagrees.


def checker_slopes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sweep_module, "slope_bounds", narrower(relaxation.slope_bounds))


def checker_intervals(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BackSubstitution, "tightened", narrower(BackSubstitution.tightened))


def checker_lines(patch: pytest.MonkeyPatch) -> None:
    honest = relaxation._highest
    patch.setattr(relaxation, "_highest", lambda *given: honest(*given) - 1e-9)


def checker_radius(patch: pytest.MonkeyPatch) -> None:
    honest = Domain.extent
    patch.setattr(Domain, "extent", lambda domain, *start: honest(domain, *start) * (1.0 - 1e-9))


def checker_support(patch: pytest.MonkeyPatch) -> None:
    honest = Domain.support

    def less(domain: Domain, where: Array, rows: Array) -> tuple[Array, Array]:
        value, error = honest(domain, where, rows)
        return value, error * (1.0 - 1e-9)

    patch.setattr(Domain, "support", less)


def checker_congruence(patch: pytest.MonkeyPatch) -> None:
    """W P Wᵀ as it is computed, but for one part in a million."""
    image = importlib.import_module("lipcert.kernel.step")
    honest = near.congruence
    patch.setattr(image, "congruence", lambda *given: honest(*given) * (1.0 - 1e-6))


def checker_multipliers(patch: pytest.MonkeyPatch) -> None:
    honest = step_module._placed
    patch.setattr(step_module, "_placed", lambda *given: 0.9 * honest(*given))


CHECKER_BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "slopes narrowed by 1e-6": checker_slopes,
    "intervals shrunk by 1e-6": checker_intervals,
    "lines moved by 1e-9": checker_lines,
    "radius understated by 1e-9": checker_radius,
    "support understated by 1e-9": checker_support,
    "ellipsoids scaled by 1 - 1e-6": checker_congruence,
    "multipliers times 0.9": checker_multipliers,
}


def disagreements(count: int, enough: int) -> int:
    """How many of the oracle's random cases go against the checker, until that are enough."""
    found = 0
    for number in range(count):
        if found == enough:
            break
        network, region, method, enclosures = random_case(number)
        try:
            certificate = lc.certify(network, region, method, enclosures=enclosures)
            with precision(PRECISION):
                proved, S = compare(network, region, certificate.sweeps)
                found += not below(S, proved)
        except (AssertionError, ProofFailed):
            found += 1
    return found


@pytest.mark.parametrize("bug", CHECKER_BUGS)
def test_what_a_flawed_pass_claims_is_refused(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """verify() repeats the pass and believes nothing that is remembered of it."""
    network, region = random_network(5, (3, 6, 5, 4, 2), "elu", gain=2.0), lc.Ball(CENTER, 0.7)
    honest = lc.certify(network, region, lc.ClosedForm())
    lc.verify(network, honest)
    with monkeypatch.context() as patch:
        CHECKER_BUGS[bug](patch)
        flawed = lc.certify(network, region, lc.ClosedForm())
    assert flawed.bound < honest.bound
    refused(network, flawed, "hints prove no better than")


@pytest.mark.parametrize("bug", CHECKER_BUGS)
def test_bugs_of_the_checker_are_seen_by_the_oracle(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    CHECKER_BUGS[bug](monkeypatch)
    assert disagreements(24, enough=3) == 3
