"""Where slopes jump: from points to the other side of the kinks around them."""

from __future__ import annotations

import numpy as np

from lipcert.model.activations import Activation
from lipcert.model.arrays import Array, times
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.search.directions import PLAINLY, Stretch

_BEYOND = 1e-3
"""How far beyond a kink to go, in units of the way to it."""
_LEAST = 1e-9
"""The way to a kink is at least this, relative to the pre-activation: nearer points may be on either side."""


_ENTRIES = 4_000_000
"""Numbers in the derivatives of all pre-activations that are held at once."""


def has_kinks(network: Network) -> bool:
    """Whether a slope jumps anywhere."""
    return any(row.row.kinks for layer in network.layers if layer.neurons for row, _ in layer.neurons.groups)


def across(network: Network, region: Region, z: Array, count: int, stretch: Stretch = PLAINLY) -> tuple[Array, Array]:
    """Points on the other side of kinks, (m, inputs), up to ``count`` for each of the points z; and of which, (m,).

    To first order v_j moves with A_j·dx, so the shortest way to a kink is (kink - v_j)·A_j/‖A_j‖². Crossing it adds
    jump·b_j A_jᵀ to the Jacobian J, b_j the derivative of the outputs by the neuron; that raises uᵀJv, u and v where
    the norm of J is attained, by jump·(u·b_j)(A_j·v). Kinks with the largest rise come first, half of them; then the
    nearest.
    """
    each = network.inputs * sum(network.sizes[1:-1])
    some = np.array_split(np.arange(len(z)), max(1, len(z) * each // _ENTRIES))
    parts = [_across(network, float(region.extent), z[part], count, stretch) for part in some]
    found = region.project(np.concatenate([points for points, _ in parts]))
    origin = np.concatenate([part[own] for part, (_, own) in zip(some, parts, strict=True)])
    finite = np.isfinite(found).all(axis=-1)
    return found[finite], origin[finite]


def _across(network: Network, radius: float, z: Array, count: int, stretch: Stretch) -> tuple[Array, Array]:
    """The same for few points; the way may lead out of the region."""
    values, hidden = network.preactivations(z), network.layers[:-1]
    slopes = [layer.neurons.slope(v) for layer, v in zip(hidden, values) if layer.neurons]
    _, left, right = stretch.most(network.jacobian_of(slopes, z.shape[:-1]))
    back = [left @ network.layers[-1].weight]
    for layer, slope in zip(hidden[:0:-1], slopes[:0:-1], strict=True):
        back.append((back[-1] * slope) @ layer.weight)
    moves = np.broadcast_to(np.eye(network.inputs), (len(z), network.inputs, network.inputs))  # rows: inputs
    steps, rises, ways = [], [], []
    for layer, v, slope, b in zip(hidden, values, slopes, back[::-1]):
        assert layer.neurons is not None
        moves = times(moves, layer.weight.T)  # (k, inputs, neurons): Aᵀ
        size = np.einsum("kin,kin->kn", moves, moves)
        gap, jump = layer.neurons.gather(_nearest, v)
        with np.errstate(all="ignore"):
            share = np.where(size > 0.0, gap / size, np.inf)
        length = np.abs(share) * np.sqrt(size)
        rises.append(jump * b * np.einsum("kin,ki->kn", moves, right))
        ways.append(np.where(np.isfinite(length), length, np.inf))
        steps.append(np.swapaxes(moves * np.where(np.isfinite(share), share, 0.0)[:, None, :], -1, -2))
        moves = moves * slope[:, None, :]
    way, rise = (np.concatenate(part, axis=-1) for part in (ways, rises))
    step = np.concatenate(steps, axis=-2)
    way = np.where(way <= 2.0 * radius, way, np.inf)
    near = np.argsort(way, axis=-1, kind="stable")[:, : count - count // 2]
    steep = np.argsort(np.where(np.isfinite(way), -rise, np.inf), axis=-1, kind="stable")[:, : count // 2]
    chosen = np.concatenate([steep, near], axis=-1)
    point, neuron = np.nonzero(np.isfinite(np.take_along_axis(way, chosen, -1)))
    neuron = chosen[point, neuron]
    return z[point] + (1.0 + _BEYOND) * step[point, neuron], point


def _nearest(row: Activation, v: Array) -> tuple[Array, Array]:
    """The way to the kink nearest to v, infinite without one, and how much the slope is larger on its other side."""
    gap, jump = np.full(v.shape, np.inf), np.zeros(v.shape)
    if not row.row.kinks:
        return gap, jump
    for knot in row.row.knots(v, *row.parameters):
        at = np.broadcast_to(np.asarray(knot, dtype=float), v.shape)
        to = at - v
        to = np.where(
            np.abs(to) > _LEAST * (1.0 + np.abs(v)), to, np.where(to < 0.0, -_LEAST, _LEAST) * (1.0 + np.abs(v))
        )
        change = np.sign(to) * (row.slope(at, 1) - row.slope(at, -1))
        nearer = np.abs(to) < np.abs(gap)
        gap, jump = np.where(nearer, to, gap), np.where(nearer, change, jump)
    return gap, jump
