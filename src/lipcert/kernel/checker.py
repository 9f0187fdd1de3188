"""Certificates: how they are issued, and how they are proved again from their hints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lipcert.errors import InvalidInput, ProofFailed
from lipcert.kernel.certificate import Certificate, LayerReport
from lipcert.kernel.cover import Cover, prove_tree
from lipcert.kernel.domain import Domain, check_region
from lipcert.kernel.fourier import by_channel, prove_symbols
from lipcert.kernel.guide import Guide
from lipcert.kernel.hints import Curved, Hints, Interval, Part
from lipcert.kernel.induced import start_gain
from lipcert.kernel.norm_bounds import norm_bounds
from lipcert.kernel.norm_product import norm_product
from lipcert.kernel.passes import recall
from lipcert.kernel.rounding import inflate, magnitude, matvec, norm_above
from lipcert.kernel.second_order_jacobian import prove_second_order_jacobian
from lipcert.kernel.sweep import Centers, Sweep, proving, stacked
from lipcert.kernel.tree import Tree
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.norms import PLAIN, Norms
from lipcert.model.regions import Region
from lipcert.suggest.replay import StoredGuide

ROOM = 1.0 + 2.0**-40
"""A certified bound is enlarged by this, so that another machine's rounding can confirm it."""

_FAR, _FLAT = 1000.0, 1e-2
"""Sizes of sums, and slopes of a layer, beyond which a bound could show how its stack rounds."""


def verify(network: Network, certificate: Certificate) -> float:
    """The bound of a certificate as its hints prove it now, or ProofFailed; nothing in it is believed."""
    if certificate.network != network.digest:
        raise ProofFailed(
            f"the certificate is about another network: its digest is {certificate.network[:12]}…, "
            f"this network's is {network.digest[:12]}…"
        )
    try:
        target, part = certificate.part.reduced(network)
        region = certificate.part.place(certificate.region)
    except InvalidInput as error:
        raise ProofFailed(f"the network has no such part: {error}") from None
    bound = prove(target, region, certificate.sweeps, part, certificate.part_sweeps)
    if certificate.tree is not None and certificate.sweeps and not certificate.part_sweeps:
        check_region(region, target.inputs)
        bound = min(bound, prove_tree(target, region, certificate.tree, certificate.sweeps, part.norms))
    bound = min(bound, _second_order(target, region, part, certificate.curved))
    if not bound <= certificate.bound:
        raise ProofFailed(f"the certificate claims {certificate.bound!r}, its hints prove no better than {bound!r}")
    return bound


def prove(
    network: Network,
    region: Region,
    sweeps: Sequence[Hints],
    part: Part | None = None,
    part_sweeps: Sequence[Hints] = (),
    remembered: bool = False,
) -> float:
    """The bound that hints prove, rounded up. With ``remembered``, what passes with these hints proved is not repeated.

    Without any, it is the product of norms. Hints with one multiplier per channel prove the global bound of a stack of
    convolutions. Both hold over every region. Otherwise each of ``sweeps`` is about the whole network and starts from
    the intervals of the ones before; ``part_sweeps`` are about the part, and take the intervals from there.
    """
    check_region(region, network.inputs)
    if not sweeps:
        if part_sweeps:
            raise ProofFailed("there are no multipliers to prove a bound from")
        return _product(network, Part((0, network.depth)) if part is None else part)
    whole = len(sweeps) == 1 and not part_sweeps and part in (None, Part((0, network.depth)))  # in plain norms
    if whole and by_channel(network, sweeps[0]):
        with proving():
            return prove_symbols(network, sweeps[0])
    part = Part((0, network.depth)) if part is None else part
    piece = _piece(network, part, bool(part_sweeps))
    norms = part.norms.bare
    if any(hints.enclosures for hints in part_sweeps):
        raise ProofFailed("the hints of a part must not enclose it: the region is one of the whole network's inputs")
    domain = Domain.of([region]) if region.bounded else None
    known: Sequence[Interval] = ()
    bound = np.inf
    with proving():
        for position, hints in enumerate(sweeps):
            last = position == len(sweeps) - 1 and not part_sweeps
            fact = recall(network, region, hints, sweeps[:position]) if remembered else None
            if fact is not None and (not last or (norms.plain and fact.norms.plain)):
                bound, known = fact.bound if last else bound, fact.intervals
                continue
            guide = StoredGuide(hints, network, region.bounded)
            sweep = Sweep(network, domain, guide, known, norms=norms if last else PLAIN).run(needs_bound=last)
            bound = min(bound, float(norm_bounds(sweep)[0])) if last else bound
            known = sweep.intervals
        for hints in part_sweeps:
            fact = recall(network, region, hints, sweeps, part) if remembered else None
            if fact is not None and fact.norms.plain:
                bound = min(bound, fact.bound)
                continue
            inner = Sweep(
                piece, domain, StoredGuide(hints, piece, region.bounded), part.known(known), norms=norms
            ).run()
            bound = min(bound, float(norm_bounds(inner)[0]))
    return bound


def _product(network: Network, part: Part) -> float:
    """The product of norms of a part, in its norms: ‖x‖₂ ≤ √n‖x‖_∞ at its inputs, ‖y‖₁ ≤ √n‖y‖₂ at its outputs."""
    piece, norms = _piece(network, part, True), part.norms.bare
    gain = start_gain(norms.input, None, piece.inputs)
    gain *= float(norm_above(np.ones(piece.outputs))) if norms.output.name == "l1" else 1.0
    with proving():
        return float(inflate(np.asarray(norm_product(piece) * gain), 2))


def issue(
    network: Network,
    region: Region,
    part: Part,
    sweeps: Sequence[Hints],
    part_sweeps: Sequence[Hints] = (),
    cover: Cover | None = None,
    layers: tuple[LayerReport, ...] = (),
    method: object = "",
    curved: Curved | None = None,
) -> Certificate:
    """A verified certificate for what hints, perhaps to second order, and perhaps a cover of the region, prove."""
    (target, inner), place = part.reduced(network), part.place(region)
    bound = prove(target, place, sweeps, inner, part_sweeps, remembered=True)
    if cover is not None:
        check_region(place, target.inputs)
        if part_sweeps:
            raise ProofFailed("the pieces are about the whole network, not about a part of it")
        bound = min(bound, cover.bound_of(target, place, inner.norms))
    bound = min(bound, _second_order(target, place, inner, curved))
    tree = None if cover is None else cover.tree()
    found = _certificate(network, region, part, bound, tuple(sweeps), tuple(part_sweeps), layers, method, tree)
    return replace(found, curved=curved)


def _second_order(network: Network, region: Region, part: Part, hints: Curved | None) -> float:
    """The bound that hints to second order prove of a whole network, and so of some inputs; infinite without them."""
    if hints is None:
        return np.inf
    check_region(region, network.inputs)
    if replace(part, inputs=None) != Part((0, network.depth)):
        raise ProofFailed(
            "hints to second order are about a whole network in ℓ2 norms; this certificate is about others"
        )
    with proving():
        return prove_second_order_jacobian(network, region, hints)


def issue_many(
    network: Network, regions: Sequence[Region], part: Part, guide: Guide, method: object
) -> list[Certificate | ProofFailed]:
    """Verified certificates for many regions, with a guide that is asked for multipliers; or why there is none."""
    for region in regions:
        check_region(region, network.inputs)
    target, inner = part.reduced(network)
    places = [part.place(region) for region in regions]
    origin = {id(place): region for region, place in zip(regions, places, strict=True)}
    norms = inner.norms.bare
    piece = None if inner.is_whole(target) else _piece(target, inner, True)
    covers = piece is not None and inner.layers == (0, target.depth) and inner.norms.plain  # of some inputs

    centers = Centers(target)

    def sweep(domain: Domain | None, some: Sequence[Region]) -> list[Certificate]:
        shared = None if len(some) == 1 else centers
        known: Sequence[Interval] = ()
        sweeps: list[Sweep] = []
        if piece is not None or not _suits(domain, norms):  # intervals first
            whole = Sweep(target, domain, guide, centers=shared).run()
            sweeps, known = [whole], whole.intervals
        if piece is not None:
            last = Sweep(piece, domain, guide, inner.known(known), enclose=False, norms=norms).run()
        else:
            last = Sweep(target, domain, guide, known, centers=shared, norms=norms, enclose=not sweeps).run()
        alone = _delicate(sweeps[0] if sweeps else last)
        found, bounds = [], norm_bounds(last, quick=True)
        for which, (place, bound) in enumerate(zip(some, bounds.tolist(), strict=True)):
            if domain is not None and alone[which]:
                found += sweep(domain.take(np.array([which])), [place])
                continue
            hints = tuple(one.hints(which) for one in (*sweeps, last))
            ends = (hints, ()) if piece is None else (hints[:-1], hints[-1:])
            if covers and sweeps[0].bounds[which] < bound:
                bound, ends = float(sweeps[0].bounds[which]), (hints[:-1], ())
            region = origin[id(place)]
            found.append(_certificate(network, region, part, bound, *ends, last.reports(which), method, None))
        return found

    return stacked(target, places, sweep)


def _suits(domain: Domain | None, norms: Norms) -> bool:
    """Whether one sweep does for intervals and bound: a start for cubes is of little use to other regions."""
    return domain is None or norms.input.name != "linf" or domain.radius is None


def _delicate(sweep: Sweep) -> Array:
    """Regions of a stack, (count,), whose bound might show that products and functions round differently in a stack.

    They are far from the origin, or a layer of theirs is so flat that its slopes are mostly rounding.
    """
    if sweep.count == 1 or sweep.domain is None:
        return np.zeros(sweep.count, dtype=bool)
    sizes = matvec(magnitude(sweep.network.layers[0].weight), sweep.domain.sizes()).max(axis=-1)
    steepest = [np.maximum(np.abs(alpha), np.abs(beta)).max(axis=-1) for alpha, beta in sweep.rough]
    flat = [(most > 0.0) & (most < _FLAT) for most in steepest]
    return np.logical_or.reduce([~(sizes < _FAR), *flat])


def _certificate(
    network: Network,
    region: Region,
    part: Part,
    bound: float,
    sweeps: tuple[Hints, ...],
    part_sweeps: tuple[Hints, ...],
    layers: tuple[LayerReport, ...],
    method: object,
    tree: Tree | None,
) -> Certificate:
    if not np.isfinite(bound):
        raise ProofFailed(f"{method} found no finite bound; try a smaller region or another method")
    return Certificate(
        ROOM * bound, method, region, network.digest, part, layers, sweeps, part_sweeps, 0.0, verified=True, tree=tree
    )


def _piece(network: Network, part: Part, has_hints: bool) -> Network:
    """The part of the network that a bound is about."""
    start, stop = part.layers
    if part.is_whole(network):
        return network
    if not has_hints and ((start, stop) != (0, network.depth) or part.norms.has_units):
        raise ProofFailed(f"the hints are about the whole network, not about its layers {start} to {stop}")
    try:
        return part.of(network)
    except InvalidInput as error:
        raise ProofFailed(f"the network has no such part: {error}") from None
