"""The lowering itself: rewrites, then layer after layer as one affine map and one row of activations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from scipy import sparse

from lipcert.activations import Activation, activation
from lipcert.importers.graph import Affine, Apply, Constant, Graph, Join, Pick, Scale, Sum
from lipcert.importers.lowering.constants import fold_constants
from lipcert.importers.lowering.gates import recognise_gates
from lipcert.importers.lowering.maximum import expand_maxima
from lipcert.importers.lowering.prune import prune
from lipcert.importers.lowering.schedule import Level, levels
from lipcert.network import Network, Neurons
from lipcert.typing import Array, Parameter, Weight

SPARSE_BELOW = 0.25
"""Density under which a weight is stored sparse."""

SPARSE_FROM = 10_000
"""Entries from which sparse storage pays."""


@dataclass(frozen=True)
class Origin:
    """Where a layer of the network comes from.

    Attributes
    ----------
    folded : the model's operations that went into the layer's weight and bias.
    applied : those that became its activations.
    carried : how many neurons carry values past the layer.
    dropped : how many neurons were left out because nothing uses them.
    """

    folded: tuple[str, ...]
    applied: tuple[str, ...]
    carried: int
    dropped: int


@dataclass(frozen=True, eq=False)
class Lowered:
    """A network and, layer by layer, where it comes from."""

    network: Network
    origins: tuple[Origin, ...]


REWRITES = (fold_constants, recognise_gates, expand_maxima)
"""Each returns a graph of the same function, nearer to what a network can hold."""


def lower(graph: Graph) -> Lowered:
    """The network that computes what the graph does."""
    graph = reduce(lambda g, rewrite: rewrite(g), REWRITES, graph.live())
    weights, biases, neurons, origins = [], [], [], []
    for level in levels(graph):
        last = not level.applied
        targets = [graph.output] if last else [graph.nodes[i].inputs[0] for i in level.applied] + list(level.carried)
        forms, folded = _forms(graph, level.known, targets)
        weight, bias = _stack([forms[t] for t in targets], {i: graph.nodes[i].size for i in level.known})
        weights.append(weight)
        biases.append(bias)
        if not last:
            neurons.append(_neurons(graph, level))
        applied = dict.fromkeys(graph.nodes[i].label() for i in level.applied)
        carried = sum(graph.nodes[i].size for i in level.carried)
        origins.append(Origin(folded, tuple(applied), carried, 0))
    network = prune(Network.from_weights(weights, biases, neurons))
    dropped = [len(b) - layer.size for b, layer in zip(biases, network.layers, strict=True)]
    carried_now = [_identities(layer.neurons) for layer in network.layers]
    return Lowered(
        network,
        tuple(
            Origin(o.folded, o.applied, min(o.carried, now), d)
            for o, d, now in zip(origins, dropped, carried_now, strict=True)
        ),
    )


@dataclass(frozen=True, eq=False)
class _Form:
    """Σ matrices[k]·(known value k) + offset."""

    matrices: Mapping[int, Weight]
    offset: Array


def _forms(graph: Graph, known: Sequence[int], targets: Sequence[int]) -> tuple[dict[int, _Form], tuple[str, ...]]:
    """The targets, and what lies on the way to them, as affine forms of the known values."""
    needed: set[int] = set()
    pending = list(targets)
    while pending:
        position = pending.pop()
        if position not in needed:
            needed.add(position)
            if position not in known:
                pending += graph.nodes[position].inputs
    forms: dict[int, _Form] = {}
    for position in sorted(needed):
        node = graph.nodes[position]
        if position in known:
            forms[position] = _Form({position: sparse.csr_array(sparse.eye_array(node.size))}, np.zeros(node.size))
        else:
            forms[position] = _form(node.op, [forms[i] for i in node.inputs])
    passed = (graph.nodes[i] for i in sorted(needed - set(known)))
    return forms, tuple(dict.fromkeys(node.label() for node in passed if not isinstance(node.op, Constant)))


def _form(op: object, operands: Sequence[_Form]) -> _Form:
    match op:
        case Constant(number=number):
            return _Form({}, np.asarray(number, dtype=float))
        case Affine(weight=weight, bias=bias):
            return _map(operands[0], weight, bias)
        case Scale(factor=factor, shift=shift):
            return _map(operands[0], sparse.csr_array(sparse.diags_array(factor)), shift)
        case Pick(index=index):
            rows = np.flatnonzero(index >= 0)
            shape = (index.size, operands[0].offset.size)
            chosen = sparse.csr_array((np.ones(rows.size), (rows, index[rows])), shape=shape)
            return _map(operands[0], chosen, np.zeros(index.size))
        case Sum():
            total: dict[int, Weight] = {}
            for form in operands:
                for k, matrix in form.matrices.items():
                    total[k] = total[k] + matrix if k in total else matrix
            return _Form(total, np.sum([form.offset for form in operands], axis=0))
        case Join():
            sizes = [form.offset.size for form in operands]
            starts = np.cumsum([0, *sizes[:-1]])
            placed = []
            for form, size, start in zip(operands, sizes, starts, strict=True):
                entries = (np.ones(size), (np.arange(size) + start, np.arange(size)))
                into = sparse.csr_array(entries, shape=(sum(sizes), size))
                placed.append(_map(form, into, np.zeros(sum(sizes))))
            return _form(Sum(), placed)
    raise AssertionError(f"{type(op).__name__} is left over")


def _map(form: _Form, weight: Weight, bias: Array) -> _Form:
    """weight·form + bias."""
    return _Form({k: weight @ matrix for k, matrix in form.matrices.items()}, weight @ form.offset + bias)


def _stack(forms: Sequence[_Form], known: Mapping[int, int]) -> tuple[Weight, Array]:
    """Forms one above the other, over the known values (position → size) side by side."""
    strips = []
    for form in forms:
        rows = form.offset.size
        blocks = [
            sparse.csr_array(form.matrices[k]) if k in form.matrices else sparse.csr_array((rows, size))
            for k, size in known.items()
        ]
        strips.append(sparse.hstack(blocks, format="csr"))
    return _stored(sparse.vstack(strips, format="csr")), np.concatenate([form.offset for form in forms])


def _stored(matrix: Weight) -> Weight:
    """Sparse where that is worth it, else dense."""
    entries = sparse.csr_array(matrix)
    entries.eliminate_zeros()
    area = entries.shape[0] * entries.shape[1]
    if area >= SPARSE_FROM and entries.nnz < SPARSE_BELOW * area:
        entries.sort_indices()
        return entries
    return np.asarray(entries.toarray())


def _neurons(graph: Graph, level: Level) -> Neurons:
    """The activations of a level, then identities for what is carried; equal rows are joined."""
    shared: dict[tuple[str, tuple[Parameter, ...]], list[Array]] = {}
    own: list[tuple[Activation, Array]] = []
    start = 0
    for position in (*level.applied, *level.carried):
        node = graph.nodes[position]
        groups: Sequence[tuple[Activation, Array]]
        if position in level.applied:
            assert isinstance(node.op, Apply)
            groups = node.op.neurons.groups
        else:
            groups = ((activation("identity"), np.arange(node.size)),)
        for row, index in groups:
            if any(np.ndim(parameter) for parameter in row.parameters):
                own.append((row, index + start))
            else:
                shared.setdefault((row.name, row.parameters), []).append(index + start)
        start += node.size
    joined = [(Activation(name, parameters), np.concatenate(index)) for (name, parameters), index in shared.items()]
    return Neurons(start, (*joined, *own))


def _identities(neurons: Neurons | None) -> int:
    return sum(index.size for row, index in neurons.groups if row.name == "identity") if neurons else 0
