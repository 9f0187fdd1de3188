"""Lower bounds, and the points and directions where they are attained.

The largest Jacobian norm that a search finds is proved at the point where it was found. Norms between ℓ1, ℓ2 and ℓ∞ are
found in floating point, with the directions that attain them. On a piece where the network is affine, the bound is
attained at any of its points, if it has one.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from lipcert.answers.certificate import Certificate
from lipcert.arguments.values import check_network
from lipcert.errors import InvalidInput
from lipcert.kernel.branch_and_bound import Bounding, Pieces
from lipcert.kernel.enclosures import at_kink, stretch_below
from lipcert.kernel.facts import Part
from lipcert.kernel.norms import length_above
from lipcert.methods.half_spaces import Cell
from lipcert.model.activations import STRAIGHT, Activation
from lipcert.model.arrays import Array, dense, times
from lipcert.model.network import Layer, Network
from lipcert.model.regions import PLAIN, Ball, Norm, Norms, Region, norm_in
from lipcert.runtime.clock import Progress, clock, timed
from lipcert.runtime.machine import suited_to

_MOST = 10_000_000
"""Most points that a caller may ask for."""
_STEP, _STEPS = 8, 8
"""Points that one step of one climb evaluates, about, and steps for which there should be time."""
_KINKS, _POOL = 40, 16
"""Kinks crossed from one point, and points that are kept for each that climbs."""
_BEYOND = 1e-3
"""How far beyond a kink to go, relative to the distance to it."""
_LEAST = 1e-9
"""The distance to a kink is at least this, relative to the pre-activation: nearer points may be on either side."""
_ENTRIES = 4_000_000
"""Numbers in the derivatives of all pre-activations that are held at once: 32 MB."""
_TABLE = 4000
"""Inputs times neurons up to which a linear program for a cell is quick, about 1 ms."""
_INWARD = 1e-7
"""How far inside its interval, in units of the region's radius times the row, a neuron is asked to be."""
_DUAL = {"maxfun": 300, "ftol": 1e-15, "gtol": 1e-12}
_CORNERS, _ROUNDS = 8, 10
"""Up to so many coordinates all sign vectors are tried, at most 128; beyond, so many rounds of ascent."""


@dataclass(frozen=True, eq=False)
class LowerBound:
    """``value`` is at most the norm of the Jacobian at ``point``, in real arithmetic, between these norms.

    The point belongs to the region, so the Lipschitz constant there is at least ``value``. If the region is a point or
    a flat box, the constant is that of every neighbourhood of it.
    """

    value: float
    point: Array
    norms: Norms = PLAIN


def lower_bound(
    network: Network,
    region: Region,
    *,
    input_norm: Norm | str | None = None,
    output_norm: Norm | str | None = None,
    points: Any = None,
    samples: int = 1000,
    steps: int = 40,
    starts: int = 16,
    seed: int = 0,
    seconds: float | None = 5.0,
    progress: Progress | None = None,
) -> LowerBound:
    """The largest norm of the Jacobian found in a region: the spectral norm, or that between other norms.

    The centre and random points come first; the best of them then climb. The gradient of σmax(J) is
    a difference quotient over a shrinking window, so that the search sees kinks. Networks with
    kinks are then searched from the best points by crossing the kinks around them.

    Parameters
    ----------
    network, region
        In all of space random points lie at distances of all sizes, around that of the kinks of the first layer.
    input_norm, output_norm
        As for :func:`certify`.
    points
        Inputs of the region to try as well, (count, inputs): such as the ``witness`` of a certificate.
    samples, starts, steps
        How many points to try, how many of them climb, and for how long.
    seed
        Of the random points; the result is reproducible where time does not run out.
    seconds
        How long it may take; half of it for random points. None is no limit.
    progress
        Called with short lines that say how far the search is.
    """
    check_network(network)
    if not isinstance(region, Region):
        raise InvalidInput(f"region must be a Ball, Box or Everywhere, got {type(region).__name__}")
    region = region.fitted(network)
    region.check(network.inputs)
    for name, count in (("samples", samples), ("starts", starts), ("steps", steps), ("seed", seed)):
        if not isinstance(count, (int, np.integer)) or not 0 <= count <= _MOST:
            raise InvalidInput(f"{name} must be a whole number from 0 to {_MOST}, got {str(count)[:20]}")
    part = Part((0, network.depth), norms=Norms(norm_in("input_norm", input_norm), norm_in("output_norm", output_norm)))
    part.check(network)
    search = _Search(network, region, part.norms, np.random.default_rng(seed))
    with timed(seconds, progress) as now, suited_to(max(network.sizes)), np.errstate(over="ignore", invalid="ignore"):
        given = np.zeros((0, network.inputs)) if points is None else network.point("points", points)
        given = given.reshape(-1, network.inputs)
        tried = np.concatenate([region.project(given), _scattered(network, region, samples, search.rng)])
        tried = tried[np.isfinite(tried).all(axis=1)]  # samples of a huge region may overflow
        began = time.perf_counter()
        with now.keeping(0.5 * now.left if np.isfinite(now.left) else 0.0):
            norms = search.norms(tried, hurry=True)
        each = (time.perf_counter() - began) / max(len(norms), 1)  # seconds that one point takes
        order = np.argsort(norms)[::-1]
        trail = [(norms[k], tried[k]) for k in order[:3]]
        few = now.left / (_STEPS * _STEP * max(each, 1e-9))
        z = tried[order[: starts if few >= starts else max(int(few), min(starts, 1))]]
        for step in range(steps if len(z) else 0):
            if not now.allows(_STEP * len(z) * each):
                break
            now.say(f"lower bound {trail[-1][0]:.4g}, step {step + 1} of {steps}")
            z = search.climb(z, 0.5 * 0.85**step)
            found = search.norms(z)
            leader = int(np.argmax(found))
            if found[leader] > trail[-1][0]:
                trail.append((found[leader], z[leader]))
        if len(z) and has_kinks(network) and now.allows(2 * _POOL * len(z) * each):
            pool = np.concatenate([z, tried[order[: _POOL * len(z)]]])
            trail += search.cross_best(pool, 2 * starts, steps)
        quick = network.inputs * sum(network.sizes[1:-1]) <= _TABLE
        if trail and quick and not region.bounded and has_kinks(network) and is_straight(network):
            trail.append(search.cross_cells(max(trail, key=lambda found: found[0])[1], steps * starts))
        return search.proved(trail)


def lower_bound_of(network: Network, certificate: Certificate, seconds: float | None = 5.0) -> LowerBound | None:
    """A lower bound of the constant that a certificate bounds; None for parts that do not begin at all the inputs.

    The certificate's witness is tried too, so the answer is not below what the search for the bound has met.
    """
    part = certificate.part
    if part.layers[0] or part.inputs is not None:
        return None
    target, witness = network.slice(*part.layers).select(outputs=part.outputs), certificate.witness
    known = witness if witness is not None and witness.shape == (network.inputs,) else None  # a file may say anything
    ends = {"input_norm": part.norms.input, "output_norm": part.norms.output}
    return lower_bound(target, certificate.region, points=known, seconds=seconds, **ends)  # type: ignore[arg-type]


def _middle(network: Network, region: Region) -> Array:
    """The centre of the region; the origin if the region is everywhere."""
    return region.center if region.bounded else np.zeros(network.inputs)


def _scattered(network: Network, region: Region, count: int, rng: np.random.Generator) -> Array:
    """The middle of the region and random points of it, (1 + count, inputs)."""
    middle = _middle(network, region)
    if region.bounded:
        return np.concatenate([middle[None], region.sample(count, rng)])
    first = network.layers[0]
    with np.errstate(divide="ignore"):
        distances = np.abs(first.bias) / np.linalg.norm(dense(first.weight), axis=1)
    usable = distances[np.isfinite(distances) & (distances > 0.0)]
    size = (float(np.median(usable)) if usable.size else 1.0) * 10.0 ** rng.uniform(-1.5, 1.5, (count, 1))
    return np.concatenate([middle[None], size * rng.standard_normal((count, network.inputs))])


def _inside(region: Region, point: Array) -> Array:
    """The point, moved towards the centre until it provably belongs to the region in spite of rounding."""
    if not isinstance(region, Ball):
        return region.project(point)
    offset = point - region.center
    for shortfall in (0.0, 2.0**-48, 2.0**-44, 2.0**-36, 2.0**-20):
        x = region.project(region.center + (1.0 - shortfall) * offset) if shortfall else point
        if length_above(x - region.center, region.norm) * (1.0 + 2.0**-49) <= region.radius and (
            region.clip is None or region.clip.contains(x)  # the difference loses a unit u
        ):
            return x
    return region.center


def jacobian_norms(network: Network, points: Array, norms: Norms = PLAIN, hurry: bool = False) -> Array:
    """The norm of the Jacobian at each point, or a little less; zero at a kink, or where it is too large for floats.

    hurry=True: only as many of the first points as there is time for, but at least one chunk.
    """
    values: list[Array] = [np.zeros(0)]
    for part in np.array_split(points, max(1, len(points) * max(network.sizes) // 30_000)):
        if not len(part) or (hurry and len(values) > 1 and clock().left < 0.0):
            break
        right, left = network.jacobian(part), network.jacobian(part, side=-1)
        clear = ((right == left) & np.isfinite(right)).reshape(len(part), -1).all(axis=1)
        right = np.where(clear[:, None, None], right, 0.0)
        plain = norms.plain
        values.append(np.linalg.norm(right, ord=2, axis=(-2, -1)) if plain else steepest(right, norms)[0])
    return np.concatenate(values)


@dataclass(frozen=True, eq=False)
class _Search:
    """A search for points of a region with a large norm of the Jacobian."""

    network: Network
    region: Region
    ends: Norms
    rng: np.random.Generator

    def norms(self, points: Array, hurry: bool = False) -> Array:
        return jacobian_norms(self.network, points, self.ends, hurry)

    def climb(self, z: Array, window: float) -> Array:
        """One step from each point: the best of several lengths along the smoothed gradient and of a random move."""
        region = self.region
        far = float(region.extent) if region.bounded else 1.0 + np.abs(z).max(axis=1, keepdims=True)
        reach = window * far * np.ones((len(z), 1))
        gradient = _ascent(self.network, z, reach, self.ends)
        length = np.linalg.norm(gradient, axis=-1, keepdims=True)
        direction = np.divide(gradient, length, out=np.zeros_like(gradient), where=length > 0)
        noise = self.rng.standard_normal(z.shape)
        noise /= np.linalg.norm(noise, axis=-1, keepdims=True)
        moves = [1.0 * direction, 0.3 * direction, 0.1 * direction, 0.3 * noise]
        trials = np.stack([z, *(region.project(z + reach * move) for move in moves)])  # (moves, starts, inputs)
        trials = np.where(np.isfinite(trials), trials, z)  # from the edge of what floats can hold
        norms = self.norms(trials.reshape(-1, z.shape[-1])).reshape(trials.shape[:2])
        return np.asarray(trials[np.argmax(norms, axis=0), np.arange(len(z))])

    def cross_best(self, points: Array, count: int, rounds: int) -> list[tuple[float, Array]]:
        """The best points found by crossing kinks repeatedly: from the best not yet crossed from, and from others.

        The others are spread over the pool, so that the search does not end around one point.
        """
        now, norms, crossed = clock(), self.norms(points), np.zeros(len(points), dtype=bool)
        order = np.argsort(-norms)
        points, norms = points[order], norms[order]
        for number in range(rounds):
            begin = np.flatnonzero(~crossed)
            begin = np.union1d(begin[:count], begin[:: max(1, len(begin) // count)][:count])
            if not begin.size or now.left < 0.0:
                break
            now.say(f"lower bound {norms.max():.4g}, kinks, round {number + 1} of {rounds}")
            crossed[begin] = True
            new, _ = cross_kinks(self.network, self.region, points[begin], _KINKS, self.ends)
            found = self.norms(new, hurry=True)
            points, norms = np.concatenate([points, new[: len(found)]]), np.concatenate([norms, found])
            crossed = np.concatenate([crossed, np.zeros(len(found), dtype=bool)])
            level = np.round(-norms / max(float(norms.max()), 1e-300), 9)
            _, first = np.unique(level, return_index=True)  # one point a linear piece will do
            best = first[: _POOL * count]
            points, norms, crossed = points[best], norms[best], crossed[best]
        return [(norms[k], points[k]) for k in np.argsort(-norms)[:3]]

    def cross_cells(self, start: Array, tries: int) -> tuple[float, Array]:
        """The best point met on the way from cell to cell of all of space, across one kink at a time.

        On the other side of a kink of neuron j the Jacobian is J + jump·b_j A_j, b_j and A_j as in :func:`cross_kinks`.
        Of all sides known so far that with the largest norm is next, if a point can be found there.
        """
        network, now, best = self.network, clock(), (0.0, start)
        seen, heap = set[bytes](), list[tuple[float, int, int, int, float, list[Array]]]()
        new: Array | None = start
        for number in range(tries):
            if new is not None:
                values, slopes, back, ahead = _jacobians(network, new)
                best = max(best, (float(self.norms(new[None])[0]), new), key=lambda found: found[0])
                if (name := np.concatenate(slopes).tobytes()) not in seen:
                    seen.add(name)
                    J = (back[0] * slopes[0]) @ ahead[0]
                    for index, layer in enumerate(network.layers[:-1]):
                        assert layer.neurons is not None
                        gap, jump = layer.neurons.gather(_nearest, values[index])
                        some = np.flatnonzero(np.isfinite(gap) & (jump != 0.0))
                        rise = jump[some, None, None] * back[index].T[some, :, None] * ahead[index][some, None, :]
                        for j, norm in zip(some.tolist(), steepest(J + rise, self.ends)[0].tolist(), strict=True):
                            heapq.heappush(heap, (-norm, number, index, j, float(gap[j]), values))
            if not heap or now.left < 0.0:
                break
            *_, index, j, step, values = heapq.heappop(heap)
            v = [np.array(one) for one in values]
            v[index][j] += step + np.copysign(_LEAST, step) * (1.0 + abs(v[index][j]))
            new = Cell(network, [_sides(layer, one) for layer, one in zip(network.layers, v, strict=False)]).inside()
        return best

    def proved(self, trail: list[tuple[float, Array]]) -> LowerBound:
        """The best of the points met, by the norm proved there; near a kink that may be less than the search found."""
        norms = self.ends
        best = LowerBound(0.0, _middle(self.network, self.region), norms)
        for norm, point in sorted(trail, key=lambda found: -found[0])[:6]:
            if norm <= best.value:
                break
            x = _inside(self.region, point)
            *_, direction = steepest(self.network.jacobian(x[None]), norms)
            value = stretch_below(self.network, x, direction[0], norms)
            best = max(best, LowerBound(value, x, norms), key=lambda found: found.value)
            if best.value > 0.999 * norm:
                break
        return best


def _derivatives(network: Network, z: Array, norms: Norms) -> tuple[list[Array], list[Array], list[Array], Array]:
    """The pre-activations v, slopes, and derivatives of u·f by the neurons' values, layer by layer; and the input w.

    u and w are the directions in which the Jacobian J is largest, ‖J‖ = uᵀJw.
    """
    values, hidden = network.preactivations(z), network.layers[:-1]
    slopes = [layer.neurons.slope(v) for layer, v in zip(hidden, values) if layer.neurons]
    _, u, w = steepest(network.jacobian_of(slopes, z.shape[:-1]), norms)
    back = [u @ network.layers[-1].weight]
    for layer, slope in zip(hidden[:0:-1], slopes[:0:-1], strict=True):
        back.append((back[-1] * slope) @ layer.weight)
    return values, slopes, back[::-1], w


def _jacobians(network: Network, x: Array) -> tuple[list[Array], list[Array], list[Array], list[Array]]:
    """Pre-activations of the hidden layers at a point, slopes, Jacobians of the outputs by values, and by inputs."""
    values, hidden = network.preactivations(x)[:-1], network.layers[:-1]
    slopes = [layer.neurons.slope(v) for layer, v in zip(hidden, values, strict=True) if layer.neurons]
    ahead, back = [dense(hidden[0].weight)], [dense(network.layers[-1].weight)]
    for layer, slope in zip(hidden[1:], slopes, strict=False):
        ahead.append(dense(layer.weight) @ (slope[:, None] * ahead[-1]))
    for layer, slope in zip(hidden[:0:-1], slopes[:0:-1], strict=True):
        back.append((back[-1] * slope) @ dense(layer.weight))
    return values, slopes, back[::-1], ahead


def _sides(layer: Layer, v: Array) -> tuple[Array, Array]:
    """The kinks below and above the pre-activations of a layer."""
    low, high = np.full(v.shape, -np.inf), np.full(v.shape, np.inf)
    assert layer.neurons is not None
    for row, index in layer.neurons.groups:
        for knot in row.knots(v[index]):
            low[index] = np.where(knot <= v[index], np.maximum(low[index], knot), low[index])
            high[index] = np.where(knot > v[index], np.minimum(high[index], knot), high[index])
    return low, high


def _ascent(network: Network, z: Array, reach: Array, norms: Norms) -> Array:
    """Gradient of uᵀJ(z)w: the derivative of that of u·f along w, as a difference over a tenth of the reach."""
    _, u, w = steepest(network.jacobian(z), norms)
    step = 0.1 * reach + 1e-9
    ends = [_gradient(network, z + side * step * w, u) for side in (1.0, -1.0)]
    return np.asarray(np.nan_to_num((ends[0] - ends[1]) / (2.0 * step), posinf=0.0, neginf=0.0))


def _gradient(network: Network, z: Array, u: Array) -> Array:
    """Of u·f at points z."""
    back = u
    for layer, v in zip(network.layers[::-1], network.preactivations(z)[::-1], strict=True):
        back = times(layer.pulled(v, 1, back), layer.weight)
    return back


def has_kinks(network: Network) -> bool:
    """Whether a slope jumps anywhere that the search for kinks knows of."""
    return not network.coupled and any(
        row.row.kinks for layer in network.layers if layer.neurons for row, _ in layer.neurons.groups
    )


def is_straight(network: Network) -> bool:
    """Whether all activations are straight between their kinks."""
    rows = [row for layer in network.layers if layer.neurons for row, _ in layer.neurons.groups]
    return all(shape == STRAIGHT for row in rows for shape in row.shape)


def cross_kinks(network: Network, region: Region, z: Array, count: int, norms: Norms = PLAIN) -> tuple[Array, Array]:
    """Points beyond kinks, (m, inputs), up to ``count`` for each of the points z; and their origins in z, (m,).

    To first order v_j moves with A_j·dx, so the shortest step to a kink is (kink - v_j)·A_j/‖A_j‖². Crossing it adds
    jump·b_j A_jᵀ to the Jacobian J, b_j the derivative of the outputs by the neuron. That raises uᵀJw, with u, w the
    top singular pair of J, by jump·(u·b_j)(A_j·w). Half of the kinks are those with the largest rise, half the nearest.
    """
    each = network.inputs * sum(network.sizes[1:-1])
    some = np.array_split(np.arange(len(z)), max(1, len(z) * each // _ENTRIES))
    parts = [_cross_kinks(network, float(region.extent), z[part], count, norms) for part in some]
    found = region.project(np.concatenate([points for points, _ in parts]))
    origin = np.concatenate([part[own] for part, (_, own) in zip(some, parts, strict=True)])
    finite = np.isfinite(found).all(axis=-1)
    return found[finite], origin[finite]


def _cross_kinks(network: Network, radius: float, z: Array, count: int, norms: Norms) -> tuple[Array, Array]:
    """The same for few points, not yet projected to the region."""
    moves = np.broadcast_to(np.eye(network.inputs), (len(z), network.inputs, network.inputs))  # rows: inputs
    values, slopes, back, w = _derivatives(network, z, norms)
    steps, rises, ways = [], [], []
    for layer, v, slope, b in zip(network.layers, values, slopes, back):
        assert layer.neurons is not None
        moves = times(moves, layer.weight.T)  # (k, inputs, neurons): Aᵀ
        size = np.einsum("kin,kin->kn", moves, moves)
        gap, jump = layer.neurons.gather(_nearest, v)
        with np.errstate(all="ignore"):
            share = np.where(size > 0.0, gap / size, np.inf)
        length = np.abs(share) * np.sqrt(size)
        rises.append(jump * b * np.einsum("kin,ki->kn", moves, w))
        ways.append(np.where(length <= 2.0 * radius, length, np.inf))
        steps.append(np.swapaxes(moves * np.where(np.isfinite(share), share, 0.0)[:, None, :], -1, -2))
        moves = moves * slope[:, None, :]
    way, rise, step = np.concatenate(ways, axis=-1), np.concatenate(rises, axis=-1), np.concatenate(steps, axis=-2)
    near = np.argsort(way, axis=-1, kind="stable")[:, : count - count // 2]
    steep = np.argsort(np.where(np.isfinite(way), -rise, np.inf), axis=-1, kind="stable")[:, : count // 2]
    chosen = np.concatenate([steep, near], axis=-1)
    point, neuron = np.nonzero(np.isfinite(np.take_along_axis(way, chosen, -1)))
    neuron = chosen[point, neuron]
    return z[point] + (1.0 + _BEYOND) * step[point, neuron], point


def _nearest(row: Activation, v: Array) -> tuple[Array, Array]:
    """The distance from v to the nearest kink, infinite without one, and the jump of the slope there."""
    gap, jump = np.full(v.shape, np.inf), np.zeros(v.shape)
    for knot in row.knots(v) if row.row.kinks else ():
        at, least = np.broadcast_to(np.asarray(knot, dtype=float), v.shape), _LEAST * (1.0 + np.abs(v))
        to = np.where(np.abs(at - v) > least, at - v, np.where(at < v, -least, least))
        nearer = np.abs(to) < np.abs(gap)
        change = np.sign(to) * (row.slope(at, 1) - row.slope(at, -1))
        gap, jump = np.where(nearer, to, gap), np.where(nearer, change, jump)
    return gap, jump


def steepest(jacobians: Array, norms: Norms = PLAIN) -> tuple[Array, Array, Array]:
    """The norm of each matrix (count, m, n), or a little less, and u, v with norm = uᵀJv where it is attained.

    Norms may have units.
    """
    jacobians = np.nan_to_num(jacobians, posinf=0.0, neginf=0.0)  # LAPACK may never return from an infinite entry
    into, out = norms.input.units(jacobians.shape[-1]), norms.output.units(jacobians.shape[-2])
    scaled = jacobians if into is None else jacobians * into
    scaled = scaled if out is None else scaled / out[:, None]
    size, u, v = stretched_most(scaled, norms)
    return size, u if out is None else u / out, v if into is None else v * into


def stretched_most(jacobians: Array, norms: Norms = PLAIN) -> tuple[Array, Array, Array]:
    """The norm of each matrix (count, m, n), or a little less, and u, v with norm = uᵀJv.

    v (count, n) has norm one, and u (count, m) has norm one in the dual of the output norm. Norms from ℓ∞, or to ℓ1,
    are found by trying all corners if they are few, else by ascent from several of them, which may miss the largest.
    """
    p, q = norms.pair
    if (p, q) == ("l2", "l2"):
        left, size, right = np.linalg.svd(jacobians, full_matrices=False)
        return size[:, 0], left[..., 0], right[:, 0]
    if q == "l1" and (p != "linf" or jacobians.shape[1] < jacobians.shape[2]):
        tries = _corners(jacobians.shape[1])
        if tries is not None:  # u first
            pulled = np.einsum("km,cmn->ckn", tries, jacobians)
            v = np.stack([_aligned(pulled[:, k], norms.input.dual) for k in range(len(tries))], axis=1)
            return _best(jacobians, v, norms)
    if p == "l1":
        eye = np.broadcast_to(np.eye(jacobians.shape[2]), (len(jacobians), *[jacobians.shape[2]] * 2))
        return _best(jacobians, eye, norms)
    if q == "linf":
        return _best(jacobians, _aligned(jacobians, norms.input.dual), norms)
    tries = _corners(jacobians.shape[2]) if p == "linf" else None
    if tries is not None:
        return _best(jacobians, np.broadcast_to(tries, (len(jacobians), *tries.shape)), norms)
    v = _aligned(
        np.concatenate([jacobians, np.linalg.svd(jacobians, full_matrices=False)[2][:, :1]], 1), norms.input.dual
    )
    for _ in range(_ROUNDS):
        u = _aligned(v @ np.swapaxes(jacobians, 1, 2), q)
        v = _aligned(u @ jacobians, norms.input.dual)
    return _best(jacobians, v, norms)


def _corners(n: int) -> Array | None:
    """Sign vectors, one of each and its negative; None where they are many."""
    if n > _CORNERS:
        return None
    return np.array([(1.0, *rest) for rest in product((1.0, -1.0), repeat=n - 1)]).reshape(-1, n)


def _aligned(vectors: Array, name: str) -> Array:
    """For each vector w, the z with z·w = ‖w‖ in the norm of that name, itself of size one in its dual."""
    if name == "l1":
        return np.where(vectors < 0.0, -1.0, 1.0)
    if name == "l2":
        length = np.linalg.norm(vectors, axis=-1, keepdims=True)
        even = np.full(vectors.shape, 1.0 / np.sqrt(vectors.shape[-1]))
        return np.divide(vectors, length, out=even, where=length > 0.0)
    largest = np.argmax(np.abs(vectors), axis=-1)[..., None]
    found = np.zeros(vectors.shape)
    sign = np.where(np.take_along_axis(vectors, largest, -1) < 0.0, -1.0, 1.0)
    np.put_along_axis(found, largest, sign, -1)
    return found


def _best(jacobians: Array, tries: Array, norms: Norms) -> tuple[Array, Array, Array]:
    """The best of some directions v (count, k, n)."""
    moved = tries @ np.swapaxes(jacobians, 1, 2)
    u = _aligned(moved, norms.output.name)
    sizes = np.einsum("ckm,ckm->ck", u, moved)
    best = np.argmax(sizes, axis=1)
    at = np.arange(len(jacobians)), best
    return sizes[at], u[at], tries[at]


def witness(bounding: Bounding, piece: Pieces) -> tuple[Array | None, Array]:
    """The point nearest to the centre at which the confined neurons of one piece are inside their intervals.

    Where every slope of a piece is a single number, pre-activations are affine functions A x + c of its inputs, so the
    point solves min ½‖x - center‖² with low ≤ A x + c ≤ high and x in the piece's box. The dual of that is a smooth
    function of one weight per neuron, x = clip(center + Aᵀλ). If the point is not in the region (None is returned for
    it), nothing in the region obeys, and the weights (neurons,) are a reason why: λ·(A x + c) cannot be as large as
    the intervals ask for.
    """
    region, center = bounding.region, bounding.region.center
    A, c, place = _affine(bounding, piece)
    weights = np.zeros(piece.low.shape[-1])
    width = (piece.high[0] - piece.low[0])[place]
    margin = np.minimum(_INWARD * float(region.extent) * np.sqrt((A * A).sum(axis=-1)), 0.25 * width)
    low, high = piece.low[0, place] + margin, piece.high[0, place] - margin
    scale = 1.0 / np.maximum(np.sqrt((A * A).sum(axis=-1)), 1e-300)
    A, c, low, high = A * scale[:, None], c * scale, low * scale, high * scale
    count = len(place)

    def dual(signed: Array) -> tuple[float, Array]:
        up, down = signed[:count], signed[count:]
        x = np.clip(center + A.T @ (up - down), piece.lower[0], piece.upper[0])
        v = A @ x + c
        gap = x - center
        value = 0.5 * gap @ gap + up @ (low - v) - down @ (high - v)
        return -float(value), -np.concatenate([low - v, v - high])

    def beyond(intermediate_result: Any) -> None:
        """Every point that obeys is farther from the centre than sqrt(2·dual)."""
        if -2.0 * intermediate_result.fun > 1.0001 * float(region.extent) ** 2:
            raise StopIteration

    total = np.zeros(0)
    if count:
        from scipy import optimize  # takes a fifth of the time to import this package

        start, bounds = np.zeros(2 * count), [(0.0, None)] * (2 * count)
        found = optimize.minimize(
            dual, start, jac=True, method="L-BFGS-B", bounds=bounds, callback=beyond, options=_DUAL
        )
        total = found.x[:count] - found.x[count:]
    x = region.project(np.clip(center + A.T @ total, piece.lower[0], piece.upper[0]))
    weights[place] = total * scale
    seen = np.concatenate(bounding.network.preactivations(x)[:-1])
    obeys = bool(((piece.low[0] <= seen) & (seen <= piece.high[0])).all())
    return (x if obeys else None), weights


def _affine(bounding: Bounding, piece: Pieces) -> tuple[Array, Array, Array]:
    """A and c of the neurons that are confined to a side of their kink, and which they are.

    All others keep to their intervals by themselves, where these do.
    """
    rows, offsets, places = [np.zeros((0, bounding.network.inputs))], [np.zeros(0)], [np.zeros(0, dtype=int)]
    settled: list[tuple[Array, Array]] = []
    for index, part in enumerate(bounding.slices):
        layer = bounding.network.layers[index]
        assert layer.neurons is not None
        low, high = piece.low[0, part], piece.high[0, part]
        alpha, beta = layer.neurons.slope_range(low, high)
        some = np.flatnonzero(at_kink(layer.neurons, low, high))
        row, offset = dense(layer.weight[some]), layer.bias[some]
        for back in range(index - 1, -1, -1):
            slope, shift = settled[back]
            offset = offset + row @ shift
            row = row * slope
            offset = offset + row @ bounding.network.layers[back].bias
            row = times(row, bounding.network.layers[back].weight)
        rows.append(row)
        offsets.append(offset)
        places.append(part.start + some)
        middle = 0.5 * low + 0.5 * high
        slope = 0.5 * (alpha + beta)
        settled.append((slope, layer.neurons.value(middle) - slope * middle))
    return np.concatenate(rows), np.concatenate(offsets), np.concatenate(places)
