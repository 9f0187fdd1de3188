"""Networks from what users hand in, their values in floating point, and how they are printed: no proof asks for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from lipcert.arguments.numbers import Array, check_chain, flattened, hidden, layers, listed, scaled
from lipcert.arguments.words import sizes_in_words
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


class LayerValues(ABC):
    """Of one layer, in floating point."""

    bias: Array
    plain: Any
    coupling: Any

    @abstractmethod
    def image(self, z: Array) -> Array:
        """weight·z for z of shape (..., inputs)."""

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
