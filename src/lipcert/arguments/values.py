"""What networks and regions do for users and searches in floating point, and how they are printed; not for proofs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse

from lipcert.arguments.numbers import Array, check_chain, convolution, flattened, hidden, layers, listed, scaled
from lipcert.arguments.words import point_in_words, sizes_in_words
from lipcert.errors import InvalidInput

_DENSE = 2048
"""A larger identity is sparse: in full it would need the square of its size."""


def rows_per_neuron(spec: Any, size: int, named: Callable[[Any], Any], kind: type) -> tuple[tuple[Any, Array], ...]:
    """One activation for the whole layer, or one per neuron, as groups of neurons; ``kind`` is that of activations."""
    if hasattr(spec, "groups"):
        if spec.size != size:
            raise InvalidInput(f"activation is for {spec.size} neurons, the layer has {size}")
        return tuple(spec.groups)
    if isinstance(spec, (str, kind)):
        row = named(spec)
        for parameter in row.parameters:
            if np.ndim(parameter) and np.shape(parameter) != (size,):
                raise InvalidInput(
                    f"activation {row.name!r} has parameters of shape {np.shape(parameter)},"
                    f" the layer has {size} neurons"
                )
        return ((row, np.arange(size)),)
    rows = [named(item) for item in listed("activation", spec)]
    if not rows and not size:
        return ((named("identity"), np.arange(0)),)
    if len(rows) != size:
        raise InvalidInput(f"activation must name one row per neuron: got {len(rows)} for {size} neurons")
    for place, row in enumerate(rows):
        if any(np.ndim(parameter) for parameter in row.parameters):
            raise InvalidInput(f"activation of neuron {place} must have single numbers as parameters, got {row}")
    keys = [(row.name, row.parameters) for row in rows]
    distinct = sorted(set(keys), key=keys.index)
    where = [np.flatnonzero([key == one for key in keys]) for one in distinct]
    return tuple((rows[index[0]], index) for index in where)


def layer_parts(
    weights: Any,
    biases: Any,
    activation: Any,
    neurons: Callable[[Any, int], Any],
    single: tuple[type, ...],
    coupling: type,
    convolution: type,
) -> Iterator[tuple[Any, Array, Any, Any]]:
    """Weight, bias, neurons and coupling of each layer, the last two None for the output."""
    matrices, vectors = layers(weights, biases, convolution)
    specs = hidden(activation, len(matrices), single)
    pairs = [
        spec if isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[1], coupling) else (spec, None)
        for spec in specs
    ]
    widths = [w.shape[0] if c is None else c.width for w, (_, c) in zip(matrices, pairs)]
    check_chain([w.shape for w in matrices], widths)
    if len(specs) == len(matrices):  # the output has an activation: a further identity layer reads it out
        size = widths[-1]
        matrices.append(np.eye(size) if size <= _DENSE else sparse.csr_array(sparse.eye_array(size)))
        vectors.append(np.zeros(size))
    for number, ((spec, c), w, b) in enumerate(zip(pairs, matrices, vectors), 1):
        if c is not None and c.size != w.shape[0]:
            raise InvalidInput(f"the coupling of layer {number} is for {c.size} values, not {w.shape[0]}")
        yield w, b, neurons(spec, w.shape[0] if c is None else c.plain), c
    yield matrices[-1], vectors[-1], None, None


class NeuronsValues(ABC):
    """Of the activations of a layer."""

    size: int
    groups: tuple[Any, ...]

    @abstractmethod
    def slope_range(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """The slopes α ≤ β that each neuron can have on its interval."""

    @cached_property
    def everywhere(self) -> tuple[Array, Array]:
        """The slopes α ≤ β that each neuron can have at all."""
        infinite = np.full(self.size, np.inf)
        return self.slope_range(-infinite, infinite)

    def describe(self) -> str:
        """Names of the rows in use, for people."""
        return ", ".join(dict.fromkeys(row.name for row, _ in self.groups))


class ConvolutionValues(ABC):
    """Of a convolution."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix, (outputs, inputs)."""

    @property
    @abstractmethod
    def taps(self) -> Array:
        """(groups, outputs of each, fan_in)."""

    @property
    @abstractmethod
    def pictures(self) -> tuple[int, ...]:
        """(groups, channels of each, *image)."""

    @abstractmethod
    def windows(self, pictures: Array) -> Array:
        """What each output sees of pictures (k, groups, inputs, *image): (k, groups, fan_in, places)."""

    @classmethod
    def of(
        cls,
        kernel: Any,
        image: Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | Sequence[tuple[int, int]] | None = None,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        circular: bool = False,
    ) -> Self:
        """A convolution from its kernel.

        Parameters
        ----------
        kernel
            (outputs, channels / groups, \\*window), as PyTorch and ONNX store it.
        image
            Sizes of the image, one per axis.
        stride, dilation
            One number, or one per axis.
        padding
            One number, one per axis, or a pair (before, after) per axis. Default: what keeps the size of the image at
            stride 1.
        groups
            Groups of channels.
        circular
            Periodic padding in the place of zeros.
        """
        parts = convolution(kernel, image, stride, padding, dilation, groups, circular)
        return cls(*parts, int(groups), bool(circular))  # type: ignore[call-arg]

    def forward(self, rows: Array) -> Array:
        """rows·Wᵀ for rows (..., inputs): the images convolved; sums of ``fan_in`` products, in any order."""
        seen = self.windows(np.reshape(rows, (-1, *self.pictures)))
        found = self.taps @ seen  # (k, groups, outputs, places)
        return np.reshape(found, (*rows.shape[:-1], self.shape[0]))


class LayerValues(ABC):
    """Of one layer, in floating point."""

    bias: Array
    linear: Any
    weight: Any
    plain: Any
    coupling: Any
    times: ClassVar[Any]
    """The product of dense rows with a weight, dense or sparse."""

    def image(self, z: Array) -> Array:
        """weight·z for z of shape (..., inputs), rounded as it comes."""
        found: Array = self.linear.forward(z) if hasattr(self.linear, "forward") else self.times(z, self.weight.T)
        return found

    def describe(self) -> str:
        """Names of its activations, for people."""
        names = [self.plain.describe()] if self.plain and self.plain.size else []
        return ", ".join([*names, *(self.coupling.describe() if self.coupling else ())])

    def affine(self, z: Array) -> Array:
        """weight·z + bias for z of shape (..., inputs)."""
        return self.image(z) + self.bias

    def activated(self, v: Array) -> Array:
        """Z for v of shape (..., size)."""
        if self.plain is None:
            return v
        plain: Array = self.plain.value(v[..., : self.plain.size])
        return plain if self.coupling is None else self.coupling.value(v, plain)

    def pushed(self, v: Array, side: int, dv: Array) -> Array:
        """The derivative of z at v in directions dv (..., size), at kinks from a side."""
        if self.plain is None:
            return dv
        plain: Array = self.plain.slope(v[..., : self.plain.size], side) * dv[..., : self.plain.size]
        return plain if self.coupling is None else self.coupling.push(v, dv, plain)

    def pulled(self, v: Array, side: int, dz: Array) -> Array:
        """The derivative of Σ dz·z by v, for dz (..., width)."""
        if self.plain is None:
            return dz
        plain: Array = self.plain.slope(v[..., : self.plain.size], side) * dz[..., : self.plain.size]
        return plain if self.coupling is None else self.coupling.pull(v, dz, plain)


class CouplingValues(ABC):
    """Of a coupling, in floating point."""

    plain: int
    size: int
    rows: tuple[tuple[int, int], ...]
    products: tuple[Any, ...]

    @abstractmethod
    def softmax_rows(self) -> Iterator[tuple[int, Array]]:
        """Where softmax rows begin, and their positions."""

    @abstractmethod
    def sums(self) -> Iterator[tuple[Any, Array]]:
        """The sums of products, and the positions of their results."""

    def value(self, v: Array, plain: Array) -> Array:
        """The results for values v (..., size), those of the elementwise activations given."""
        parts = [plain]
        parts += [softmax(v[..., index]).reshape(*v.shape[:-1], index.size) for _, index in self.softmax_rows()]
        parts += [(v[..., p.one] * v[..., p.two]).sum(axis=-1) for p in self.products]
        return np.concatenate(parts, axis=-1)

    def push(self, v: Array, dv: Array, plain: Array) -> Array:
        """The derivative of the results in directions dv (..., size), those of the elementwise ones given."""
        parts = [plain]
        for _, index in self.softmax_rows():
            p, moved = softmax(v[..., index]), dv[..., index]
            parts.append((p * (moved - (p * moved).sum(axis=-1, keepdims=True))).reshape(*dv.shape[:-1], index.size))
        for product in self.products:
            one, two = product.one, product.two
            parts.append((v[..., one] * dv[..., two] + dv[..., one] * v[..., two]).sum(axis=-1))
        return np.concatenate(parts, axis=-1)

    def pull(self, v: Array, dz: Array, plain: Array) -> Array:
        """The derivative by the values of Σ dz·z, dz (..., width), those of the elementwise ones given."""
        found = np.zeros((*dz.shape[:-1], self.size))
        found[..., : self.plain] = plain
        for _, index in self.softmax_rows():
            p, moved = softmax(v[..., index]), dz[..., index]
            found[..., index] = p * (moved - (p * moved).sum(axis=-1, keepdims=True))
        for product, place in self.sums():
            both, partners = product.both, product.partners
            share = dz[..., place][..., None] * v[..., partners]
            flat = found.reshape(math.prod(dz.shape[:-1]), self.size)
            for row, part in zip(
                flat, np.broadcast_to(share, (*dz.shape[:-1], *both.shape)).reshape(len(flat), both.size)
            ):
                row += np.bincount(both.ravel(), part, minlength=self.size)
        return found

    def describe(self) -> list[str]:
        """What there is, for people."""
        return [*(["softmax"] if self.rows else []), *(["products"] if self.products else [])]


def softmax(v: Array) -> Array:
    """exp(v)/Σexp(v) along the last axis."""
    e = np.exp(v - v.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


class NetworkValues(ABC):
    """Of a network: values and derivatives in floating point, and what is shown of it."""

    layers: tuple[Any, ...]
    input_shape: tuple[int, ...] | None
    writer: ClassVar[Callable[[Any, str | PathLike[str]], None]]
    """How it is written to a file; set by :mod:`lipcert.files.networks`."""
    times: ClassVar[Any]
    """The product of dense rows with a weight, dense or sparse."""

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """Numbers of neurons, the input first."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """SHA-256 of everything that defines the function."""

    def save(self, path: str | PathLike[str]) -> None:
        """Write it to an ``.npz`` file, from which :func:`lipcert.load` reads a network with the same digest."""
        type(self).writer(self, path)

    @property
    def parameters(self) -> int:
        """Numbers that are stored: entries of weights, and biases."""
        return sum(entries(layer.linear) + layer.size for layer in self.layers)

    def __repr__(self) -> str:
        kinds = dict.fromkeys(layer.describe() for layer in self.layers if layer.plain)
        shape = f"inputs {self.input_shape}, " if self.input_shape and len(self.input_shape) > 1 else ""
        sizes = ", ".join([sizes_in_words(self.sizes), *kinds])
        return f"Network({sizes}, {shape}{self.parameters:,} parameters, digest {self.digest[:12]})"

    def __call__(self, x: Any) -> Array:
        """The output v_N for inputs of shape (..., inputs), or in the shape of ``input_shape``."""
        return self.preactivations(x)[-1]

    def preactivations(self, x: Any) -> list[Array]:
        """v_1 … v_N for inputs of shape (..., inputs)."""
        z = self.point("x", x)
        values = []
        for layer in self.layers:
            values.append(layer.affine(z))
            z = layer.activated(values[-1])
        return values

    def jacobian(self, x: Any, side: int = 1) -> Array:
        """W_N D_{N-1} … D_1 W_1 at inputs of shape (..., inputs); at kinks the derivative from ``side``."""
        point = self.point("x", x)
        values = [v[..., None, :] for v in self.preactivations(point)]
        turns = [(one.pushed, one.pulled) for one in self.layers]
        return self._product(point.shape[:-1], lambda k, rows, turn: turns[k][turn](values[k], side, rows))

    def jacobian_of(self, slopes: Sequence[Array], batch: tuple[int, ...] = ()) -> Array:
        """The product W_N D_{N-1} … D_1 W_1 for given slopes (..., neurons), where these tell all."""
        return self._product(batch, lambda k, rows, _: rows * slopes[k][..., None, :] if k < len(slopes) else rows)

    def _product(self, batch: tuple[int, ...], between: Callable[[int, Array, int], Array]) -> Array:
        """All weights, and what is between them, multiplied from the narrower end; in steps of rows."""
        size = min(self.sizes[0], self.sizes[-1])
        rows = np.broadcast_to(np.eye(size), (*batch, size, size))
        if self.sizes[0] < self.sizes[-1]:
            for k, layer in enumerate(self.layers):
                rows = between(k, self.times(rows, layer.weight.T), 0)
            return np.swapaxes(rows, -1, -2)
        for k, layer in reversed(list(enumerate(self.layers))):
            rows = self.times(between(k, rows, 1), layer.weight)
        return rows

    def point(self, name: str, x: Any) -> Array:
        """X as float64 of shape (..., inputs), or an error that names the argument."""
        return self.flat(name, scaled(name, x))

    def flat(self, name: str, point: Array) -> Array:
        """A point, or several, of shape (..., inputs)."""
        return flattened(name, point, self.sizes[0], self.input_shape)

    def held(self, at: Any, moving: Array) -> Array:
        """The values of the first layer with inputs as in ``at``, but zero where they move."""
        point = self.point("at", at)
        point[moving] = 0.0
        return np.asarray(self.layers[0].affine(point))


def entries(linear: Any) -> int:
    """How many numbers of a weight are stored."""
    if hasattr(linear, "kernel"):
        return int(linear.kernel.size)
    return int(linear.size if isinstance(linear, np.ndarray) else linear.nnz)


def check_network(value: Any) -> None:
    """An error that says how to get a network unless this is one."""
    if isinstance(value, NetworkValues):
        return
    is_module = callable(getattr(value, "state_dict", None)) or isinstance(value, (str, PathLike))
    way = "read it with lipcert.load(…)" if is_module else "build one with Network.from_weights, or read one with load"
    raise InvalidInput(f"network must be a lipcert.Network, got {type(value).__name__}; {way}")


_DUAL = {"l1": np.inf, "l2": 2, "linf": 1}
"""The order of the dual norm."""


class RegionPoints(ABC):
    """What every region can do for a search."""

    center: Array
    radius: Array
    uniform: bool = True
    """Whether one number stands for all coordinates, however many the network has."""

    @property
    def dimension(self) -> int | None:
        """Number of inputs, or None where any will do."""
        return None if self.uniform else int(self.center.shape[-1])

    @property
    def extent(self) -> Array:
        """How far the region reaches from its centre in the ℓ2 norm, up to rounding."""
        return self.radius

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

    clip: Any
    norm: Any

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

    @property
    def extent(self) -> Array:
        """How far the ball reaches from its centre in the ℓ2 norm, up to rounding."""
        if self.plain:
            return self.radius
        return self.radius * float(np.linalg.norm(self.units) if self.norm.name == "linf" else self.units.max())

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
