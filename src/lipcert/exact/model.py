"""The network's numbers and the region's, as balls; which part of the network a certificate is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from flint import arb, arb_mat

from lipcert.errors import ProofFailed
from lipcert.exact.definitions import function
from lipcert.exact.functions import Function, ball, least, most
from lipcert.exact.linear import column, floats, image, largest_eigenvalue, norm, signs
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Ball, Box, Everywhere, Region

SPREAD = 2.0**-50
"""Weights and biases may differ from the stored numbers by this much, relative to their size; zeros stay zeros."""
_HALVINGS = 40


@dataclass(frozen=True, eq=False)
class Layer:
    """v = weight·z + bias as balls, then z = φ(v), a function a neuron; the last layer of a model has none."""

    weight: arb_mat
    bias: arb_mat
    functions: tuple[Function, ...]
    near: Array
    """The weight as floats, for suggestions."""

    @property
    def size(self) -> int:
        return self.weight.nrows()


Model = tuple[Layer, ...]


def read(network: Network, spread: float = SPREAD) -> Model:
    """The layers of a network, every weight and bias w as the ball w·(1 ± spread)."""
    near_one = arb(1, spread)
    layers = []
    for number, layer in enumerate(network.layers, 1):
        stored = layer.weight
        if not isinstance(stored, np.ndarray) and not stored.has_canonical_format:
            raise ProofFailed(f"the weight of layer {number} repeats entries; build it with Network.from_weights")
        weight = np.asarray(stored if isinstance(stored, np.ndarray) else stored.toarray())
        bias = np.asarray(layer.bias)
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
        balls = arb_mat([[ball(x) * near_one for x in row] for row in weight.tolist()])
        layers.append(Layer(balls, column([ball(x) * near_one for x in bias.tolist()]), known, weight))
    return tuple(layers)


def part_of(
    model: Model, start: int, stop: int, inputs: Sequence[int] | None = None, outputs: Sequence[int] | None = None
) -> Model:
    """From z_start to v_stop, some coordinates at each end."""
    if not 0 <= start < stop <= len(model):
        raise ProofFailed(f"the network has {len(model)} layers, no part from {start} to {stop}")
    layers = list(model[start:stop])
    layers[-1] = replace(layers[-1], functions=())
    for place, picked, axis in ((0, inputs, 1), (-1, outputs, 0)):
        if picked is None:
            continue
        layer, count = layers[place], layers[place].near.shape[axis]
        if not picked or len(set(picked)) < len(picked) or min(picked) < 0 or max(picked) >= count:
            raise ProofFailed(f"the part names coordinates {tuple(picked)[:5]} of {count}, which must be distinct")
        near = np.take(layer.near, list(picked), axis)
        rows, bias = layer.weight.tolist(), layer.bias.entries()
        if axis == 0:
            rows, bias = [rows[k] for k in picked], [bias[k] for k in picked]
        else:
            rows = [[row[k] for k in picked] for row in rows]
        layers[place] = replace(layer, weight=arb_mat(rows), bias=column(bias), near=near)
    return tuple(layers)


@dataclass(frozen=True, eq=False)
class Inputs:
    """The points of a box, lower ≤ x ≤ upper, within ``radius`` of ``center``, where there is a radius."""

    center: list[arb]
    radius: arb | None
    lower: list[arb]
    upper: list[arb]

    @property
    def sides(self) -> list[arb]:
        """At least how far any point is from the centre, along each axis."""
        ends = zip(self.center, self.lower, self.upper, strict=True)
        return [most([(u - c).upper(), (c - low).upper()]) for c, low, u in ends]

    @property
    def reach(self) -> arb:
        """At least the distance of any point from the centre."""
        corner = norm(self.sides)
        return corner if self.radius is None else least([corner, self.radius])

    @property
    def balls(self) -> arb_mat:
        """The box."""
        return column([low.union(u) for low, u in zip(self.lower, self.upper, strict=True)])

    def empty(self) -> bool:
        """Whether the box is proved to miss the ball."""
        if self.radius is None:
            return False
        ends = zip(self.center, self.lower, self.upper, strict=True)
        gaps = [most([(low - c).lower(), (c - u).lower(), arb(0)]) for c, low, u in ends]
        return bool(sum((gap * gap for gap in gaps), arb(0)) > self.radius * self.radius)

    def halves(self, axis: int, at: arb) -> tuple[Inputs, Inputs]:
        """Below and above a value of an axis, which both contain; a value outside the box counts as its nearer side."""
        at = least([most([at, self.lower[axis]]), self.upper[axis]])
        sides = list(self.upper), list(self.lower)
        sides[0][axis] = sides[1][axis] = at
        return replace(self, upper=sides[0]), replace(self, lower=sides[1])

    def support(self, rows: arb_mat) -> list[arb]:
        """At least max of a·x for each row a, a number without radius an entry.

        For any q it is at most a·c + δ‖q‖ + max of (a - q)·(x - c) over the box. q = 0 is the box's own bound, q = a
        the ball's; between them a search suggests one.
        """
        middle, count = (rows * column(self.center)).entries(), rows.nrows()
        tries = [arb_mat(count, rows.ncols())]
        if self.radius is not None:
            tries += [rows, self.shared(rows)]
        found: list[arb] = []
        for q in tries:
            sizes = [arb(0)] * count if self.radius is None else [self.radius * norm(row) for row in q.tolist()]
            bound = [(m + x + s).upper() for m, x, s in zip(middle, self.over_box(rows - q), sizes, strict=True)]
            found = [least([x, y]) for x, y in zip(found, bound, strict=True)] if found else bound
        return found

    def over_box(self, rows: arb_mat) -> list[arb]:
        """At least max of a·d over the box for each row a, d the difference from the centre."""
        below, above = (column(side) - column(self.center) for side in (self.lower, self.upper))
        positive, negative = signs(rows.mid())
        away = self.balls - column(self.center)
        total = positive * above + negative * below + (rows - rows.mid()) * away
        return [x.upper() for x in total.entries()]

    def shared(self, rows: arb_mat) -> arb_mat:
        """The part of each row that had better be bounded by the ball, the rest by the box; only a suggestion.

        It is λ·y with y = clip(a/λ, box), ‖y‖ about the radius: there the bound of the support function is sharp.
        """
        assert self.radius is not None
        ends = [[x - c for x, c in zip(side, self.center, strict=True)] for side in (self.lower, self.upper)]
        a, power = floats(rows)
        box, _ = floats(arb_mat([*ends, [self.radius] * rows.ncols()]))
        low, high = np.full(len(a), -80.0), np.full(len(a), 80.0)
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            y = np.clip(a * np.exp(-middle)[:, None], box[0], box[1])
            short = np.sqrt((y * y).sum(axis=1)) < box[2, 0]
            high, low = np.where(short, middle, high), np.where(short, low, middle)
        q = np.exp(high)[:, None] * np.clip(a * np.exp(-high)[:, None], box[0], box[1])
        return (arb_mat(q.tolist()) * arb(2) ** power).mid()


def inputs_of(region: Region, count: int) -> Inputs | None:
    """A region as numbers; None is everywhere."""
    if isinstance(region, Everywhere):
        return None
    if not isinstance(region, (Ball, Box)):
        raise ProofFailed(f"exact has no rule for a region of type {type(region).__name__}")
    if isinstance(region, Ball) and not region.plain:
        raise ProofFailed(f"exact has no rule for a ball of the norm {region.norm}; verify without exact")
    box = region if isinstance(region, Box) else region.clip
    arrays = [region.center] if box is None else [region.center, box.lower, box.upper]
    if np.ndim(region.radius) or any(np.shape(a) != (count,) or not np.isfinite(a).all() for a in arrays):
        raise ProofFailed(f"the region must be a single one, of {count} finite coordinates")
    if box is not None and not ((box.lower <= region.center) & (region.center <= box.upper)).all():
        raise ProofFailed("the centre of the region lies outside it")
    center = [ball(x) for x in region.center]
    if isinstance(region, Box):
        return Inputs(center, None, [ball(x) for x in region.lower], [ball(x) for x in region.upper])
    radius = ball(float(region.radius))
    if not (radius.is_finite() and radius >= 0):
        raise ProofFailed(f"the radius of a ball must be finite and at least 0, got {region.radius}")
    lower, upper = [(c - radius).lower() for c in center], [(c + radius).upper() for c in center]
    if box is not None:
        lower = [most([x, ball(y)]) for x, y in zip(lower, box.lower, strict=True)]
        upper = [least([x, ball(y)]) for x, y in zip(upper, box.upper, strict=True)]
    return Inputs(center, radius, lower, upper)


def on_fewer(model: Model, inputs: Inputs, first: Array) -> tuple[Model, Inputs, arb]:
    """A model and its inputs, and a number, with f(x) = model(Q x), Q x among these inputs, and ‖Q‖ at most the number.

    A square matrix R, any that has an inverse, takes the place of the first weight W: Q is R⁻¹W, W in its balls.
    A box that cuts the ball is left out: the ball around it counts.
    """
    weight = model[0].weight
    if np.shape(first) != (weight.nrows(),) * 2 or not np.isfinite(first).all() or inputs.radius is None:
        raise ProofFailed(
            "the matrix that takes the place of the first weight is not one for balls, or of another size"
        )
    R = arb_mat([[ball(x) for x in row] for row in np.asarray(first, dtype=float).tolist()])
    try:
        Q = R.solve(weight)
    except ZeroDivisionError:
        raise ProofFailed("the matrix that takes the place of the first weight has no inverse") from None
    stretch = largest_eigenvalue(image(Q, None)).sqrt().upper()
    center = Q * column(inputs.center)
    radius = (stretch * inputs.radius + norm([x.rad().upper() for x in center.entries()])).upper()
    middle = center.mid().entries()
    sides = [(c - radius).lower() for c in middle], [(c + radius).upper() for c in middle]
    layer = replace(model[0], weight=R, near=np.asarray(first, dtype=float))
    return (layer, *model[1:]), Inputs(middle, radius, *sides), stretch
