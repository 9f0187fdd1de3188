"""The network's numbers and the region's, as balls; which part of the network an answer is about, in which units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flint import arb

from lipcert.audit.balls import (
    Balls,
    balls,
    dot,
    floats,
    image,
    known_smaller,
    larger,
    largest,
    largest_eigenvalue,
    lower,
    mid,
    norm,
    positive,
    rad,
    root,
    size,
    smaller,
    solve,
    upper,
    zeros,
)
from lipcert.definitions.functions import Function, ball
from lipcert.definitions.rows import function
from lipcert.errors import ProofFailed
from lipcert.model.activations import activation
from lipcert.model.arrays import Array, dense
from lipcert.model.network import Network, Neurons
from lipcert.model.norms import Norm
from lipcert.model.regions import Ball, Box, Everywhere, Region
from lipcert.suggest.algebra import triangular_factor
from lipcert.suggest.multipliers import split_rate

SPREAD = 2.0**-50
"""Weights and biases may differ from the stored numbers by this much, relative to their size; zeros stay zeros."""
_HALVINGS, _FEW_INPUTS = 40, 16


@dataclass(frozen=True, eq=False)
class Layer:
    """v = weight·z + bias as balls, then z = φ(v), a function a neuron; the last layer of a model has none.

    ``neurons`` are the same functions in floating point, for suggestions.
    """

    weight: Balls
    bias: Balls
    functions: tuple[Function, ...]
    neurons: Neurons | None

    @property
    def size(self) -> int:
        return len(self.bias)


Model = tuple[Layer, ...]


def read(network: Network, spread: float = SPREAD) -> Model:
    """The layers of a network, every weight and bias w as the ball w·(1 ± spread)."""
    near_one, layers = arb(1, spread), []
    for number, layer in enumerate(network.layers, 1):
        stored = layer.weight
        if not isinstance(stored, np.ndarray) and not stored.has_canonical_format:
            raise ProofFailed(f"the weight of layer {number} repeats entries; build it with Network.from_weights")
        weight, bias = dense(stored), np.asarray(layer.bias)
        if {weight.dtype, bias.dtype} != {np.dtype(np.float64)} or not (
            np.isfinite(weight).all() and np.isfinite(bias).all()
        ):
            raise ProofFailed(f"layer {number} must have finite weights and biases of float64")
        functions: list[Function | None] = [None] * len(bias)
        for row, index in layer.neurons.groups if layer.neurons else ():
            columns = [np.broadcast_to(np.asarray(p, dtype=float), np.shape(index)) for p in row.parameters]
            for place, neuron in enumerate(index):
                functions[int(neuron)] = function(row.name, tuple(float(values[place]) for values in columns))
        known = tuple(f for f in functions if f is not None)
        if len(known) != (len(bias) if number < network.depth else 0):
            raise ProofFailed(f"layer {number} has {len(bias)} neurons and {len(known)} activations")
        layers.append(Layer(balls(weight) * near_one, balls(bias) * near_one, known, layer.neurons))
    return tuple(layers)


def part_of(
    model: Model, start: int, stop: int, inputs: Sequence[int] | None = None, outputs: Sequence[int] | None = None
) -> Model:
    """From z_start to v_stop, some coordinates at each end."""
    if not 0 <= start < stop <= len(model):
        raise ProofFailed(f"the network has {len(model)} layers, no part from {start} to {stop}")
    layers = list(model[start:stop])
    layers[-1] = replace(layers[-1], functions=(), neurons=None)
    for place, picked, axis in ((0, inputs, 1), (-1, outputs, 0)):
        if picked is None:
            continue
        layer, count = layers[place], layers[place].weight.shape[axis]
        if not picked or len(set(picked)) < len(picked) or min(picked) < 0 or max(picked) >= count:
            raise ProofFailed(f"the part names coordinates {tuple(picked)[:5]} of {count}, which must be distinct")
        bias = layer.bias if axis else layer.bias[list(picked)]
        layers[place] = replace(layer, weight=layer.weight.take(list(picked), axis), bias=bias)
    return tuple(layers)


def in_units(model: Model, into: Norm, out: Norm) -> Model:
    """The model as a map of u to w, for inputs Mu and outputs M'w: M and M' are the units or shapes of the norms."""
    first, last = model[0], model[-1]
    unit, matrix = into.units(first.weight.shape[1]), into.matrix
    if unit is not None or matrix is not None:
        weight = first.weight * balls(unit) if unit is not None else dot(first.weight, balls(matrix))
        model = (replace(first, weight=weight), *model[1:])
        last = model[-1]
    unit, matrix = out.units(last.size), out.matrix
    if unit is not None:
        last = replace(last, weight=last.weight / balls(unit)[:, None], bias=last.bias / balls(unit))
    elif matrix is not None:
        last = replace(
            last, weight=solve(balls(matrix), last.weight), bias=solve(balls(matrix), last.bias[:, None])[:, 0]
        )
    return (*model[:-1], last)


@dataclass(frozen=True, eq=False)
class Inputs:
    """The points of a box, lower ≤ x ≤ upper, that are within ``radius`` of ``center``, where there is a radius.

    The norm is ℓ2, or ℓ1 if ``diamond``, of differences over ``units``.
    """

    center: Balls
    lower: Balls
    upper: Balls
    radius: Any = None
    units: Balls | None = None
    diamond: bool = False

    @property
    def plain(self) -> bool:
        """Whether it is a ball of the ℓ2 norm, perhaps clipped."""
        return self.radius is not None and self.units is None and not self.diamond

    @property
    def sides(self) -> Balls:
        """At least how far any point is from the centre, along each axis."""
        return larger(size(self.upper - self.center), size(self.center - self.lower))

    def extent(self, start: Balls | None = None) -> arb:
        """At least ‖(x - center)/start‖₂ of any point; no start is one."""
        corner = norm(self.sides if start is None else self.sides / start)
        if self.radius is None:
            return corner
        units = balls(np.ones(len(self.center))) if self.units is None else self.units
        longest = largest(upper(units if start is None else units / start))
        return smaller(corner, (self.radius * longest).upper())

    def _gaps(self) -> Balls:
        """At most how far the box is from the centre along each axis, in units."""
        gaps = positive(larger(lower(self.lower - self.center), lower(self.center - self.upper)))
        return gaps if self.units is None else lower(gaps / self.units)

    def empty(self) -> bool:
        """Whether the box is proved to miss the ball."""
        if self.radius is None:
            return bool((self.lower > self.upper).any())
        gaps = self._gaps()
        return bool(gaps.sum() > self.radius if self.diamond else (gaps * gaps).sum() > self.radius * self.radius)

    def snug(self) -> Inputs:
        """The same in the smallest box: along axis i a point is at most √(radius² - ‖gaps of the others‖²) away."""
        if not self.plain or len(self.center) > _FEW_INPUTS:
            return self
        gaps = self._gaps()
        rest = (gaps * gaps).sum() - gaps * gaps
        reach = upper(root(positive(upper(self.radius * self.radius - rest))))
        low, high = larger(self.lower, lower(self.center - reach)), smaller(self.upper, upper(self.center + reach))
        return self if (low > high).any() else replace(self, lower=low, upper=high)

    def halves(self, axis: int, at: arb) -> tuple[Inputs, Inputs]:
        """Below and above a value of an axis, which both contain; a value outside the box counts as its nearer side."""
        at = smaller(larger(at, self.lower[axis]), self.upper[axis])
        sides = self.upper.copy(), self.lower.copy()
        sides[0][axis] = sides[1][axis] = at
        return replace(self, upper=sides[0]), replace(self, lower=sides[1])

    def support(self, rows: Balls) -> Balls:
        """At least max of a·x for each row a of numbers: by the box, by the ball, or by both.

        For any q it is at most a·c + δ‖q‖* + max of (a - q)·(x - c) over the box.
        """
        found = upper(np.where(rows > 0, rows * self.upper, rows * self.lower).sum(axis=1))
        if self.radius is None:
            return found
        middle = dot(rows, self.center)
        scaled = rows if self.units is None else rows * self.units
        dual = largest(size(scaled), axis=1) if self.diamond else norm(scaled)
        found = known_smaller(found, upper(middle + self.radius * dual))
        if self.diamond:
            return found
        q = self.shared(rows)
        length = norm(q if self.units is None else q * self.units)
        return known_smaller(found, upper(middle + self.radius * length + self.over_box(rows - q)))

    def over_box(self, rows: Balls) -> Balls:
        """At least max of a·(x - c) over the box for each row a."""
        rows, lost = mid(rows), rad(rows)
        ends = np.where(rows > 0, rows * (self.upper - self.center), rows * (self.lower - self.center))
        return upper(ends.sum(axis=1) + (lost * self.sides).sum(axis=1))

    def shared(self, rows: Balls) -> Balls:
        """The part of each row that had better be bounded by the ball, the rest by the box; only a suggestion."""
        units = np.ones(len(self.center)) if self.units is None else floats(self.units)
        a, radius, center = floats(rows) * units, float(self.radius), floats(self.center)
        below, above = (np.broadcast_to((floats(end) - center) / units, a.shape) for end in (self.lower, self.upper))
        with np.errstate(all="ignore"):
            rate = split_rate(a, np.full(len(a), radius), below, above, _HALVINGS)[:, None]
            rate = np.where((rate > 0.0) & (rate < np.inf), rate, 0.0)
            y = np.where(rate > 0, np.clip(a / np.where(rate > 0, rate, 1.0), below, above), 0.0)
            q = rate * y / units
        return balls(np.where(np.isfinite(q), q, 0.0))


def inputs_of(region: Region, count: int, units: Array | None = None) -> Inputs | None:
    """A region as numbers, in units; None is everywhere."""
    if isinstance(region, Everywhere):
        return None
    if not isinstance(region, (Ball, Box)):
        raise ProofFailed(f"there is no rule for a region of type {type(region).__name__}")
    box = region if isinstance(region, Box) else region.clip
    arrays = [region.center] if box is None else [region.center, box.lower, box.upper]
    if np.ndim(region.radius) or any(np.shape(a) != (count,) or not np.isfinite(a).all() for a in arrays):
        raise ProofFailed(f"the region must be a single one, of {count} finite coordinates")
    if box is not None and not ((box.lower <= region.center) & (region.center <= box.upper)).all():
        raise ProofFailed("the centre of the region lies outside it")
    unit = balls(np.ones(count) if units is None else units)
    center, low, high = balls(region.center) / unit, *(balls(end) / unit for end in (arrays[1:] or [arrays[0]] * 2))
    if isinstance(region, Box):
        return Inputs(center, lower(low), upper(high))
    radius: Any = ball(float(region.radius))
    scale = balls(np.broadcast_to(region.units, (count,))) / unit
    if not (radius.is_finite() and radius >= 0):
        raise ProofFailed(f"the radius of a ball must be finite and at least 0, got {region.radius}")
    ends = lower(center - radius * scale), upper(center + radius * scale)
    if box is not None:
        ends = larger(ends[0], lower(low)), smaller(ends[1], upper(high))
    if region.norm.name == "linf":
        return Inputs(center, *ends)
    same = region.plain and units is None
    return Inputs(center, *ends, radius, None if same else upper(scale), region.norm.name == "l1")


def fewer(model: Model, inputs: Inputs) -> tuple[Model, Inputs, arb]:
    """A model and its inputs, and a number, with f(x) = model(Q x), Q x among these inputs, and ‖Q‖ at most the number.

    It is on fewer inputs where the first layer W has more inputs than neurons: a square matrix R, any that has an
    inverse, takes its place, and Q is R⁻¹W, W in its balls. The ball counts, not the box that cuts it.
    """
    W = floats(model[0].weight)
    factors = triangular_factor(W) if inputs.plain and W.shape[1] > len(W) else None
    if factors is None:
        return model, inputs, arb(1)
    R = balls(factors[0])
    Q = solve(R, model[0].weight)
    stretch = largest_eigenvalue(image(Q, None)).sqrt().upper()
    center = dot(Q, inputs.center)
    radius = (stretch * inputs.radius + norm(rad(center))).upper()
    middle = mid(center)
    moved = Inputs(middle, lower(middle - radius), upper(middle + radius), radius)
    return (replace(model[0], weight=R), *model[1:]), moved, stretch


def along_rays(model: Model) -> tuple[Model, Inputs]:
    """g(x, t) = t·f(x/t) for t > 0, t the last input and the last neuron of each hidden layer; and the box of its rays.

    It needs φ(s·v) = s·φ(v) for all s > 0. Slopes are the same along a ray s·(x, t), so ∂g/∂x there is the Jacobian of
    f at x/t; the ray meets the box -1 ≤ x ≤ 1, 0 ≤ t ≤ 1 at a point where some coordinate has size one.
    """
    layers, carrier = [], function("identity", ())
    for layer in model:
        if any(
            any(f.bends) or any(not mark.is_zero() for mark in f.marks) or f.value(arb(0)) != 0 for f in layer.functions
        ):
            raise ProofFailed("a region without bounds can be cut only where activations are straight from zero on")
        weight, neurons = np.hstack([layer.weight, layer.bias[:, None]]), layer.neurons
        if neurons is not None:
            weight = np.vstack([weight, balls(np.eye(1, weight.shape[1], weight.shape[1] - 1))])
            groups = (*neurons.groups, (activation("identity"), np.array([neurons.size])))
            neurons = Neurons(neurons.size + 1, groups)
        functions = (*layer.functions, carrier) if layer.functions else ()
        layers.append(Layer(weight, zeros(len(weight)), functions, neurons))
    corner = np.ones(model[0].weight.shape[1] + 1)
    ends = balls(np.append(-corner[:-1], 0.0)), balls(corner)
    return tuple(layers), Inputs((ends[0] + ends[1]) / 2, *ends)
