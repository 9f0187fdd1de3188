"""Lipschitz facts: the bounds that hints prove. Making a certificate and checking one is the same function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lipcert.errors import InvalidInput, ProofFailed
from lipcert.kernel.arithmetic import inflate
from lipcert.kernel.branch_and_bound import Cover, PieceBounds, has_taylor, leaf_values
from lipcert.kernel.domain import check_region
from lipcert.kernel.facts import LipschitzFact, Part
from lipcert.kernel.fourier import by_channel, prove_symbols
from lipcert.kernel.jacobian import norm_bounds
from lipcert.kernel.norm_product import norm_product
from lipcert.kernel.norms import spectral_factor
from lipcert.kernel.second_order_jacobian import prove_second_order_jacobian
from lipcert.kernel.sweep import Sweep, ask, passed, proving, stack_of
from lipcert.model.arrays import Interval
from lipcert.model.convolution import Convolution
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.suggest.hints import Curved, Guide, Hints, LayerReport, Linear, StoredGuide, Tree, layer_reports


@dataclass(frozen=True, eq=False)
class Proved:
    """A fact with the hints that prove it again, and what the last pass saw of the layers."""

    fact: LipschitzFact
    sweeps: tuple[Hints, ...]
    part_sweeps: tuple[Hints, ...]
    layers: tuple[LayerReport, ...]


def lipschitz_fact(
    network: Network,
    region: Region,
    part: Part,
    sweeps: Sequence[Hints],
    part_sweeps: Sequence[Hints] = (),
    pieces: Cover | Tree | None = None,
    curved: Curved | None = None,
) -> LipschitzFact:
    """The least bound that hints, and pieces of the region, prove for a part of a network; no hint is believed.

    Without ``sweeps`` it is the product of norms. Hints with one multiplier per channel prove the global bound of a
    stack of convolutions. Otherwise each of ``sweeps`` is about the whole network and starts from the intervals of the
    ones before; ``part_sweeps`` are about the part, and take the intervals from there. A :class:`Pass` is not repeated.
    """
    try:
        (target, inner), place = part.reduced(network), part.place(region)
        check_region(place, target.inputs)
        with proving():
            bound = _by_sweeps(target, place, inner, sweeps, part_sweeps)
    except InvalidInput as error:
        raise ProofFailed(f"the network has no such part: {error}") from None
    with proving():
        if pieces is not None:
            if part_sweeps or not sweeps:
                raise ProofFailed("the pieces are about the whole network, and need multipliers")
            leaves = leaf_values(PieceBounds, pieces, target, place, sweeps, inner.norms)
            bound = min(bound, float(leaves.max(initial=0.0)))
        if curved is not None:
            if replace(inner, inputs=None) != Part((0, target.depth)):
                raise ProofFailed("hints to second order are about a whole network in ℓ2 norms")
            bound = min(bound, prove_second_order_jacobian(target, place, curved))  # of all inputs, and so of some
    rules = rules_of(target, region, [*sweeps, *part_sweeps], pieces is not None)
    rules |= {name for name, used in (("norms", not part.norms.plain), ("second order", curved is not None)) if used}
    return _fact(network, region, part, bound, rules)


def rules_of(network: Network, region: Region, sweeps: Sequence[Hints], by_pieces: bool) -> frozenset[str]:
    """The rules that passes with these hints, and pieces, make use of."""
    linear = any(isinstance(enclosure, Linear) for hints in sweeps for enclosure in hints.enclosures)
    convolves = any(isinstance(layer.linear, Convolution) for layer in network.layers)
    asked = {
        "step": bool(sweeps),
        "back-substitution": by_pieces or (linear and region.bounded),
        "product of norms": not sweeps,
        "fourier": convolves and (not sweeps or any(by_channel(network, hints) for hints in sweeps)),
        "branch and bound": by_pieces,
        "taylor": by_pieces and has_taylor(network),
    }
    return frozenset(name for name, used in asked.items() if used)


def _fact(network: Network, region: Region, part: Part, bound: float, rules: frozenset[str]) -> LipschitzFact:
    if not np.isfinite(bound):
        raise ProofFailed("no finite bound was found; try a smaller region or another method")
    return LipschitzFact(network.digest, region, rules, part, float(bound))


def _by_sweeps(
    network: Network,
    region: Region,
    part: Part,
    sweeps: Sequence[Hints],
    part_sweeps: Sequence[Hints],
) -> float:
    if sweeps and not part_sweeps and (part.layers != (0, network.depth) or part.norms.has_units):
        start, stop = part.layers
        raise ProofFailed(f"the hints are about the whole network, not about its layers {start} to {stop}")
    piece, norms = part.of(network), part.norms.bare
    if not sweeps:
        if part_sweeps:
            raise ProofFailed("there are no multipliers to prove a bound from")
        gain = spectral_factor(norms, piece.outputs, piece.inputs)
        return float(inflate(np.asarray(norm_product(piece) * gain), 2))
    whole = Part((0, network.depth))
    convolves = part == whole and network.layers[0].convolution is not None
    if convolves and len(sweeps) == 1 and not part_sweeps and by_channel(network, sweeps[0]):
        return prove_symbols(network, sweeps[0])
    if any(hints.enclosures for hints in part_sweeps):
        raise ProofFailed("the hints of a part must not enclose it: the region is one of the whole network's inputs")
    before, last = (sweeps, part_sweeps) if part_sweeps else (sweeps[:-1], sweeps[-1:])
    own, bounds = part if part_sweeps else None, []
    for hints in last:
        done = passed(network, region, hints, before, own)
        if done is None or not (norms.plain and done.norms.plain):
            guide = StoredGuide(hints, piece if part_sweeps else network, region.bounded)
            bounds.append(norm_bounds(ask(network, region, guide, tuple(before), own, norms)[0])[0])
        else:
            bounds.append(done.bound)
    return float(np.min(bounds))


def lipschitz_facts(network: Network, regions: Sequence[Region], part: Part, guide: Guide) -> list[Proved]:
    """Facts for regions of one kind, with a guide that is asked for multipliers."""
    target, inner = part.reduced(network)
    domain, norms = stack_of([part.place(region) for region in regions], target.inputs), inner.norms.bare
    whole = inner.is_whole(target)
    covers = not whole and inner.layers == (0, target.depth) and inner.norms.plain  # of some inputs
    sweeps, known = list[Sweep](), list[Interval]()
    with proving():
        # intervals first; a start for cubes is of little use to other regions
        if not whole or (domain is not None and norms.input.name == "linf" and domain.radius is not None):
            sweeps = [Sweep(target, domain, guide).run()]
            known = sweeps[0].intervals
        last = Sweep(inner.of(target), domain, guide, inner.known(known), enclose=not sweeps, norms=norms).run()
        found, bounds = [], norm_bounds(last)
    for which, (region, bound) in enumerate(zip(regions, bounds.tolist(), strict=True)):
        hints = tuple(one.hints(which) for one in (*sweeps, last))
        ends = (hints, ()) if whole else (hints[:-1], hints[-1:])
        if covers and sweeps[0].bounds[which] < bound:
            bound, ends = float(sweeps[0].bounds[which]), (hints[:-1], ())
        rules = rules_of(target, region, hints, False) | ({"norms"} if not part.norms.plain else set())
        found.append(Proved(_fact(network, region, part, bound, rules), *ends, layer_reports(last, which)))
    return found
