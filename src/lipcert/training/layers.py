"""A module as layers whose weights are live: functions of its parameters, so that gradients reach these.

The module is exported as by :func:`lipcert.load`, and cut where the network that is read is cut: in front of the
activations of each layer. Between two cuts its own operations, with the parameters as they are now, are an affine map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import fx

from lipcert.errors import UnreadableModel
from lipcert.importers.graph import Apply, Graph, Input, Linear, Node
from lipcert.importers.lowering import levels
from lipcert.importers.precise import Precise
from lipcert.importers.torch import functional, silent
from lipcert.importers.torch_ops import ACTIVATIONS, ARRANGING, bound, name_of
from lipcert.model.activations import Activation, activation
from lipcert.model.network import Neurons

Values = Mapping[fx.Node, Any]
_POINTS = 8
"""At how many points a segment is tried."""

_IDENTITIES = ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
"""What is in the table of activations and does nothing in evaluation mode."""
_FLAT = ("flatten", "view", "reshape", "clone", "contiguous", "alias", *_IDENTITIES)
"""Operations that keep all elements in their order."""
_AFFINE = ARRANGING | {
    *("linear", "addmm", "matmul", "mm", "mv", "add", "sub", "rsub", "mul", "div", "neg", "mean", "sum"),
    *("lerp", "batch_norm", "pad", "constant_pad_nd", "clone", "contiguous", "alias", "to", "_to_copy", *_IDENTITIES),
    *(f"{kind}{d}d" for kind in ("conv", "conv_transpose", "avg_pool", "adaptive_avg_pool") for d in (1, 2, 3)),
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"),
}
"""Operations that are affine in one operand where the others are fixed; each segment is tried at points, too."""
_LIMITS = (
    "gradients of bounds are for affine operations and activations that are single operations of PyTorch without"
    " parameters; certify with lipcert.load and lipcert.certify instead"
)


class _Rows:
    """Stands for the builder of a network, and notes which row of the table an operation asks for."""

    unit = 2.0**-24

    def activate(self, _: Any, name: str, **parameters: Any) -> Activation:
        return activation(name, **parameters)


@dataclass(frozen=True, eq=False)
class Segment:
    """The affine map between two layers of activations: from known values to targets, each side by side.

    ``way`` are the operations between them, in order; ``sizes`` and ``shapes`` are those of the known values.
    """

    known: tuple[fx.Node, ...]
    way: tuple[fx.Node, ...]
    targets: tuple[fx.Node, ...]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [tuple(node.meta["val"].shape) for node in self.known]

    @property
    def width(self) -> int:
        return sum(int(np.prod(shape)) for shape in self.shapes)

    def values(self, held: Values, z: torch.Tensor) -> torch.Tensor:
        """The targets, (batch, targets), for known values (batch, width)."""
        if (own := self._linear(held)) is not None:
            return torch.nn.functional.linear(z, *own)
        return torch.func.vmap(lambda one: self._one(held, one))(z)

    def _one(self, held: Values, z: torch.Tensor) -> torch.Tensor:
        parts = z.split([int(np.prod(shape)) for shape in self.shapes])
        values = dict(held)
        for node, part, shape in zip(self.known, parts, self.shapes, strict=True):
            values[node] = part.reshape(shape)
        for node in self.way:
            values[node] = called(node, values)
        return torch.cat([values[node].reshape(-1) for node in self.targets])

    def weight(self, held: Values) -> torch.Tensor:
        """The matrix of the map, (targets, width)."""
        if (own := self._linear(held)) is not None:
            return own[0]
        return self.change(held, torch.eye(self.width).to(self.zero)).T

    def change(self, held: Values, rows: torch.Tensor) -> torch.Tensor:
        """rows·weightᵀ, (batch, targets)."""
        values = self.values(held, torch.cat([rows, self.zero]))
        return values[:-1] - values[-1:]

    @property
    def zero(self) -> torch.Tensor:
        """An input, (1, width)."""
        like = self.known[0].meta["val"]
        return torch.zeros(1, self.width, dtype=like.dtype, device=like.device)

    def _linear(self, held: Values) -> list[torch.Tensor] | None:
        """The weight, and the bias if it has one, of a single linear layer, where the map is no more than that."""
        own = [node for node in self.way if name_of(node.target) not in _FLAT]
        if len(own) != 1 or len(self.known) > 1 or len(self.targets) > 1 or name_of(own[0].target) != "linear":
            return None
        found: list[Any] = [held.get(node) for node in own[0].args[1:] if isinstance(node, fx.Node)]
        return found if isinstance(found[0], torch.Tensor) and found[0].shape[1] == self.width else None


class LiveModule:
    """A module for inputs of one shape, cut into segments and activations.

    Attributes
    ----------
    segments : one per layer.
    applied : per hidden layer, the operations that are its activations; the neurons after them carry values on.
    neurons : the same as rows of the table.
    """

    def __init__(self, module: torch.nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        program = _exported(module, shape, dtype)
        graph = program.graph_module
        self._graph, self._constants = graph, dict(program.constants)
        self._names = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
        nodes = list(graph.graph.nodes)
        self.input = next(node for node in nodes if node.name in program.graph_signature.user_inputs)
        output = next(node.args[0][0] for node in nodes if node.op == "output")
        order = [self.input]  # and what depends on it
        for node in nodes:
            if node.op == "call_function" and any(operand in order for operand in node.all_input_nodes):
                order.append(node)
        self._order = {node: place for place, node in enumerate(order)}
        if output not in self._order:
            raise UnreadableModel("the output of the module does not depend on its input; there is nothing to bound")
        cuts = levels(self._as_graph(output))
        self.segments, self.applied, self.neurons = [], [], []
        for level in cuts:
            known, applied, carried = ([order[k] for k in part] for part in (level.known, level.applied, level.carried))
            targets = [*(node.all_input_nodes[0] for node in applied), *carried] or [output]
            self.segments.append(self._segment(known, targets))
            if applied:
                self.applied.append(applied)
                self.neurons.append(_neurons(applied, sum(_size(node) for node in carried)))
        self._try(module)

    def _as_graph(self, output: fx.Node) -> Graph:
        """The operations as nodes of the graph that readers of models make, for the choice of cuts."""
        made = []
        for node in self._order:
            value = node.meta["val"]
            if not isinstance(value, torch.Tensor):
                raise UnreadableModel(f"{node.name} returns several tensors; {_LIMITS}")
            op: Any = Linear((), Precise.of(np.zeros(0)))
            if node is self.input:
                op = Input()
            elif name_of(node.target) in ACTIVATIONS and name_of(node.target) not in _IDENTITIES:
                op = Apply(Neurons(0, ()))
            elif name_of(node.target) not in _AFFINE:
                raise UnreadableModel(f"the module has {name_of(node.target)}; {_LIMITS}")
            inputs = tuple(self._order[operand] for operand in node.all_input_nodes if operand in self._order)
            made.append(Node(op, inputs, tuple(value.shape)))
        return Graph(tuple(made), self._order[output])

    def _segment(self, known: Sequence[fx.Node], targets: Sequence[fx.Node]) -> Segment:
        way: set[fx.Node] = set()
        pending = [node for node in targets if node not in known]
        while pending:
            node = pending.pop()
            if node not in way:
                way.add(node)
                pending += [one for one in node.all_input_nodes if one in self._order and one not in known]
        return Segment(tuple(known), tuple(sorted(way, key=self._order.__getitem__)), tuple(targets))

    @torch.no_grad()
    def _try(self, module: torch.nn.Module) -> None:
        """Refuse segments that are not affine: for random points f(2a - b) = 2f(a) - f(b)."""
        layers, generator = self.now(module), torch.Generator().manual_seed(0)
        for index, segment in enumerate(self.segments):
            a, b = torch.randn(2, _POINTS, segment.width, generator=generator).to(segment.zero)
            f = [layers.affine(index, z) for z in (2.0 * a - b, a, b)]
            if not bool(torch.isfinite(f[0]).all()):
                raise UnreadableModel(f"layer {index + 1} is not finite: its weights are too large, or not numbers")
            if not torch.allclose(f[0], 2.0 * f[1] - f[2], rtol=1e-3, atol=1e-3 * float(f[0].abs().max())):
                names = ", ".join(dict.fromkeys(name_of(node.target) for node in segment.way))
                raise UnreadableModel(f"layer {index + 1} ({names}) is not affine; {_LIMITS}")

    def now(self, module: torch.nn.Module) -> Layers:
        """The layers with the parameters as they are now."""
        held = self._held(module)
        return Layers(self, held)

    def _held(self, module: torch.nn.Module) -> dict[fx.Node, Any]:
        """All that does not depend on the input."""
        values: dict[fx.Node, Any] = {}
        for node in self._graph.graph.nodes:
            if node is self.input:
                continue
            if node.op == "placeholder":
                values[node] = _fetched(module, self._names[node.name], self._constants)
            elif node.op == "get_attr":
                values[node] = getattr(self._graph, str(node.target))
            elif node.op == "call_function" and node not in self._order:
                values[node] = called(node, values)
        return values


@dataclass(frozen=True, eq=False)
class Layers:
    """The layers of a module with its parameters as they were when it was asked; weights are matrices.

    Layer by layer v = weight·z + bias and z = φ(v), with all that is known side by side in z, (batch, width).
    """

    cut: LiveModule
    held: Values

    @cached_property
    def weights(self) -> list[torch.Tensor]:
        return [segment.weight(self.held) for segment in self.cut.segments]

    def affine(self, index: int, z: torch.Tensor) -> torch.Tensor:
        """The pre-activations of a layer, (batch, neurons)."""
        return self.cut.segments[index].values(self.held, z)

    def bias(self, index: int) -> torch.Tensor:
        """(neurons,)"""
        return self.affine(index, self.cut.segments[index].zero)[0]

    def activate(self, index: int, v: torch.Tensor) -> torch.Tensor:
        """φ(v) of a hidden layer, (batch, neurons)."""
        nodes = self.cut.applied[index]
        sizes = [_size(node) for node in nodes]
        *parts, rest = v.split([*sizes, v.shape[-1] - sum(sizes)], dim=-1)
        done = [
            called(node, {**self.held, node.all_input_nodes[0]: part}) for node, part in zip(nodes, parts, strict=True)
        ]
        return torch.cat([*done, rest], dim=-1)

    def outputs(self, x: torch.Tensor) -> torch.Tensor:
        """f(x), (batch, outputs)."""
        z = x.flatten(1)
        for index in range(len(self.cut.applied)):
            z = self.activate(index, self.affine(index, z))
        return self.affine(len(self.cut.applied), z)


_modules: WeakKeyDictionary[torch.nn.Module, dict[Any, LiveModule]] = WeakKeyDictionary()


def layers_of(module: torch.nn.Module, x: torch.Tensor) -> Layers:
    """The layers of a module for inputs such as x (batch, ...); it is exported the first time."""
    key = tuple(x.shape[1:]), x.dtype
    known = _modules.setdefault(module, {})
    if key not in known:
        known[key] = LiveModule(module, *key)
    return known[key].now(module)


def called(node: fx.Node, values: Values) -> Any:
    """The result of one operation."""
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda operand: values[operand])
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _exported(module: torch.nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
    """The program of a module in evaluation mode; the modes of its parts are as before afterwards."""
    modes = {part: part.training for part in module.modules()}
    place = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
    module.eval()
    try:
        with silent(), torch.no_grad():
            example = torch.zeros(1, *shape, dtype=dtype, device=place)
            return functional(torch.export.export(module, (example,), strict=False))
    finally:
        for part, mode in modes.items():
            part.training = mode


def _fetched(module: torch.nn.Module, name: str, constants: Mapping[str, Any]) -> Any:
    """A parameter, buffer or constant by the name that the export gave it."""
    if name in constants:
        return constants[name]
    path, _, own = name.rpartition(".")
    return getattr(module.get_submodule(path), own)


def _size(node: fx.Node) -> int:
    return int(np.prod(node.meta["val"].shape))


def _neurons(applied: Sequence[fx.Node], carried: int) -> Neurons:
    """Rows of the table for the activations of a layer, and identities for what is carried."""
    groups, start = [], 0
    for node in applied:
        name = name_of(node.target)
        given = {key: value for key, value in bound(node.target, node.args, node.kwargs)[1:] if value is not None}
        try:
            if len(node.all_input_nodes) != 1:
                raise AttributeError("it has parameters")
            row = ACTIVATIONS[name](_Rows(), None, **given)
        except AttributeError:
            raise UnreadableModel(f"the module has {name}; {_LIMITS}") from None
        groups.append((row, np.arange(start, start + _size(node))))
        start += _size(node)
    if carried:
        groups.append((activation("identity"), np.arange(start, start + carried)))
    return Neurons(start + carried, tuple(groups))
