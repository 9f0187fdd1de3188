"""Feed-forward networks as the engine sees them: affine maps and elementwise activations, frozen."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from lipcert.arguments.values import LayerValues, NetworkValues, NeuronsValues, layer_parts, rows_per_neuron
from lipcert.errors import InvalidInput, ProofFailed
from lipcert.model.activations import Activation, activation
from lipcert.model.arrays import Array, Weight, frozen, indices, times
from lipcert.model.convolution import MOST_ENTRIES, Convolution
from lipcert.model.couplings import Coupling


@dataclass(frozen=True, eq=False)
class Neurons(NeuronsValues):
    """The activations of one layer: groups of neurons that share a row of the table.

    ``groups`` pairs an activation with the indices of its neurons; together they cover ``size`` neurons.
    """

    size: int
    groups: tuple[tuple[Activation, Array], ...]

    def __post_init__(self) -> None:
        if not self.groups:  # of no neurons: one group, so that rules give empty arrays
            object.__setattr__(self, "groups", ((Activation("identity"), np.arange(0)),))

    @staticmethod
    def of(spec: str | Activation | Sequence[str | Activation] | Neurons, size: int) -> Neurons:
        """One activation for the whole layer, or one per neuron."""
        return Neurons(size, rows_per_neuron(spec, size, activation, Activation))

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
            out = np.empty((*pieces[0].shape[:-1], self.size), dtype=pieces[0].dtype)
            for (_, index), piece in zip(self.groups, pieces, strict=True):
                out[..., index] = piece
            results.append(out)
        return tuple(results)


@dataclass(frozen=True, eq=False)
class Layer(LayerValues):
    """v = weight·z + bias, then z = φ(v) unless it is the network's last layer (``neurons`` None).

    ``linear`` is the weight as it is stored: a matrix, or a convolution, whose matrix is made when it is asked for.
    With a ``coupling``, the elementwise activations ``plain`` are those of the first values only.
    """

    linear: Weight | Convolution
    bias: Array
    plain: Neurons | None
    coupling: Coupling | None = None
    times = staticmethod(times)

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


@dataclass(frozen=True, eq=False, repr=False)
class Network(NetworkValues):
    """A frozen feed-forward network z_0 → v_N; build it with :meth:`from_weights`.

    Layer i maps z_{i-1} to v_i = W_i z_{i-1} + b_i and, except for the last, z_i = φ(v_i). ``input_shape`` is the shape
    in which inputs may be given, where a model that was read says so; the function does not depend on it. ``names`` are
    what inputs and outputs are called in tables and plots, where they have names.
    """

    layers: tuple[Layer, ...]
    input_shape: tuple[int, ...] | None = None
    names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    times = staticmethod(times)

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
        single = str, Activation, Neurons
        parts = layer_parts(weights, biases, activation, Neurons.of, single, Coupling, Convolution)
        return Network(tuple(Layer(*part) for part in parts))

    def __post_init__(self) -> None:
        for layer in self.layers:
            frozen(layer.linear.kernel if isinstance(layer.linear, Convolution) else layer.linear)
            frozen(layer.bias)

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
        layers = list(self.layers)
        if inputs is not None:
            first = layers[0]
            weight: Any = first.weight[:, columns]
            if sparse.issparse(weight):
                weight.sort_indices()  # scipy would sort them where they are read, and they are read-only then
            layers[0] = replace(first, linear=weight, bias=first.bias if at is None else self.held(at, columns))
        last = layers[-1]
        if outputs is not None:
            layers[-1] = Layer(last.weight[rows], last.bias[rows], None)
        return Network(tuple(layers), self.input_shape if inputs is None else None)


def _identity(linear: Weight | Convolution) -> Iterator[bytes]:
    """What tells one linear map from another."""
    if isinstance(linear, Convolution) and linear.entries > MOST_ENTRIES:
        facts = linear.kernel.shape, linear.image, linear.stride, linear.padding, linear.dilation
        yield f"convolution {facts} {linear.groups} {linear.circular}".encode()
        yield (np.asarray(linear.kernel, dtype="<f8") + 0.0).tobytes()
        return
    yield repr(linear.shape).encode()
    stored = linear.sparse() if isinstance(linear, Convolution) else linear
    matrix = sparse.csr_array(stored, copy=True)  # the stored arrays are read-only
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    for part, kind in zip((matrix.indptr, matrix.indices, matrix.data), ("<i8", "<i8", "<f8"), strict=True):
        yield np.asarray(part, dtype=kind).tobytes()
