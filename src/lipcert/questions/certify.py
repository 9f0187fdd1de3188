"""Bound the Lipschitz constant over a region."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np

from lipcert import published
from lipcert.answers.certificate import Certificate
from lipcert.arguments.values import check_network
from lipcert.errors import Interrupted, InvalidInput, ProofFailed
from lipcert.kernel.checker import Proved, lipschitz_fact, lipschitz_facts
from lipcert.kernel.facts import Part
from lipcert.methods.fourier import FourierSearch
from lipcert.methods.greedy import ClosedForm, Diagonal, Scalar
from lipcert.methods.joint import Anytime, Joint
from lipcert.methods.lower import jacobian_norms
from lipcert.methods.method import Candidate, Greedy, Method, MethodGuide, Problem
from lipcert.methods.split import Auto, Split, affordable, can_cut
from lipcert.model.arrays import Array, indices
from lipcert.model.convolution import Convolution
from lipcert.model.network import Network
from lipcert.model.regions import Ball, Everywhere, Norm, Norms, Region, norm_in
from lipcert.published.base import Published
from lipcert.published.norms import Trivial
from lipcert.questions.stacks import delicate, stacked
from lipcert.runtime.clock import OutOfTime, Progress, checked_seconds, clock, timed
from lipcert.runtime.machine import NoRoom, require_memory, suited_to
from lipcert.suggest.hints import BOTH, Enclosure, Linear

_SMALL = 128
"""Nodes of a tree, and neurons of a layer, up to which it is proved again at once: a few hundredths of a second."""
_LOST = 1e-2
"""A note is made if the proved bound exceeds the bound of the search by more than this share."""
_WORTH = 1.0 + 1e-7
"""The product of norms replaces a bound that is larger by this factor; less is rounding."""
_NEAR = 0.1
"""The product of norms is tried if the bound exceeds this share of the product of the largest rows. With max pools and
skips the product of norms can be below that of the rows: 0.88 of it in the tests."""
_POINTS = 32
"""Points at which the Jacobian of the whole network is computed before its bound is tried for a part."""


PUBLISHED: Final[Mapping[str, Callable[[], Method]]] = {
    "trivial": published.Trivial,
    "seqlip": published.SeqLip,
    "aao": published.AAO,
    "lipdiff": published.LipDiff,
    "geolip": published.GeoLIP,
    "lipsdp-layer": lambda: published.LipSDP("layer"),
    "lipsdp-layer-split": lambda: published.LipSDP("layer", split=10),
    "lipsdp-neuron": lambda: published.LipSDP("neuron"),
    "lipsdp-neuron-split": lambda: published.LipSDP("neuron", split=10),
    "glipsdp": published.GLipSDP,
    "eclipse-fast": published.EclipseFast,
    "eclipse": published.Eclipse,
    "eclipse-gen-local-cf": lambda: published.EclipseGenLocal("CF"),
    "eclipse-gen-local-fast": lambda: published.EclipseGenLocal("Fast"),
    "eclipse-gen-local-acc": lambda: published.EclipseGenLocal("Acc"),
}
"""The methods of the literature."""

OWN: Final[Mapping[str, Callable[[], Method]]] = {
    "closed-form": ClosedForm,
    "scalar": Scalar,
    "diagonal": Diagonal,
    "joint": Joint,
    "auto": Auto,
    "split": Split,
}
"""The methods of lipcert."""

METHODS: Final = {**PUBLISHED, **OWN}


def certify(
    network: Network,
    region: Region | None = None,
    method: Method | str | None = None,
    *,
    inputs: Iterable[int] | None = None,
    outputs: Iterable[int] | None = None,
    layers: tuple[int, int] | None = None,
    input_norm: Norm | str | None = None,
    output_norm: Norm | str | None = None,
    enclosures: Sequence[Enclosure] = BOTH,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Certificate:
    """Bound the Lipschitz constant of a network over a region, in the ℓ2 norm or another.

    Parameters
    ----------
    network
        What :meth:`Network.from_weights` or an importer built.
    region
        A :class:`Ball` or :class:`Box`; default :class:`Everywhere`.
    method
        How multipliers are chosen: ``ClosedForm()``, ``Scalar()``, ``Diagonal()``, ``Joint()``; the default
        ``Auto()`` climbs that ladder while its time lasts. Or a name, as on the command line: ``"joint"``.
    inputs, outputs
        Coordinates at the two ends. Other inputs are held fixed, other outputs ignored. Default: all.
    layers
        (p, i): from z_p (p = 0: the input) to v_i. Default: the whole network.
    input_norm, output_norm
        ``L1()``, ``L2()`` or ``LInf()``, each with a ``scale`` where units differ: the norms in which changes at the
        two ends are measured. Default: ℓ2 without units.
    enclosures
        How pre-activations are bounded; the intersection counts.
    seconds
        Time limit; default: that of the method. ``Auto()``, ``Joint()`` and ``Split()`` keep to it, but always finish
        their first bound, that of ClosedForm.
    progress
        Called with short lines of text, as in ``progress=print``. Default: a line on the terminal.

    Raises
    ------
    ProofFailed
        If no bound could be proved.
    Interrupted
        On Ctrl-C during one of these methods: a KeyboardInterrupt whose ``best`` is the best certificate so far.

    Returns
    -------
    Certificate
        Its ``bound`` satisfies ‖f(x) - f(y)‖ ≤ bound·‖x - y‖ for all x, y of the region.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[1.0, 2.0], [0.0, 1.0]], [[1.0, -1.0]]], activation="relu")
    >>> round(lc.certify(net, lc.Ball([3.0, 3.0], 0.5)).bound, 6)
    1.414214
    >>> round(lc.certify(net, lc.Ball([3.0, 3.0], 0.5), input_norm=lc.LInf()).bound, 6)
    2.0
    """
    started = time.perf_counter()
    region = Everywhere() if region is None else region
    if method is None:
        method = Auto() if seconds is None else Auto(checked_seconds(seconds))
    region, method = question(network, region, method, enclosures)
    part = _part(network, inputs, outputs, layers, input_norm, output_norm)
    with timed(seconds, progress):
        try:
            (found,) = _answers(network, [region], method, part, tuple(enclosures))
        except Interrupted as interrupt:
            if isinstance(interrupt.best, Certificate):
                interrupt.best = replace(interrupt.best, seconds=time.perf_counter() - started)
            raise
    if isinstance(found, ProofFailed):
        raise found
    ends = part.layers[0] == 0, part.layers[1] == network.depth
    called = [names if end else () for names, end in zip(network.names, ends, strict=True)]
    return replace(found, seconds=time.perf_counter() - started, names=(called[0], called[1]))


def certify_many(
    network: Network,
    regions: Iterable[Region],
    method: Method | str | None = None,
    *,
    inputs: Iterable[int] | None = None,
    outputs: Iterable[int] | None = None,
    layers: tuple[int, int] | None = None,
    input_norm: Norm | str | None = None,
    output_norm: Norm | str | None = None,
    enclosures: Sequence[Enclosure] = BOTH,
) -> list[Certificate]:
    """Bound the Lipschitz constant over each of many regions, in a fraction of the time of single calls.

    Methods that choose multipliers layer by layer, such as ``ClosedForm()``, treat all regions in one pass. The
    certificates are those of :func:`certify`, up to rounding; ``seconds`` is the average time.

    Parameters
    ----------
    network, inputs, outputs, layers, input_norm, output_norm, enclosures
        As for :func:`certify`.
    regions
        Balls, boxes or all of space, in any order.
    method
        Default ``ClosedForm()``. Methods such as ``Joint()`` treat one region at a time and gain nothing here.

    Raises
    ------
    ProofFailed
        If there is no proof for one of the regions; the message says which.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[1.0, 2.0], [0.0, 1.0]], [[1.0, -1.0]]], activation="relu")
    >>> [round(c.bound, 6) for c in lc.certify_many(net, [lc.Ball([3.0, 3.0], r) for r in (0.1, 0.5)])]
    [1.414214, 1.414214]
    """
    started = time.perf_counter()
    chosen = ClosedForm() if method is None else method_of(method)
    if not isinstance(regions, (Region, Iterable)):
        raise InvalidInput(f"regions must be a list such as [Ball(center, radius), …], got {regions!r}")
    listed = [regions] if isinstance(regions, Region) else list(regions)
    several = [question(network, region, chosen, enclosures)[0] for region in listed]
    part = _part(network, inputs, outputs, layers, input_norm, output_norm)
    found = _answers(network, several, chosen, part, tuple(enclosures)) if several else []
    for number, answer in enumerate(found):
        if isinstance(answer, ProofFailed):
            raise ProofFailed(f"region {number}: {answer}")
    seconds = (time.perf_counter() - started) / max(len(several), 1)
    return [replace(answer, seconds=seconds) for answer in found if isinstance(answer, Certificate)]


def _answers(
    network: Network, regions: Sequence[Region], method: Method, part: Part, enclosures: tuple[Enclosure, ...]
) -> list[Certificate | ProofFailed]:
    """A certificate for each region, or why there is none."""
    if isinstance(method, Trivial):
        return [_product(network, region, method, part) for region in regions]
    target, inner = part.reduced(network)
    bounded = all(region.bounded for region in regions)
    global_ = inner == Part((0, target.depth)) and not any(region.bounded for region in regions)  # in plain norms
    spectral = FourierSearch.of(target, method) if global_ else None
    together = len(regions) > 1 or isinstance(method, ClosedForm)  # alone, other methods say what was repaired
    found: list[Certificate | ProofFailed] = []
    try:
        with suited_to(max(network.sizes) if spectral is None else spectral.widest), np.errstate(all="ignore"):
            if spectral is None and not bounded:  # slopes will be open; else that is known layer by layer
                for number, (layer, ahead) in enumerate(pairwise(network.layers), 1):
                    require_memory(layer.size, number, layer.size, ahead.size)
            if spectral is None and together and isinstance(method, Greedy):
                guide = MethodGuide(method.choose_all, enclosures)
                ask, alone = partial(lipschitz_facts, network, part=part, guide=guide), partial(delicate, network)
                facts = stacked(target, regions, ask, alone)
                found = [one if isinstance(one, ProofFailed) else Certificate.of(one, method) for one in facts]
            else:
                for region in regions:
                    try:
                        found.append(_searched(network, region, method, part, enclosures, spectral))
                    except ProofFailed as error:
                        found.append(error)
    except NoRoom as error:
        found = [error] * len(regions)
    if isinstance(method, Published):
        return found
    least = _NEAR * _rows_product(network, part)
    return [_or_product(network, *pair, method, part, least) for pair in zip(regions, found, strict=True)]


def _or_product(
    network: Network, region: Region, found: Certificate | ProofFailed, method: Method, part: Part, least: float
) -> Certificate | ProofFailed:
    """The certificate, or the product of norms if that is smaller or if memory does not suffice for more."""
    if isinstance(found, Certificate) and (not found.verified or found.bound < least):
        return found
    product = _product(network, region, method, part) if isinstance(found, (NoRoom, Certificate)) else found
    if isinstance(product, ProofFailed):
        return found
    if isinstance(found, Certificate):
        return replace(product, note=found.note) if product.bound < found.bound / _WORTH else found
    return replace(product, note=f"the product of norms, for all inputs: {found}")


def _product(network: Network, region: Region, method: Method, part: Part) -> Certificate | ProofFailed:
    """The product of norms. It exists for every network with finite slopes, for all inputs, and needs little memory."""
    try:
        with suited_to(max(network.sizes)):
            fact = lipschitz_fact(network, region, part, ())
            return replace(Certificate.of(Proved(fact, (), (), ()), method), found_by="Trivial")
    except ProofFailed as error:
        return error


def _rows_product(network: Network, part: Part) -> float:
    """The product of the largest row norms and steepest slopes: at most the product of norms of a plain chain.

    Infinite for a part of the inputs or outputs and in other norms, where the product of norms is never smaller.
    """
    if not part.norms.plain or part.inputs is not None or part.outputs is not None or network.coupled:
        return np.inf
    least = 1.0
    with np.errstate(all="ignore"):
        for layer in network.layers[slice(*part.layers)]:
            weight = layer.linear.kernel if isinstance(layer.linear, Convolution) else layer.linear
            rows = (weight * weight).sum(axis=tuple(range(1, weight.ndim)))
            least *= math.sqrt(float(rows.max()))
        for layer in network.layers[part.layers[0] : part.layers[1] - 1]:
            assert layer.neurons is not None
            least *= float(np.abs(layer.neurons.everywhere).max())
    return least


def _searched(
    network: Network,
    region: Region,
    method: Method,
    part: Part,
    enclosures: tuple[Enclosure, ...],
    spectral: FourierSearch | None,
) -> Certificate:
    """The certificate of a method that optimises all layers together."""
    target, inner = part.reduced(network)
    problem = Problem(target, part.place(region), enclosures)
    if inner.is_whole(target):
        problem = replace(problem, norms=inner.norms)
    issue = partial(issued, network, region, part, method)
    if spectral is not None:
        with timed(getattr(method, "seconds", None)):
            found = chain([spectral.start()], spectral.candidates(method))
            proved = partial(spectral.proved, issue=issue)
            return _best(((one, one) for one in found), lambda _, one: proved(one), part, method, reserve=True)
    if isinstance(method, Anytime):
        with timed(method.seconds):
            return _best(candidates(problem, inner, method), issue, part, method, reserve=not inner.norms.plain)
    if isinstance(method, Published):
        method.check(inner.norms)
    with explained(method):
        candidate = whole = method.solve(problem)
        if not inner.is_whole(target):
            candidate = method.solve(problem.restrict(inner, whole))
            if whole.bound < candidate.bound and is_bounded_by_whole(inner, problem):
                candidate = whole
    return issue(whole, candidate)


def is_bounded_by_whole(part: Part, problem: Problem) -> bool:
    """Whether a bound of the whole network also holds for the part: same ‖Δx‖, and ‖Δf‖ is no larger."""
    return part.layers == (0, problem.network.depth) and part.norms.plain


def candidates(problem: Problem, part: Part, method: Anytime) -> Iterator[tuple[Candidate, Candidate]]:
    """Pairs: a candidate of the whole network, which gives the intervals, and a candidate of the part.

    The first is that of ClosedForm. Both are the same if the part is the whole network, and where a bound of the whole
    network is tried for the part. Only whole networks are split. So a method that splits spends half of its time on the
    whole network, unless the Jacobian at some point shows that its bound would be too large.
    """
    whole, now = method.proposed(problem), clock()
    if part.is_whole(problem.network):
        yield whole, whole
        for found in method.candidates(problem, whole):
            yield found, found
        return
    piece = problem.restrict(part, whole)
    first = method.proposed(piece)
    yield whole, first
    least = first.bound
    cuts = is_bounded_by_whole(part, problem) and isinstance(method, (Auto, Split))
    cuts = cuts and can_cut(problem) and affordable(problem, 0.5)
    with now.sharing(0.5 * now.left if cuts else np.inf):
        for found in method.candidates(piece, first):
            yield whole, found
            least = min(least, found.bound)
    if not cuts:
        return
    region = problem.region if problem.region.bounded else Ball(np.zeros(problem.network.inputs), 1.0)
    points = region.sample(_POINTS, np.random.default_rng(0))
    if not jacobian_norms(problem.network, points).max() >= least:
        for found in method.candidates(problem, whole):
            yield found, found


def _best(
    pairs: Iterator[tuple[Candidate, Candidate]],
    issue: Callable[[Candidate, Candidate], Certificate],
    part: Part,
    method: Method,
    reserve: bool,
) -> Certificate:
    """The best certificate of candidates, of the whole network and of the part; the first is there in any case.

    With ``reserve``, time is kept for a pass at the end; without, all that is found is proved already.
    """
    now, started = clock(), time.perf_counter()
    best: Certificate | None = None
    interrupt: KeyboardInterrupt | None = None
    failure = ProofFailed(f"{method} found no finite bound; try a smaller region or another method")
    kept: list[tuple[Candidate, Candidate]] = []
    try:
        with explained(method):
            first = next(pairs)
            with suppress(ProofFailed):  # a better method may have a finite bound
                best = issue(*first)
            now.sweep = time.perf_counter() - started
            with now.keeping(now.sweep if reserve else 0.0):
                kept.extend(pairs)
    except OutOfTime:
        now.say("time is up")
    except ProofFailed as error:
        failure = error
    except KeyboardInterrupt as error:
        interrupt = error
    several = sorted(kept, key=lambda pair: pair[1].bound)
    for whole, candidate in several:
        try:
            if best is None or candidate.bound < best.bound:
                proved = issue(whole, candidate)
                best = proved if best is None or proved.bound < best.bound else best
        except ProofFailed as error:
            failure = error
        except KeyboardInterrupt as error:  # a second interrupt: skip the proof
            interrupt = error
            break
    if interrupt is not None:
        raise Interrupted(best) from interrupt
    if best is None:
        raise failure
    if not several:
        return best
    return _frank(replace(best, witness=_witness(several[0][1], part, best.witness)), several[0][1])


def _frank(proved: Certificate, found: Candidate) -> Certificate:
    """The certificate, with a note if the search found a clearly smaller bound that could not be proved."""
    if not proved.bound > (1.0 + _LOST) * found.bound:
        return proved
    lost = f"the search found {found.bound:.4g} ({found.found_by}), which could not be proved"
    return replace(proved, note="; ".join(filter(None, (proved.note, lost))))


@contextmanager
def explained(method: Method) -> Iterator[None]:
    """Turn a failed factorisation into ProofFailed."""
    try:
        yield
    except np.linalg.LinAlgError as error:
        raise ProofFailed(f"{method} found no bound: {error}; weights may be too large or ill-scaled") from error


def issued(
    network: Network, region: Region, part: Part, method: Method, whole: Candidate, candidate: Candidate
) -> Certificate:
    """The certificate of a candidate; ``whole`` gives the intervals of the whole network if it is about a part."""
    rest = () if candidate is whole else candidate.sweeps
    if whole.sweeps:
        cover, curved = candidate.cover, candidate.curved
        fact = lipschitz_fact(network, region, part, whole.sweeps, rest, cover, curved)
        tree = None if cover is None else cover.tree()
        if tree is not None and len(tree.layer) <= _SMALL and max(network.sizes) <= _SMALL:
            with suppress(ProofFailed):  # where terms cancel, pieces in other batches may round to another bound
                again = lipschitz_fact(network, region, part, whole.sweeps, rest, tree, curved)
                fact = max(fact, again, key=lambda one: one.bound)
        found = Certificate.of(Proved(fact, whole.sweeps, rest, candidate.layers), method)
        found = replace(found, tree=tree, curved=curved)
    elif np.isfinite(candidate.bound):  # a method of the literature without multipliers
        found = Certificate(candidate.bound, method, region, network.digest, part, (), (), (), 0.0)
    else:
        raise ProofFailed(f"{method} found no finite bound; try a smaller region or another method")
    origin_name, note = candidate.found_by or type(method).__name__, "; ".join(candidate.notes)
    return replace(found, witness=_witness(candidate, part), found_by=origin_name, note=note)


def _witness(candidate: Candidate, part: Part, otherwise: Array | None = None) -> Array | None:
    """The witness of a candidate, in the units of the network."""
    if candidate.witness is None:
        return otherwise
    if part.inputs is not None or part.layers[0]:  # then no units were changed
        return candidate.witness
    units = part.norms.input.units(len(candidate.witness))
    return candidate.witness if units is None else candidate.witness * units


def method_of(method: Any, argument: str = "method") -> Method:
    """A method: the value itself, or the method of that name with default options. Case and dashes do not matter.

    Examples
    --------
    >>> method_of("closed-form"), method_of("ClosedForm")
    (ClosedForm(), ClosedForm())
    """
    if isinstance(method, Method):
        return method
    if isinstance(method, str):
        known = {_squeezed(key): make for key, make in METHODS.items()}
        if _squeezed(method) in known:
            return known[_squeezed(method)]()
        raise InvalidInput(f"{argument}: {method!r} is unknown; known are {', '.join(METHODS)}")
    if isinstance(method, type) and issubclass(method, Method):
        raise InvalidInput(f"{argument} must be a value, not a class; write {method.__name__}()")
    raise InvalidInput(f"{argument} must be a value such as Scalar(), or a name such as 'scalar'; got {method!r}")


def _squeezed(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())


def _check_enclosure(enclosure: Enclosure) -> None:
    """An error if an option makes no sense."""
    if not isinstance(enclosure, Linear):
        return
    depth, tilt = enclosure.depth, enclosure.tilt
    if depth is not None and (not isinstance(depth, (int, np.integer)) or depth < 0):
        raise InvalidInput(f"depth must be a whole number of at least 0 or None, got {depth!r}")
    if not isinstance(tilt, (int, float, np.floating)) or not 0.0 <= tilt <= 1.0:
        raise InvalidInput(f"tilt must be from 0 to 1, got {tilt!r}")


def question(
    network: Network, region: Region, method: Method | str, enclosures: Sequence[Enclosure] = BOTH
) -> tuple[Region, Method]:
    """Check the arguments; return the region with the network's number of inputs, and the method."""
    check_network(network)
    if not isinstance(region, Region):
        raise InvalidInput(f"region must be a Ball, Box or Everywhere, got {type(region).__name__}")
    chosen = method_of(method)
    if isinstance(enclosures, Enclosure) or not isinstance(enclosures, Sequence):
        raise InvalidInput(f"enclosures must be a list such as [Lipschitz()], got {enclosures!r}")
    if not enclosures:
        raise InvalidInput("enclosures is empty; give at least one, such as Lipschitz()")
    for enclosure in enclosures:
        if not isinstance(enclosure, Enclosure):
            raise InvalidInput(f"enclosures must be values such as Lipschitz(), got {enclosure!r}")
        _check_enclosure(enclosure)
    fitted = region.fitted(network)
    fitted.check(network.inputs)
    for number, layer in enumerate(network.layers, 1):
        for row, _ in layer.plain.groups if layer.plain and not fitted.bounded else ():
            if not np.isfinite(row.slope(np.array([[-np.inf], [np.inf]]))).all():
                what = f"activation {row.name!r} of layer {number} has slopes without end"
                raise InvalidInput(f"region must be bounded: {what}; give a Ball or a Box")
    return fitted, chosen


def _part(
    network: Network,
    inputs: Iterable[int] | None,
    outputs: Iterable[int] | None,
    layers: tuple[int, int] | None,
    input_norm: Norm | str | None,
    output_norm: Norm | str | None,
) -> Part:
    ends_at = (0, network.depth) if layers is None else layers
    whole = np.shape(ends_at) == (2,) and np.asarray(ends_at).dtype.kind in "iu"
    if not whole or not 0 <= ends_at[0] < ends_at[1] <= network.depth:
        raise InvalidInput(f"layers must be (p, i) with 0 <= p < i <= {network.depth}, got {layers}")
    start, stop = ends_at
    into = None if inputs is None else tuple(indices("inputs", inputs, network.layers[start].linear.shape[1]).tolist())
    out = None if outputs is None else tuple(indices("outputs", outputs, network.sizes[stop]).tolist())
    norms = Norms(norm_in("input_norm", input_norm), norm_in("output_norm", output_norm))
    part = Part((start, stop), into, out, norms)
    part.check(network)
    if norms.has_units:
        part.of(network)  # checks units and shapes
    return part
