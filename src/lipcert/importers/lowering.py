"""The lowering itself: each layer as one affine map, composed far beyond double precision, and its activations."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from lipcert.importers.convolutions import recognised
from lipcert.importers.graph import Apply, Bilinear, Graph, Input, Linear, Node, Offender, Softmax, refuse
from lipcert.importers.precise import PreciseMatrix
from lipcert.model.activations import Activation
from lipcert.model.arrays import Array
from lipcert.model.convolution import Convolution
from lipcert.model.couplings import Coupling
from lipcert.model.network import Layer, Network, Neurons
from lipcert.runtime.clock import clock

SPARSE_BELOW, SPARSE_FROM = 0.25, 10_000
"""A weight is stored sparse if it is less dense than this, and has at least so many entries that it pays."""

KERNELS_FROM = 512
"""Neurons from which a dense matrix is looked at as a convolution too."""

_REASON = (
    "one of its coefficients is not finite, or no double is near enough to it; scale the layers around it so that"
    " all coefficients that are not zero lie between 1e-120 and 1e120"
)


@dataclass(frozen=True)
class Origin:
    """Where a layer of the network comes from.

    ``folded`` are the model's operations in its weight and bias, ``applied`` those that became its activations;
    ``carried`` neurons carry values past the layer, ``dropped`` ones were left out because nothing uses them.
    """

    folded: tuple[str, ...]
    applied: tuple[str, ...]
    carried: int
    dropped: int


@dataclass(frozen=True, eq=False)
class Imported:
    """A network, where its layers come from, and how many parameters the model has."""

    network: Network
    origins: tuple[Origin, ...]
    parameters: int = 0


def lower(graph: Graph) -> Imported:
    """The network that computes what the graph does.

    Each weight and bias is within 2⁻⁵⁰ of a coefficient of a composition of the graph's affine maps, relatively. Where
    that cannot be shown, the maps stay apart, with identity neurons between them.
    """
    graph = graph.live()
    merged, apart = fold(graph)
    while apart:
        graph = separate(graph, apart)
        merged, apart = fold(graph)
    network, layers, origins = prune(Network(tuple(layer for layer, *_ in merged))), [], []
    for (before, kernel, origin), layer in zip(merged, network.layers, strict=True):
        kept = kernel is not None and kernel.shape == layer.linear.shape  # not pruned
        layers.append(replace(layer, linear=kernel) if kept else layer)
        same = [index.size for row, index in layer.plain.groups if row.name == "identity"] if layer.plain else []
        origins.append(replace(origin, carried=min(origin.carried, sum(same)), dropped=before.size - layer.size))
    return Imported(Network(tuple(layers)), tuple(origins))


Merged = tuple[Layer, Convolution | None, Origin]
"""A layer before pruning, the convolution that its weight is, and where it comes from."""


def fold(graph: Graph) -> tuple[list[Merged], set[int]]:
    """The layers as far as maps could be merged, and the nodes whose operands must be values of their own."""
    merged, apart = [], set()
    for number, level in enumerate(levels(graph), 1):
        clock().say(f"reading the model: layer {number}")
        targets = level.targets(graph) or [graph.output]
        forms = _forms(graph, level.known, targets)
        for target in targets:
            if not _fits(*forms[target]):  # the first node on the way of which this is true
                way = sorted(graph.ancestors([target], level.known))
                apart.add(next(position for position in way if not _fits(*forms[position])))
        if not apart:
            merged.append(_merged(graph, level, targets, forms))
    return merged, apart


Form = tuple[PreciseMatrix, PreciseMatrix]
"""The matrix of all known values, one after the other, and the offset, a column."""


def _fits(matrix: PreciseMatrix, offset: PreciseMatrix) -> bool:
    """Whether each coefficient has a float within 2⁻⁵⁰ of it, as a certificate's theorem allows."""
    return bool(matrix.values.good.all() and offset.values.good.all())


def _merged(graph: Graph, level: Level, targets: Sequence[int], forms: Mapping[int, Form]) -> Merged:
    """A layer, all of whose coefficients can be rounded."""
    entries, offset = (PreciseMatrix.stacked([forms[target][k] for target in targets]).nearest for k in (0, 1))
    bias = offset.toarray().ravel() + 0.0
    area = entries.shape[0] * entries.shape[1]
    thin = area >= SPARSE_FROM and entries.nnz < SPARSE_BELOW * area
    weight = entries if thin else np.asarray(entries.toarray())
    shapes, known = ([graph.nodes[i].shape for i in nodes] for nodes in (targets, level.known))
    coupling = _coupling(graph, level)
    large = thin or max(weight.shape) >= KERNELS_FROM
    kernel = recognised(entries, shapes, known) if large and coupling is None else None
    passed = [graph.nodes[i] for i in forms if i not in level.known]
    origin = Origin(
        tuple(dict.fromkeys(node.label() for node in passed if node.inputs)),
        tuple(dict.fromkeys(graph.nodes[i].label() for i in (*level.applied, *level.softmax, *level.products))),
        sum(graph.nodes[i].size for i in level.carried),
        0,
    )
    neurons = _neurons(graph, level) if level.targets(graph) else None
    return Layer(weight, bias, neurons, coupling), kernel, origin


def _forms(graph: Graph, known: Sequence[int], targets: Sequence[int]) -> dict[int, Form]:
    """The targets, and what lies on the way to them, as affine forms of the known values."""
    sizes = [graph.nodes[i].size for i in known]
    starts, width = dict(zip(known, np.cumsum([0, *sizes]).tolist(), strict=False)), sum(sizes)
    forms: dict[int, Form] = {}
    for position in sorted(graph.ancestors(targets, known)):
        node, op = graph.nodes[position], graph.nodes[position].op
        if position in starts:
            chosen = PreciseMatrix.choosing(np.arange(node.size) + starts[position], width)
            forms[position] = chosen, PreciseMatrix.choosing(np.full(node.size, -1), 1)
            continue
        assert isinstance(op, Linear), f"{type(op).__name__} is left over"
        pairs = [(part, *forms[i]) for part, i in zip(op.parts, node.inputs, strict=True)]
        matrix = PreciseMatrix.total([part @ matrix for part, matrix, _ in pairs], (node.size, width))
        offsets = [PreciseMatrix.column(op.shift), *(part @ offset for part, _, offset in pairs)]
        forms[position] = matrix, PreciseMatrix.total(offsets, (node.size, 1))
    return forms


def _neurons(graph: Graph, level: Level) -> Neurons:
    """The activations of a level, then identities for what is carried; equal rows are joined."""
    joined: dict[Any, tuple[Activation, list[Array]]] = {}
    start = 0
    for position in (*level.applied, *level.carried):
        node, op = graph.nodes[position], graph.nodes[position].op
        same = Neurons.of("identity", node.size)
        for row, index in (op.neurons if isinstance(op, Apply) and position in level.applied else same).groups:
            alone = any(np.ndim(parameter) for parameter in row.parameters)
            joined.setdefault(len(joined) if alone else (row.name, row.parameters), (row, []))[1].append(index + start)
        start += node.size
    return Neurons(start, tuple((row, np.concatenate(index)) for row, index in joined.values()))


def _coupling(graph: Graph, level: Level) -> Coupling | None:
    """The softmax rows and products of a level, by the places of their values in the layer."""
    if not level.softmax and not level.products:
        return None
    plain = sum(graph.nodes[i].size for i in (*level.applied, *level.carried))
    rows = [(graph.nodes[i], op.width) for i in level.softmax if isinstance(op := graph.nodes[i].op, Softmax)]
    size, start = plain + sum(node.size for node, _ in rows), {}
    for key in level.factors(graph):
        start[key] = size
        size += graph.nodes[key[1]].size
    products = []
    for position in level.products:
        op, (left, right) = graph.nodes[position].op, graph.nodes[position].inputs
        assert isinstance(op, Bilinear)
        products.append((op.one + start[0, left], op.two + start[1, right]))
    return Coupling.of(plain, size, [(node.size // width, width) for node, width in rows], products)


def separate(graph: Graph, nodes: Collection[int]) -> Graph:
    """The same function: the operands of the given nodes become neurons with the activation identity.

    Raises
    ------
    UnreadableModel
        An operation that stands alone already has a coefficient that no float is near enough to.
    """
    new: list[Node] = []
    place: list[int] = []
    alone = []
    for position, node in enumerate(graph.nodes):
        inputs = [place[i] for i in node.inputs]
        if position in nodes:
            cut = [k for k, i in enumerate(node.inputs) if not isinstance(graph.nodes[i].op, (Input, *NONLINEAR))]
            for k in cut:
                before = graph.nodes[node.inputs[k]]
                new.append(replace(before, op=Apply(Neurons.of("identity", before.size)), inputs=(inputs[k],)))
                inputs[k] = len(new) - 1
            if not cut:
                alone.append(Offender(node.source, node.kind, node.shape, _REASON))
        new.append(replace(node, inputs=tuple(inputs)))
        place.append(len(new) - 1)
    if alone:
        refuse(alone)
    return Graph(tuple(new), place[graph.output]).live()


def prune(network: Network) -> Network:
    """The same function without hidden neurons whose column in the next weight is zero, from the output backwards."""
    layers = list(network.layers)
    for i in range(len(layers) - 2, -1, -1):
        here, after = layers[i], layers[i + 1]
        used = np.flatnonzero(abs(after.weight).sum(axis=0))
        if used.size == here.width:
            continue
        used = used if used.size else np.zeros(1, dtype=int)
        taken, plain, coupling = used, used, None
        if here.coupling is not None:
            used, taken, plain, coupling = _coupled_used(here.coupling, used)
        assert here.plain is not None
        layers[i] = Layer(here.weight[taken], here.bias[taken], here.plain.take(plain), coupling)
        columns = after.weight[:, used]
        layers[i + 1] = replace(after, linear=columns if sparse.issparse(columns) else np.ascontiguousarray(columns))
    return Network(tuple(layers))


def _coupled_used(coupling: Coupling, used: Array) -> tuple[Array, Array, Array, Coupling]:
    """A coupling that gives the results that are used, and some more; softmax rows stay as they are.

    The results that are kept, the layer's values that are, and those of its elementwise ones.
    """
    needed, wanted = np.zeros(coupling.width, dtype=bool), np.zeros(coupling.size, dtype=bool)
    needed[used] = True
    needed[coupling.plain : coupling.factors] = True
    wanted[: coupling.factors] = needed[: coupling.factors]
    for product, place in coupling.sums():
        wanted[product.both[needed[place]]] = True
    needed[: coupling.plain] |= wanted[: coupling.plain]  # a value that is a factor too needs its place, and its result
    place = np.cumsum(wanted) - 1
    sums = [(product, needed[at]) for product, at in coupling.sums() if needed[at].any()]
    products = [(place[product.one[kept]], place[product.two[kept]]) for product, kept in sums]
    plain = np.flatnonzero(wanted[: coupling.plain])
    fewer = Coupling.of(plain.size, int(wanted.sum()), coupling.rows, products)
    return np.flatnonzero(needed), np.flatnonzero(wanted), plain, fewer


# which activations make up a layer, and which values travel past it: activations are taken as early as they can be, and
# identity neurons carry the smallest set of tensors that later layers can be computed from, a minimum vertex cut

NONLINEAR = (Apply, Softmax, Bilinear)
"""What makes a layer."""
CONSTANT = -1
"""Depth of what does not depend on the input."""


@dataclass(frozen=True)
class Level:
    """One layer: the values known before it, the activations in it, the values carried past it (node positions)."""

    known: tuple[int, ...]
    applied: tuple[int, ...]
    carried: tuple[int, ...]
    softmax: tuple[int, ...] = ()
    products: tuple[int, ...] = ()

    def factors(self, graph: Graph) -> list[tuple[int, int]]:
        """The side and the node of each factor of its products."""
        pairs = (enumerate(graph.nodes[i].inputs) for i in self.products)
        return list(dict.fromkeys(pair for each in pairs for pair in each))

    def targets(self, graph: Graph) -> list[int]:
        """The nodes that are its values, in order."""
        first = [graph.nodes[i].inputs[0] for i in self.applied]
        rows = [graph.nodes[i].inputs[0] for i in self.softmax]
        return [*first, *self.carried, *rows, *(node for _, node in self.factors(graph))]


def levels(graph: Graph) -> Iterator[Level]:
    """The layers in order, and at the end one without activations, from which the output is read."""
    depth = depths(graph)
    known: tuple[int, ...] = (0,)
    uses = [(operand, user) for user, node in enumerate(graph.nodes) for operand in node.inputs]
    for level in range(1, depth[graph.output] + 1):
        here = {i: n for i, n in enumerate(graph.nodes) if isinstance(n.op, NONLINEAR) and depth[i] == level}
        applied, softmax, products = (tuple(i for i in here if isinstance(graph.nodes[i].op, op)) for op in NONLINEAR)
        wanted = sorted({i for i, user in uses if 0 <= depth[i] < level <= depth[user] and user not in here})
        carried = cheapest(graph, known, wanted, depth)
        yield Level(known, applied, carried, softmax, products)
        known = (*applied, *carried, *softmax, *products)
    yield Level(known, (), ())


def depths(graph: Graph) -> list[int]:
    """For each node, how many activations lie on the longest way to it from the input."""
    depth: list[int] = []
    for node in graph.nodes:
        before = max((depth[i] for i in node.inputs), default=CONSTANT)
        if isinstance(node.op, Input):
            before = 0
        assert isinstance(node.op, (Input, Linear, *NONLINEAR)), f"{type(node.op).__name__} is left over"
        depth.append(max(before, 0) + 1 if isinstance(node.op, NONLINEAR) else before)
    return depth


def cheapest(graph: Graph, known: Sequence[int], wanted: Sequence[int], depth: Sequence[int]) -> tuple[int, ...]:
    """The smallest set of tensors, computable from the known ones, that determines the wanted ones."""
    if not wanted:
        return ()
    order = sorted(node for node in graph.ancestors(wanted, known) if depth[node] != CONSTANT)
    place = {node: k for k, node in enumerate(order)}
    count = len(order)
    source, sink = 2 * count, 2 * count + 1  # node k enters at k and leaves at count + k
    unlimited = min(2**30, 1 + sum(graph.nodes[i].size for i in order))
    edges = [(k, count + k, graph.nodes[node].size) for node, k in place.items()]
    for node, k in place.items():
        if node in known:
            edges.append((source, k, unlimited))
        else:
            operands = dict.fromkeys(i for i in graph.nodes[node].inputs if i in place)
            edges += [(count + place[i], k, unlimited) for i in operands]
    edges += [(count + place[node], sink, unlimited) for node in dict.fromkeys(wanted)]
    start, stop, capacity = (np.array(part, dtype=np.int32) for part in zip(*edges, strict=True))
    network = sparse.csr_array((capacity, (start, stop)), shape=(2 * count + 2, 2 * count + 2), dtype=np.int32)
    left = sparse.csr_array(network - maximum_flow(network, source, sink).flow)
    left.eliminate_zeros()
    reached = set(breadth_first_order(left, source, return_predecessors=False).tolist())
    return tuple(node for node, k in place.items() if k in reached and count + k not in reached)
