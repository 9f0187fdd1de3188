"""Points of a region for searches and drawings, and the region in words: what no proof asks of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np

from lipcert.arguments.numbers import Array
from lipcert.arguments.words import point_in_words
from lipcert.errors import InvalidInput

_DUAL = {"l1": np.inf, "l2": 2, "linf": 1}
"""The order of the dual norm."""


class RegionPoints(ABC):
    """What every region can do for a search."""

    center: Array

    @property
    @abstractmethod
    def dimension(self) -> int | None:
        """Number of inputs, or None where any will do."""

    def check(self, inputs: int) -> None:
        """An error unless this is one region, not a stack, of that many inputs."""
        if self.dimension is not None and self.dimension != inputs:
            raise InvalidInput(f"the region has {self.dimension} coordinates, the network has {inputs} inputs")
        if self.center.ndim > 1:
            raise InvalidInput(
                f"region must be one region, got a stack of shape {self.center.shape[:-1]}; take them singly"
            )

    @abstractmethod
    def project(self, points: Array) -> Array:
        """Points of the region near the given ones; those already inside are unchanged."""

    @abstractmethod
    def contains(self, points: Array) -> Array:
        """Whether each point (..., inputs) lies in the region."""

    @abstractmethod
    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Points of the region, (count, ..., inputs), spread over it and its boundary."""

    @abstractmethod
    def fitted(self, network: Any) -> Self:
        """The same region with flat coordinates, as many as the network has inputs; an error if that cannot be."""


class EverywherePoints(RegionPoints):
    """Of all inputs."""

    def __repr__(self) -> str:
        return "Everywhere()"

    def project(self, points: Array) -> Array:
        """The points themselves."""
        return points

    def contains(self, points: Array) -> Array:
        """Whether each point (..., inputs) is finite."""
        return np.asarray(np.isfinite(points).all(axis=-1))

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Refused."""
        raise InvalidInput(f"{self} cannot be sampled; give a Ball or a Box")

    def fitted(self, network: Any) -> Self:
        """The same."""
        return self


class BoxPoints(RegionPoints):
    """Of a box."""

    lower: Array
    upper: Array
    uniform: bool

    def __repr__(self) -> str:
        if self.uniform:
            return f"Box({float(self.lower[0])!r}, {float(self.upper[0])!r})"
        return f"Box({_in_words(self.lower)}, {_in_words(self.upper)})"

    def project(self, points: Array) -> Array:
        """The nearest points of the box."""
        return np.clip(points, self.lower, self.upper)

    def contains(self, points: Array) -> Array:
        """Whether each point (..., inputs) lies in the box."""
        return np.asarray(((self.lower <= points) & (points <= self.upper)).all(axis=-1))

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Points of the box, (count, ..., inputs), every third one a corner."""
        _require_dimension(self)
        share, coin = rng.random((count, *self.lower.shape)), rng.random((count, *self.lower.shape))
        points = np.clip((1.0 - share) * self.lower + share * self.upper, self.lower, self.upper)
        points[::3] = np.where(coin < 0.5, self.lower, self.upper)[::3]
        return points

    def fitted(self, network: Any) -> Self:
        """The same box with flat coordinates."""
        ends = [_flat(self, network, name, getattr(self, name)) for name in ("lower", "upper")]
        return self if ends[0] is self.lower else type(self)(*ends)


class BallPoints(RegionPoints):
    """Of a ball, clipped or not."""

    center: Array
    radius: Array
    clip: Any
    norm: Any
    uniform: bool

    @property
    @abstractmethod
    def plain(self) -> bool:
        """Whether it is a ball of the ℓ2 norm without units."""

    @property
    @abstractmethod
    def units(self) -> Array:
        """What one unit of each coordinate is, (inputs,)."""

    def __repr__(self) -> str:
        clip = "" if self.clip is None else f", clip=({_in_words(self.clip.lower)}, {_in_words(self.clip.upper)})"
        radius = f"{float(self.radius.flat[0])!r}" if np.unique(self.radius).size == 1 else _in_words(self.radius)
        center = repr(float(self.center[0])) if self.uniform else _in_words(self.center)
        norm = "" if self.plain else f", norm={self.norm!r}"
        return f"Ball({center}, {radius}{clip}{norm})"

    def norm_dual(self, rows: Array) -> Array:
        """The largest row·z with ‖z‖ ≤ 1 in the norm of the ball, for each row (..., inputs)."""
        return np.asarray(np.linalg.norm(rows * self.units, _DUAL[self.norm.name], axis=-1))

    def contains(self, points: Array) -> Array:
        """Whether each point (..., inputs) lies in the ball."""
        inside = np.asarray(self.norm.of(np.asarray(points, dtype=float) - self.center) <= self.radius)
        return inside if self.clip is None else inside & self.clip.contains(points)

    def project(self, points: Array) -> Array:
        """Points of the ball near the given ones; those already inside are unchanged."""
        points = np.asarray(points, dtype=float)
        if self.norm.name == "linf":  # coordinate by coordinate; then inwards by what rounding asks
            reach = self.radius[..., None] * self.units
            points = np.clip(points, self.center - reach, self.center + reach)
        moved = self._clipped(points)
        for shortfall in (4e-16, 4e-15, 4e-14):
            offset = moved - self.center
            sizes = self.norm.of(offset)
            outside = sizes > self.radius
            if not outside.any():
                return moved
            # towards the centre, which keeps a point of the box inside the box; rounding may ask for another try
            share = np.where(outside, self.radius * (1.0 - shortfall) / np.where(outside, sizes, 1.0), 1.0)
            moved = np.where(outside[..., None], self._clipped(self.center + share[..., None] * offset), moved)
        # the centre is so far from the origin that its rounding matters: step in by a few ulp
        offset = moved - self.center
        step = 2.0 * np.spacing(np.maximum(np.abs(moved), np.abs(self.center)))
        inner = self.center + np.sign(offset) * np.maximum(np.abs(offset) - step, 0.0)
        return np.where((self.norm.of(offset) > self.radius)[..., None], inner, moved)

    def _clipped(self, points: Array) -> Array:
        return points if self.clip is None else np.asarray(self.clip.project(points))

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Points of the ball, (count, ..., inputs), every second one on its boundary if it is not clipped."""
        _require_dimension(self)
        shape = count, *self.center.shape
        if self.norm.name == "linf":
            direction = rng.uniform(-1.0, 1.0, shape)
            direction[::3] = np.sign(direction[::3])
        elif self.norm.name == "l1":
            direction = rng.standard_exponential(shape) ** rng.integers(1, 4, (count, *[1] * (len(shape) - 1)))
            direction *= rng.choice([-1.0, 1.0], shape)
        else:
            direction = rng.standard_normal(shape)
        direction /= self.norm.bare.of(direction)[..., None]
        share = rng.random(direction.shape[:-1]) ** (1.0 / direction.shape[-1])
        share[::2] = 1.0
        return self.project(self.center + (self.radius * share)[..., None] * direction * self.units)

    def fitted(self, network: Any) -> Self:
        """The same ball with flat coordinates."""
        center = _flat(self, network, "center", self.center)
        if center is self.center:
            return self
        sizes = np.unique(self.radius)
        if center.ndim == 1 and sizes.size > 1:
            raise InvalidInput(f"radius must be one number for one center, got {sizes.size} different ones")
        clip = self.clip and tuple(_flat(self, network, "clip", side) for side in (self.clip.lower, self.clip.upper))
        radius = sizes[0] if center.ndim == 1 else self.radius
        return type(self)(center, radius, clip, self.norm)  # type: ignore[call-arg]


def _flat(region: BoxPoints | BallPoints, network: Any, name: str, array: Array) -> Array:
    """One of the region's arrays with coordinates as the network has inputs."""
    if region.uniform:
        return np.full(network.inputs, array[0])
    made: Array = network.flat(name, array)
    return made.reshape(-1) if made.ndim > 1 and made.size == network.inputs else made  # a batch of one


def _require_dimension(region: BoxPoints | BallPoints) -> None:
    if region.uniform:
        raise InvalidInput(f"{region} does not say how many inputs there are; sample region.fitted(network)")


def _in_words(array: Array) -> str:
    shape = f" of shape {array.shape}" if array.ndim > 1 else ""
    return point_in_words(array.ravel().tolist()) + shape
