"""Feed-forward networks as the engine sees them: affine maps and elementwise activations, frozen."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from lipcert.arguments.numbers import check_chain, flattened, hidden, layers, listed, scaled
from lipcert.arguments.words import sizes_in_words
from lipcert.errors import InvalidInput, ProofFailed
from lipcert.model.activations import Activation, activation
from lipcert.model.arrays import Array, Weight, indices, times
from lipcert.model.convolution import MOST_ENTRIES, Convolution
from lipcert.model.couplings import Coupling

_DENSE = 2048
"""A larger identity is sparse: in full it would need the square of its size."""


@dataclass(frozen=True, eq=False)
class Neurons:
    """The activations of one layer: groups of neurons that share a row of the table.

    ``groups`` pairs an activation with the indices of its neurons; together they cover ``size`` neurons.
    """

    size: int
    groups: tuple[tuple[Activation, Array], ...]

    @staticmethod
    def of(spec: str | Activation | Sequence[str | Activation] | Neurons, size: int) -> Neurons:
        """One activation for the whole layer, or one per neuron."""
        if isinstance(spec, Neurons):
            if spec.size != size:
                raise InvalidInput(f"activation is for {spec.size} neurons, the layer has {size}")
            return spec
        if isinstance(spec, (str, Activation)):
            row = activation(spec)
            for parameter in row.parameters:
                if np.ndim(parameter) and np.shape(parameter) != (size,):
                    raise InvalidInput(
                        f"activation {row.name!r} has parameters of shape {np.shape(parameter)},"
                        f" the layer has {size} neurons"
                    )
            return Neurons(size, ((row, np.arange(size)),))
        rows = [activation(item) for item in listed("activation", spec)]
        if not rows and not size:
            return Neurons.of("identity", 0)
        if len(rows) != size:
            raise InvalidInput(f"activation must name one row per neuron: got {len(rows)} for {size} neurons")
        for place, row in enumerate(rows):
            if any(np.ndim(parameter) for parameter in row.parameters):
                raise InvalidInput(f"activation of neuron {place} must have single numbers as parameters, got {row}")
        keys = [(row.name, row.parameters) for row in rows]
        distinct = sorted(set(keys), key=keys.index)
        where = [np.flatnonzero([key == kind for key in keys]) for kind in distinct]
        return Neurons(size, tuple((Activation(*kind), index) for kind, index in zip(distinct, where, strict=True)))

    def take(self, neurons: Array) -> Neurons:
        """The activations of the given neurons, in the given order."""
        groups = []
        for row, index in self.groups:  # the indices of a group ascend
            place = np.minimum(np.searchsorted(index, neurons), len(index) - 1)
            new = np.flatnonzero(index[place] == neurons)
            if new.size:
                groups.append((row.take(place[new]), new))
        return Neurons(len(neurons), tuple(groups))

    def value(self, v: Array) -> Array:
        """φ(v), neuron by neuron along the last axis."""
        return self.gather(lambda row, part: (row.value(part),), v)[0]

    def slope(self, v: Array, side: int = 1) -> Array:
        """φ'(v) from one side, neuron by neuron along the last axis."""
        return self.gather(lambda row, part: (row.slope(part, side),), v)[0]

    def slope_range(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """The slopes α ≤ β that each neuron can have on its interval."""
        alpha, beta = self.gather(lambda row, low, high: row.slope_range(low, high), lower, upper)
        return alpha, beta

    def gather(self, rule: Any, *arrays: Array) -> tuple[Array, ...]:
        """Apply a rule group by group along the last axis and put the results back in place."""
        if len(self.groups) == 1:
            return tuple(rule(self.groups[0][0], *arrays))
        parts = [rule(row, *(a[..., index] for a in arrays)) for row, index in self.groups]
        results = []
        for pieces in zip(*parts, strict=True):
            out = np.empty(np.shape(arrays[0]))
            for (_, index), piece in zip(self.groups, pieces, strict=True):
                out[..., index] = piece
            results.append(out)
        return tuple(results)

    def describe(self) -> str:
        """Names of the rows in use, for people."""
        return ", ".join(dict.fromkeys(row.name for row, _ in self.groups))


@dataclass(frozen=True, eq=False)
class Layer:
    """v = weight·z + bias, then z = φ(v) unless it is the network's last layer (``neurons`` None).

    ``linear`` is the weight as it is stored: a matrix, or a convolution, whose matrix is made when it is asked for.
    With a ``coupling``, the elementwise activations ``plain`` are those of the first values only.
    """

    linear: Weight | Convolution
    bias: Array
    plain: Neurons | None
    coupling: Coupling | None = None

    @property
    def neurons(self) -> Neurons | None:
        """The activations of all values, for those who know elementwise ones only."""
        if self.coupling is not None:
            raise ProofFailed(
                "what was asked for is not known of products and softmax of signals yet; over a ball or a box bounds,"
                " lower bounds and certified radii of such networks are"
            )
        return self.plain

    @cached_property
    def weight(self) -> Weight:
        """The matrix (outputs, inputs), dense or sparse."""
        return self.linear.matrix() if isinstance(self.linear, Convolution) else self.linear

    @property
    def convolution(self) -> Convolution | None:
        """The weight as a convolution, where it is stored as one."""
        return self.linear if isinstance(self.linear, Convolution) else None

    @property
    def size(self) -> int:
        return int(self.linear.shape[0])

    @property
    def width(self) -> int:
        """How many numbers z has."""
        return self.size if self.coupling is None else self.coupling.width

    def describe(self) -> str:
        """Names of its activations, for people."""
        names = [self.plain.describe()] if self.plain and self.plain.size else []
        return ", ".join([*names, *(self.coupling.describe() if self.coupling else ())])

    def affine(self, z: Array) -> Array:
        """weight·z + bias for z of shape (..., inputs)."""
        if self.convolution is not None:
            return self.convolution.forward(z) + self.bias
        return times(z, self.weight.T) + self.bias

    def activated(self, v: Array) -> Array:
        """Z for v of shape (..., size)."""
        if self.plain is None:
            return v
        if self.coupling is None:
            return self.plain.value(v)
        return self.coupling.value(v, self.plain.value(v[..., : self.plain.size]))

    def pushed(self, v: Array, side: int, dv: Array) -> Array:
        """The derivative of z at v in directions dv (..., size), at kinks from a side."""
        if self.plain is None:
            return dv
        if self.coupling is None:
            return self.plain.slope(v, side) * dv
        plain = slice(None, self.plain.size)
        return self.coupling.push(v, dv, self.plain.slope(v[..., plain], side) * dv[..., plain])

    def pulled(self, v: Array, side: int, dz: Array) -> Array:
        """The derivative of Σ dz·z by v, for dz (..., width)."""
        if self.plain is None:
            return dz
        if self.coupling is None:
            return self.plain.slope(v, side) * dz
        plain = slice(None, self.plain.size)
        return self.coupling.pull(v, dz, self.plain.slope(v[..., plain], side) * dz[..., plain])


@dataclass(frozen=True, eq=False)
class Network:
    """A frozen feed-forward network z_0 → v_N; build it with :meth:`from_weights`.

    Layer i maps z_{i-1} to v_i = W_i z_{i-1} + b_i and, except for the last, z_i = φ(v_i). ``input_shape`` is the shape
    in which inputs may be given, where a model that was read says so; the function does not depend on it. ``names`` are
    what inputs and outputs are called in tables and plots, where they have names.
    """

    layers: tuple[Layer, ...]
    input_shape: tuple[int, ...] | None = None
    names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    writer: ClassVar[Callable[[Network, str | PathLike[str]], None]]
    """How it is written to a file; set by :mod:`lipcert.files.networks`."""

    @staticmethod
    def from_weights(weights: Sequence[Any], biases: Sequence[Any] | None = None, activation: Any = "relu") -> Network:
        """A network from its weight matrices.

        Parameters
        ----------
        weights
            W_1 … W_N, each (outputs, inputs), dense or scipy.sparse, or a :class:`Convolution`.
        biases
            b_1 … b_N, or None for zeros; single entries may be None.
        activation
            One name or :class:`Activation` for all hidden layers, or a list with one entry per hidden layer; an
            entry may itself be a list with one activation per neuron. N entries instead of N-1 put an
            activation on the output too. A pair of an entry and a :class:`Coupling` is a layer with softmax rows or
            products; the entry is about its first values.

        Examples
        --------
        >>> Network.from_weights([[[1.0, -1.0], [0.5, 2.0]], [[1.0, 1.0]]], activation="tanh").sizes
        (2, 2, 1)
        """
        matrices, vectors = layers(weights, biases, Convolution)
        specs = hidden(activation, len(matrices), (str, Activation, Neurons))
        couplings = [spec[1] if _is_coupled(spec) else None for spec in specs]
        specs = [spec[0] if _is_coupled(spec) else spec for spec in specs]
        widths = [w.shape[0] if c is None else c.width for w, c in zip(matrices, couplings)]
        check_chain([w.shape for w in matrices], widths)
        if len(specs) == len(matrices):  # the output has an activation: a further identity layer reads it out
            size = widths[-1]
            matrices.append(np.eye(size) if size <= _DENSE else sparse.csr_array(sparse.eye_array(size)))
            vectors.append(np.zeros(size))
        neurons = []
        for number, (spec, w, coupling) in enumerate(zip(specs, matrices, couplings), 1):
            if coupling is not None and coupling.size != w.shape[0]:
                raise InvalidInput(f"the coupling of layer {number} is for {coupling.size} values, not {w.shape[0]}")
            neurons.append(Neurons.of(spec, w.shape[0] if coupling is None else coupling.plain))
        ends = [*neurons, None], [*couplings, None]
        return Network(tuple(Layer(*parts) for parts in zip(matrices, vectors, *ends, strict=True)))

    def __post_init__(self) -> None:
        for layer in self.layers:
            weight = layer.linear.kernel if isinstance(layer.linear, Convolution) else layer.linear
            parts = (weight,) if isinstance(weight, np.ndarray) else (weight.data, weight.indices, weight.indptr)
            for array in (layer.bias, *parts):
                np.asarray(array).flags.writeable = False

    def save(self, path: str | PathLike[str]) -> None:
        """Write it to an ``.npz`` file, from which :func:`lipcert.load` reads a network with the same digest."""
        Network.writer(self, path)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of neurons, the input first."""
        return (int(self.layers[0].linear.shape[1]), *(layer.size for layer in self.layers))

    @cached_property
    def coupled(self) -> bool:
        """Whether any layer has softmax rows or products."""
        return any(layer.coupling is not None for layer in self.layers)

    @property
    def inputs(self) -> int:
        return self.sizes[0]

    @property
    def outputs(self) -> int:
        return self.sizes[-1]

    @property
    def depth(self) -> int:
        return len(self.layers)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that defines the function, as hexadecimal.

        A convolution of up to MOST_ENTRIES entries counts as its matrix. It begins with ``declared:`` where facts are.
        """
        state = hashlib.sha256()
        for layer in self.layers:
            for part in _identity(layer.linear):
                state.update(part)
            state.update((np.asarray(layer.bias, dtype="<f8") + 0.0).tobytes())
            groups = layer.plain.groups if layer.plain else ()
            state.update(f"|{len(groups)} groups|".encode())
            for row, index in groups:
                state.update(f"{row.name}|{len(index)} neurons|".encode())  # all that follows is of known length
                for parameter in row.parameters:
                    state.update(np.broadcast_to(np.asarray(parameter, dtype="<f8"), index.shape).tobytes())
                state.update(np.asarray(index, dtype="<i8").tobytes())
            for part in layer.coupling.identity() if layer.coupling else ():
                state.update(part)
        return f"{'declared:' if self.declared else ''}{state.hexdigest()}"

    @property
    def declared(self) -> tuple[str, ...]:
        """For each activation that was defined by a formula: its name, and what of it was only declared."""
        rows = {row.name: row.row for layer in self.layers if layer.plain for row, _ in layer.plain.groups}
        return tuple(f"{name}: {row.declared}" for name, row in rows.items() if row.declared)

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
            v = layer.affine(z)
            values.append(v)
            z = layer.activated(v)
        return values

    def jacobian(self, x: Any, side: int = 1) -> Array:
        """W_N D_{N-1} … D_1 W_1 at inputs of shape (..., inputs); at kinks the derivative from ``side``."""
        point = self.point("x", x)
        if self.coupled:
            return self._coupled_jacobian(point, side)
        slopes = [
            layer.plain.slope(v, side)
            for layer, v in zip(self.layers, self.preactivations(point), strict=True)
            if layer.plain
        ]
        return self.jacobian_of(slopes, point.shape[:-1])

    def jacobian_of(self, slopes: Sequence[Array], batch: tuple[int, ...] = ()) -> Array:
        """The product W_N D_{N-1} … D_1 W_1 for given slopes (..., neurons), from its narrower end."""
        assert not self.coupled, "slopes alone do not tell"
        if self.inputs < self.outputs:
            maps, ends = [layer.weight.T for layer in self.layers], list(slopes)
        else:
            maps, ends = [layer.weight for layer in self.layers[::-1]], list(slopes[::-1])
        size = min(self.inputs, self.outputs)
        product = times(np.broadcast_to(np.eye(size), (*batch, size, size)), maps[0])
        for weight, slope in zip(maps[1:], ends, strict=True):
            product = times(product * slope[..., None, :], weight)
        return np.swapaxes(product, -1, -2) if self.inputs < self.outputs else product

    def _coupled_jacobian(self, point: Array, side: int) -> Array:
        """The same with couplings, from the narrower end."""
        values = [v[..., None, :] for v in self.preactivations(point)]
        size = min(self.inputs, self.outputs)
        eye = np.broadcast_to(np.eye(size), (*point.shape[:-1], size, size))
        if self.inputs < self.outputs:
            for layer, v in zip(self.layers, values, strict=True):
                eye = layer.pushed(v, side, times(eye, layer.weight.T))
            return np.swapaxes(eye, -1, -2)
        for layer, v in zip(self.layers[::-1], values[::-1], strict=True):
            eye = times(layer.pulled(v, side, eye), layer.weight)
        return eye

    def slice(self, start: int, stop: int) -> Network:
        """The part from z_start (0: the input) to v_stop."""
        if not 0 <= start < stop <= self.depth:
            raise InvalidInput(f"layers must satisfy 0 <= p < i <= {self.depth}, got ({start}, {stop})")
        part = self.layers[start:stop]
        shape = self.input_shape if start == 0 else None
        return Network((*part[:-1], Layer(part[-1].linear, part[-1].bias, None)), shape)

    def select(
        self, inputs: Iterable[int] | None = None, outputs: Iterable[int] | None = None, at: Any = None
    ) -> Network:
        """The network from some inputs to some outputs, the other inputs held as in ``at`` (default zeros).

        With ``at`` the first bias is W·at + b in floating point: a network of its own, rounded.
        """
        columns = indices("inputs", inputs, self.inputs)
        rows = indices("outputs", outputs, self.outputs)
        held = np.zeros(self.inputs) if at is None else self.point("at", at)
        layers = list(self.layers)
        if inputs is not None:
            held[columns] = 0.0
            first = layers[0]
            weight: Any = first.weight[:, columns]
            if sparse.issparse(weight):
                weight.sort_indices()  # scipy would sort them where they are read, and they are read-only then
            layers[0] = replace(first, linear=weight, bias=first.affine(held))
        last = layers[-1]
        if outputs is not None:
            layers[-1] = Layer(last.weight[rows], last.bias[rows], None)
        return Network(tuple(layers), self.input_shape if inputs is None else None)

    def point(self, name: str, x: Any) -> Array:
        """X as float64 of shape (..., inputs), or an error that names the argument."""
        return self.flat(name, scaled(name, x))

    def flat(self, name: str, point: Array) -> Array:
        """A point, or several, of shape (..., inputs)."""
        return flattened(name, point, self.inputs, self.input_shape)


def _is_coupled(spec: Any) -> bool:
    return isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[1], Coupling)


def _identity(linear: Weight | Convolution) -> Iterator[bytes]:
    """What tells one linear map from another."""
    if isinstance(linear, Convolution) and linear.entries > MOST_ENTRIES:
        facts = linear.kernel.shape, linear.image, linear.stride, linear.padding, linear.dilation
        yield f"convolution {facts} {linear.groups} {linear.circular}".encode()
        yield (np.asarray(linear.kernel, dtype="<f8") + 0.0).tobytes()
        return
    yield repr(linear.shape).encode()
    if isinstance(linear, np.ndarray):
        rows, columns = np.nonzero(linear)
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(linear)))])
        parts = starts, columns, linear[rows, columns]
    else:
        stored = linear.sparse() if isinstance(linear, Convolution) else linear
        matrix = sparse.csr_array(stored, copy=True)  # the stored arrays are read-only
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        parts = matrix.indptr, matrix.indices, matrix.data
    for part, kind in zip(parts, ("<i8", "<i8", "<f8"), strict=True):
        yield np.asarray(part, dtype=kind).tobytes()


def entries(linear: Weight | Convolution) -> int:
    """How many numbers are stored."""
    if isinstance(linear, Convolution):
        return int(linear.kernel.size)
    return int(linear.size if isinstance(linear, np.ndarray) else linear.nnz)


def network_in(value: Any) -> Network:
    """The network, or an error that says how to get one from what came."""
    if isinstance(value, Network):
        return value
    is_module = callable(getattr(value, "state_dict", None)) or isinstance(value, (str, PathLike))
    way = "read it with lipcert.load(…)" if is_module else "build one with Network.from_weights, or read one with load"
    raise InvalidInput(f"network must be a lipcert.Network, got {type(value).__name__}; {way}")
