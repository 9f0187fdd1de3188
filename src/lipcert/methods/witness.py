"""Boxes on which the network is affine: a point that attains the bound, or a reason why there is none."""

from __future__ import annotations

from typing import Any

import numpy as np

from lipcert.kernel.enclosures import at_kink
from lipcert.kernel.piece_bounds import Bounding, Pieces
from lipcert.model.arrays import Array, dense, times

_INWARD = 1e-7
"""How far inside its interval, in units of the region's radius times the row, a neuron is asked to be."""
_OPTIONS = {"maxfun": 300, "ftol": 1e-15, "gtol": 1e-12}


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
            dual, start, jac=True, method="L-BFGS-B", bounds=bounds, callback=beyond, options=_OPTIONS
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
