"""Networks made of networks: one after the other, and a controller in its loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from lipcert.arguments.numbers import numbers
from lipcert.arguments.values import check_network
from lipcert.errors import InvalidInput, ProofFailed
from lipcert.importers.graph import Apply, Bilinear, Graph, Input, Linear, Node, Softmax
from lipcert.importers.lowering import lower
from lipcert.importers.precise import Precise, PreciseMatrix
from lipcert.kernel.domain import check_region, corners, same_region
from lipcert.model.arrays import Array
from lipcert.model.couplings import Coupling, Products
from lipcert.model.network import Layer, Network, Neurons
from lipcert.model.regions import Box, Region

_SAMPLES: Final = 1000
"""Points at which the factors of products are looked at."""
_KNOWN: Final = 0.001
"""Factors are taken to vary by so much of their size at least, since their intervals are wider than what is met."""
_LARGEST: Final = 60
"""Powers of two by which factors are scaled at most."""


class _Builder:
    """A graph under construction."""

    def __init__(self, inputs: int) -> None:
        self.nodes = [Node(Input(), (), (inputs,))]

    def affine(self, shift: Array, *terms: tuple[Any, int]) -> int:
        """The sum of matrix·node over some terms, plus a shift."""
        op = Linear(tuple(PreciseMatrix.of(matrix) for matrix, _ in terms), Precise.of(shift))
        return self._add(op, tuple(node for _, node in terms), len(shift))

    def after(self, network: Network, node: int, scales: Sequence[int] | None = None) -> int:
        """A network of the value of a node; with scales its products are made of squares, see :func:`squared`."""
        rest = None if scales is None else iter(scales)
        for layer in network.layers:
            node = self.affine(layer.bias, (layer.weight, node))
            if layer.coupling is not None:
                node = self._coupled(layer, layer.coupling, node, rest)
            elif layer.plain is not None:
                node = self._add(Apply(layer.plain), (node,), layer.size)
        return node

    def _coupled(self, layer: Layer, coupling: Coupling, node: int, scales: Iterator[int] | None) -> int:
        """The results of a layer whose values are coupled, one kind after the other."""
        values, results, parts = np.eye(layer.size), np.eye(coupling.width), []

        def after(op: Any, rows: Array) -> int:
            return self._add(op, (self.affine(np.zeros(len(rows)), (rows, node)),), len(rows))

        if coupling.plain:
            parts.append((results[:, : coupling.plain], after(Apply(layer.plain), values[: coupling.plain])))  # type: ignore[arg-type]
        for _, index in coupling.softmax_rows():
            parts.append((results[:, index.ravel()], after(Softmax(index.shape[1]), values[index.ravel()])))
        for product, place in coupling.sums():
            if scales is None:
                parts.append(
                    (results[:, place], self._add(Bilinear(product.one, product.two), (node, node), len(place)))
                )
                continue
            unit = np.exp2([next(scales) for _ in product.one.flat])[:, None]
            one, two = 0.5 * unit * values[product.one.ravel()], 0.5 / unit * values[product.two.ravel()]
            squares = after(Apply(Neurons.of("square", 2 * len(unit))), np.vstack([one + two, one - two]))
            sums = np.repeat(results[:, place], product.one.shape[1], axis=1)
            parts.append((np.hstack([sums, -sums]), squares))
        return self.affine(np.zeros(coupling.width), *parts)

    def _add(self, op: Any, inputs: tuple[int, ...], size: int) -> int:
        self.nodes.append(Node(op, inputs, (size,)))
        return len(self.nodes) - 1

    def network(self, output: int) -> Network:
        return lower(Graph(tuple(self.nodes), output)).network


def compose(*networks: Network) -> Network:
    """One network after the other: ``compose(f, g)`` is x → g(f(x)).

    Where two affine maps meet they become one, to within 2⁻⁵⁰ of each coefficient, or stay apart.

    Examples
    --------
    >>> import lipcert as lc
    >>> f = lc.Network.from_weights([[[1.0, 2.0]], [[3.0]]], activation="relu")
    >>> g = lc.Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]], activation="tanh")
    >>> lc.compose(f, g)([1.0, 0.5]).round(3)
    array([0.])
    """
    if not networks:
        raise InvalidInput("compose takes one network or more")
    for network in networks:
        check_network(network)
    for first, then in pairwise(networks):
        if first.outputs != then.inputs:
            raise InvalidInput(
                f"a network with {first.outputs} outputs is followed by one with {then.inputs} inputs; these must agree"
            )
    build, node = _Builder(networks[0].inputs), 0
    for network in networks:
        node = build.after(network, node)
    return build.network(node)


def feedback(A: Any, B: Any, controller: Network, offset: Any = None, disturbance: Any = None) -> Network:
    """The closed loop x⁺ = A x + B u(x) + c of a linear plant and a controller u, as a network.

    Parameters
    ----------
    A, B
        Matrices (states, states) and (states, controls).
    controller
        A network from states to controls.
    offset
        c, (states,); default zero.
    disturbance
        A matrix E (states, disturbances): the network then has more inputs w after the states, and E w is added.

    Examples
    --------
    >>> import lipcert as lc
    >>> u = lc.Network.from_weights([[[1.0, 1.0]], [[-1.0]]], activation="tanh")
    >>> loop = lc.feedback([[1.0, 0.1], [0.0, 1.0]], [[0.0], [0.1]], u)
    >>> loop([1.0, 0.0]).round(4)
    array([ 1.    , -0.0762])
    """
    plant, gain = np.atleast_2d(numbers("A", A)), np.atleast_2d(numbers("B", B))
    states = len(plant)
    c = np.zeros(states) if offset is None else np.broadcast_to(numbers("offset", offset), (states,))
    check_network(controller)
    if plant.shape != (states, states) or gain.shape != (states, controller.outputs) or controller.inputs != states:
        raise InvalidInput(
            f"A must be (states, states) and B (states, controls) for a controller from {controller.inputs} states to"
            f" {controller.outputs} controls, got {plant.shape} and {gain.shape}"
        )
    forces = np.zeros((states, 0)) if disturbance is None else np.atleast_2d(numbers("disturbance", disturbance))
    if len(forces) != states:
        raise InvalidInput(f"disturbance must have {states} rows, one for each state, got {forces.shape}")
    return closed_loop(Network.from_weights([np.hstack([plant, gain, forces])], [c]), controller)


def closed_loop(plant: Network, controller: Network) -> Network:
    """The loop x⁺ = plant(x, u(x), w) of any plant and a controller u, as a network of x and w.

    Parameters
    ----------
    plant
        A network whose inputs are the states, then the controls, then disturbances if there are any; its outputs are
        the states after a step.
    controller
        A network from states to controls.

    Examples
    --------
    >>> import lipcert as lc
    >>> plant = lc.Network.from_weights([[[1.0, 1.0], [0.0, 1.0]], [[1.0, 0.5]]], activation="sin")
    >>> u = lc.Network.from_weights([[[-1.0]]])
    >>> lc.closed_loop(plant, u)([0.5]).round(4)
    array([-0.2397])
    """
    check_network(controller)
    check_network(plant)
    states, controls = controller.inputs, controller.outputs
    forces = plant.inputs - states - controls
    if plant.outputs != states or forces < 0:
        raise InvalidInput(
            f"the plant must be from {states} states and {controls} controls, and disturbances, to {states} states,"
            f" as the controller is; got {plant.inputs} inputs and {plant.outputs} outputs"
        )
    build = _Builder(states + forces)
    control = build.after(controller, build.affine(np.zeros(states), (np.eye(states, states + forces), 0)))
    places = np.eye(plant.inputs)
    around = np.delete(places, range(states, states + controls), axis=1)
    into = build.affine(np.zeros(plant.inputs), (around, 0), (places[:, states : states + controls], control))
    inputs, outputs = plant.names
    called = (*inputs[:states], *inputs[states + controls :]) or controller.names[0], outputs or controller.names[0]
    return replace(build.network(build.after(plant, into)), names=called)


def unrolled(step: Network, steps: int) -> Network:
    """The states after 1, 2, … steps of a loop, one after the other.

    Inputs of the step that are no states come anew in every step; they are behind the states, step by step.
    """
    states, forces = step.outputs, step.inputs - step.outputs
    inputs = states + steps * forces
    build, eye = _Builder(inputs), np.eye(states)
    node = build.affine(np.zeros(states), (np.eye(states, inputs), 0)) if forces else 0
    reached = []
    for k in range(steps):
        if forces:
            force = np.zeros((step.inputs, inputs))
            force[states:, states + k * forces : states + (k + 1) * forces] = np.eye(forces)
            node = build.affine(np.zeros(step.inputs), (np.eye(step.inputs, states), node), (force, 0))
        node = build.after(step, node)
        reached.append(node)
    places = [np.kron(np.eye(steps)[:, [k]], eye) for k in range(steps)]
    return build.network(build.affine(np.zeros(steps * states), *zip(places, reached, strict=True)))


def squared(network: Network, scales: Sequence[int]) -> Network:
    """The same function without products: x·y = (½(s·x + y/s))² - (½(s·x - y/s))² with s = 2^scale, for any scales.

    So elementwise rules, Taylor models, cuts and the second opinion are about products too.
    """
    products = _factors(network)
    if len(scales) != sum(product.one.size for layer in products for product in layer):
        raise ProofFailed("there must be one scale for each product of signals")
    if not scales:
        return network
    if max(map(abs, scales)) > _LARGEST:
        raise ProofFailed(f"scales of products must be powers of two from -{_LARGEST} to {_LARGEST}")
    build = _Builder(network.inputs)
    return build.network(build.after(network, 0, scales))


def balanced(network: Network, region: Region) -> tuple[int, ...]:
    """Scales for which both factors of a product vary alike over a region: so the two squares bound it best."""
    z, scales = region.sample(_SAMPLES, np.random.default_rng(0)), []
    for layer, products in zip(network.layers, _factors(network), strict=True):
        v = layer.affine(z)
        for product in products:
            one, two = (v[:, part.ravel()] for part in (product.one, product.two))
            sizes = [np.ptp(part, axis=0) + _KNOWN * np.abs(part).max(axis=0) + 1e-9 for part in (one, two)]
            wanted = np.rint(0.5 * np.log2(sizes[1] / sizes[0]))
            scales += np.clip(wanted, -_LARGEST, _LARGEST).astype(int).tolist()
        z = layer.activated(v)
    return tuple(scales)


def _factors(network: Network) -> list[tuple[Products, ...]]:
    """The products of each layer."""
    return [layer.coupling.products if layer.coupling else () for layer in network.layers]


def fitted(step: Network, region: Region, disturbance: Box | None) -> tuple[Region, Box | None]:
    """The regions with coordinates as the step has states and disturbances."""
    if disturbance is not None and not isinstance(disturbance, Box):
        raise InvalidInput(f"disturbance must be a Box(lower, upper), got {type(disturbance).__name__}")
    if disturbance is None or step.inputs <= step.outputs:
        _check_count(step, 0 if disturbance is None else len(disturbance.lower))
        return region.fitted(step), disturbance
    states, forces = range(step.outputs), range(step.outputs, step.inputs)
    region, disturbance = region.fitted(step.select(states)), disturbance.fitted(step.select(forces))
    check_sizes(step, region, disturbance)
    return region, disturbance


def check_sizes(step: Network, region: Region, disturbance: Box | None) -> None:
    """An error unless the step is from such states and disturbances to states."""
    _check_count(step, 0 if disturbance is None else len(disturbance.lower))
    check_region(region, step.outputs)


def _check_count(step: Network, forces: int) -> None:
    if step.inputs != step.outputs + forces:
        raise InvalidInput(
            f"the step has {step.inputs} inputs and {step.outputs} outputs: it needs a disturbance of"
            f" {step.inputs - step.outputs} coordinates, got {forces}"
        )


def joined(*regions: Region) -> Box:
    """The box of what is in some boxes, one after the other; balls count as the boxes around them."""
    return Box(*(np.concatenate(sides) for sides in zip(*map(corners, regions), strict=True)))


def same_kind(one: Region, two: Region) -> bool:
    """Whether two regions are the same set, given in the same way."""
    return type(one) is type(two) and same_region(one, two)
