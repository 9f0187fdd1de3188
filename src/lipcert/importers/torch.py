"""PyTorch modules, by symbolic tracing; parameters are read from a copy in double precision."""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lipcert.errors import InvalidInput, LipcertError, UnreadableModel
from lipcert.importers.builder import Builder, Tensor, Unsupported
from lipcert.importers.faithful import Imported, Original, confirm
from lipcert.importers.lowering import lower
from lipcert.typing import Array

try:
    import torch
    from torch import fx
except ImportError:  # pragma: no cover - depends on the installation
    raise LipcertError('reading PyTorch models needs PyTorch: pip install "lipcert[torch]"') from None

from lipcert.importers import torch_ops as ops


def read_module(
    module: torch.nn.Module,
    *,
    input_shape: Sequence[int] | None = None,
    drop_softmax: bool = False,
    points: Any = None,
) -> Imported:
    """The network of a module, as it computes on a batch of one.

    Parameters
    ----------
    module
        In evaluation mode; it is not changed.
    input_shape
        Without the batch, such as (3, 32, 32); may be left out where the first layer tells it.
    drop_softmax
        Take what a final softmax receives as the output.
    points
        Inputs, flat, at which to compare the network with the module besides random ones.
    """
    module = getattr(module, "_orig_mod", module)
    if not isinstance(module, torch.nn.Module):
        raise InvalidInput(f"module must be a torch.nn.Module, got {type(module).__name__}")
    if isinstance(module, torch.jit.ScriptModule):
        raise UnreadableModel("a TorchScript module cannot be traced; pass the nn.Module that it was made from")
    training = [name or "the module itself" for name, part in module.named_modules() if part.training]
    if training:
        raise UnreadableModel(f"the module is in training mode ({_few(training)}); call module.eval() first")
    traced = _trace(module, input_shape, drop_softmax)
    network = lower(_Reader(traced).read())
    original = Original(traced.run, traced.dtype == torch.float32, "PyTorch")
    confirm(network.network, original, points)
    return Imported(network, traced.shape[1:], sum(parameter.numel() for parameter in module.parameters()))


@dataclass(frozen=True, eq=False)
class _Traced:
    """A copy of a module as a graph of calls; every node's shape is known for the input shape (with batch)."""

    module: fx.GraphModule
    shape: tuple[int, ...]
    dtype: torch.dtype

    def run(self, x: Array) -> Array:
        """The output for one flat input."""
        with torch.no_grad():
            result = self.module(torch.as_tensor(x, dtype=self.dtype).reshape(self.shape))
        return np.asarray(result.detach().numpy(), dtype=float).ravel()


def _trace(module: torch.nn.Module, input_shape: Sequence[int] | None, drop_softmax: bool) -> _Traced:
    """The traced copy, in double precision, or in single where the module insists on it."""
    first: Exception | None = None
    for dtype in (torch.float64, torch.float32):
        try:
            twin = copy.deepcopy(module).cpu().to(dtype)
            if type(module).__module__.startswith("torch.nn"):  # a bare layer: read it as a whole
                twin = torch.nn.Sequential(twin).eval()
            traced = fx.GraphModule(twin, fx.Tracer().trace(twin))
        except Exception as error:  # tracing runs the module's own code, which may fail in any way
            reason = str(error).splitlines()[0] if str(error) else ""
            raise UnreadableModel(
                "torch.fx cannot trace the module: its forward must not decide by the values or types of tensors"
                f" ({type(error).__name__}: {reason})"
            ) from error
        _one_in_one_out(traced)
        if drop_softmax:
            _drop_softmax(traced)
        shape = (1, *_input_shape(traced, input_shape))
        result = _Traced(traced, shape, dtype)
        try:
            ops.propagate_shapes(traced, torch.zeros(shape, dtype=dtype))
        except Exception as error:  # the module's own code again
            first = first or error
            continue
        return result
    assert first is not None
    cause = first.__cause__ or first
    raise UnreadableModel(
        f"the module fails on an input of shape {shape}: {str(cause).splitlines()[0]};"
        " give input_shape without the batch, such as input_shape=(3, 32, 32)"
    ) from first


def _one_in_one_out(traced: fx.GraphModule) -> None:
    inputs = [n for n in traced.graph.nodes if n.op == "placeholder"]
    needed = [n for n in inputs if not n.args]
    for spare in (n for n in inputs if n.args and n not in needed[:1]):
        if spare.users:
            names = ", ".join(str(n.target) for n in inputs)
            raise UnreadableModel(f"the module takes {len(inputs)} inputs ({names}); a network has one")
    if len(needed) != 1:
        names = ", ".join(str(n.target) for n in needed) or "none"
        raise UnreadableModel(f"the module takes {len(needed)} inputs ({names}); a network has one")
    (result,) = (n.args[0] for n in traced.graph.nodes if n.op == "output")
    if not isinstance(result, fx.Node):
        kind = type(result).__name__
        raise UnreadableModel(f"the module returns a {kind}; a network has one tensor as output: wrap it to select one")


def _drop_softmax(traced: fx.GraphModule) -> None:
    """Let the output be what the final softmax receives."""
    (output,) = (n for n in traced.graph.nodes if n.op == "output")
    last = output.args[0]
    if not ops.is_softmax(traced, last):
        raise InvalidInput(f"drop_softmax=True, but the last operation is {ops.kind_of(traced, last)}, not a softmax")
    output.args = (last.args[0] if last.args else last.kwargs["input"],)
    traced.graph.eliminate_dead_code()
    traced.recompile()


def _input_shape(traced: fx.GraphModule, given: Sequence[int] | None) -> tuple[int, ...]:
    if given is not None:
        shape = tuple(int(s) for s in np.atleast_1d(np.asarray(given)))
        if not shape or min(shape) < 1:
            raise InvalidInput(f"input_shape must be positive sizes without the batch, got {given}")
        return shape
    node = next(n for n in traced.graph.nodes if n.op == "placeholder" and n.users)
    while len(node.users) >= 1:
        for user in node.users:
            size = ops.input_size(traced, user)
            if size is not None:
                return (size,)
        node = next(iter(node.users))
        if not ops.keeps_size(traced, node):
            break
    raise InvalidInput("the module does not tell the shape of its input; give input_shape, such as (3, 32, 32)")


class _Opaque:
    """The result of an operation without translation that is not a tensor."""


class _Reader:
    """Walks the traced graph and writes ours."""

    def __init__(self, traced: _Traced) -> None:
        self.traced = traced
        self.build = Builder(traced.shape)
        self.values: dict[fx.Node, Any] = {}

    def read(self) -> Any:
        """The finished graph, or an error with every offender."""
        module = self.traced.module
        for node in module.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = self.build.input if not node.args else node.args[0]
            elif node.op == "get_attr":
                self.values[node] = ops.attribute(module, str(node.target))
            elif node.op == "output":
                output = self._value(node.args[0])
            else:
                self.values[node] = self._call(node)
        if isinstance(output, torch.Tensor):
            output = self.build.constant(output.detach().numpy())
        return self.build.finish(output if isinstance(output, Tensor) else self.build.unknown((1,)))

    def _call(self, node: fx.Node) -> Any:
        args, kwargs = self._value(node.args), self._value(node.kwargs)
        leaves = list(_leaves([args, kwargs]))
        shape = ops.shape_of(node)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if any(isinstance(leaf, _Opaque) for leaf in leaves):
            return _Opaque() if shape is None else self.build.unknown(shape, tensors)
        picks = node.target is operator.getitem and isinstance(args[0], (tuple, list))
        if picks or (not tensors and node.op != "call_module"):
            return self._constant(node, args, kwargs)
        name = str(node.target) if node.op == "call_module" else node.name
        with self.build.reading(name, ops.kind_of(self.traced.module, node), shape):
            return ops.translate(self.build, self.traced.module, node, args, kwargs)
        return _Opaque() if shape is None else self.build.unknown(shape, tensors)

    def _constant(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """What does not depend on the input is left to PyTorch."""
        with torch.no_grad():
            if node.op == "call_method":
                return getattr(args[0], str(node.target))(*args[1:], **kwargs)
            assert callable(node.target)
            return node.target(*args, **kwargs)

    def _value(self, argument: Any) -> Any:
        return fx.node.map_arg(argument, lambda n: self.values[n])


def _leaves(tree: Any) -> Any:
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, slice):
        tree = [tree.start, tree.stop, tree.step]
    if isinstance(tree, (list, tuple)):
        for branch in tree:
            yield from _leaves(branch)
    else:
        yield tree


def _few(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


__all__ = ["Unsupported", "read_module"]
