"""PyTorch modules, by symbolic tracing; parameters are read from a copy in double precision."""

from __future__ import annotations

import copy
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np

from lipcert.errors import InvalidInput, LipcertError, UnreadableModel
from lipcert.importers.builder import Opaque, Positions, Tensor, Unsupported
from lipcert.importers.faithful import DOUBLE, SINGLE, Imported, Original, confirm
from lipcert.importers.lowering.lower import lower
from lipcert.importers.registry import of_module
from lipcert.importers.untrusted import few
from lipcert.model.arrays import Array

try:
    import torch
    from torch import fx
except ImportError:  # pragma: no cover - depends on the installation
    raise LipcertError('reading PyTorch models needs PyTorch: pip install "lipcert[torch]"') from None

from lipcert.importers import torch_guard as guard
from lipcert.importers import torch_modules as modules
from lipcert.importers.torch_ops import TorchBuilder

_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def read_module(
    module: torch.nn.Module,
    *,
    input_shape: Sequence[int] | None,
    drop_softmax: bool,
    points: Any,
    fixed: Mapping[str, Any] | None = None,
    output: str | int | None = None,
) -> Imported:
    """The network of a module in evaluation mode, which is not changed; the options are those of ``lipcert.load``.

    The shape of the input may be left out where the first layer tells it.
    """
    module = _given(guard.unwrapped(module), fixed, output)
    guard.inspect(module)
    if isinstance(points, torch.Tensor):
        points = points.detach().cpu().numpy()
    with guard.one_thread():
        own = _own(module, input_shape)
        single = _watch(module, own)
        read = own if own.dtype == torch.float64 else _doubled(module, own, input_shape)
        if drop_softmax:
            for traced in {id(own): own, id(read): read}.values():
                _drop_softmax(traced.graph)
        lowered = lower(_Reader(read, single).read())
        for original in _originals(module, own, read, drop_softmax):
            confirm(lowered.network, original, points, sizes=_large_constants(read.graph))
        run, probes = next(_originals(module, own, own, False)).run, [x.numpy().ravel() for x in own.inputs()]
        alone = [run(x) for x in probes]
    if not all(_close(one, run(x)) for one, x in zip(alone, probes, strict=True)):
        raise UnreadableModel("the module's outputs depend on the number of threads; its forward must not look at that")
    return Imported(lowered, own.shape[1:], sum(parameter.numel() for parameter in module.parameters()))


class _Given(torch.nn.Module):
    """Calls a module with one tensor, and takes what is asked for from its result.

    Whatever has a default and is not given keeps it: the module's own code sees the default, not a stand-in.
    """

    def __init__(self, module: torch.nn.Module, entry: str, fixed: Mapping[str, Any], chosen: str | int | None) -> None:
        super().__init__()
        self.model = module
        self.entry, self.chosen, self.numbers = entry, chosen, {}
        for name, value in fixed.items():
            if isinstance(value, torch.Tensor):
                self.register_buffer(f"fixed_{name}", value)
            else:
                self.numbers[name] = value
        self.tensors = [name for name, value in fixed.items() if isinstance(value, torch.Tensor)]
        self.training = False  # not eval(), which would change the module

    def forward(self, x: Any) -> Any:
        arguments = {self.entry: x, **self.numbers}
        for name in self.tensors:
            arguments[name] = getattr(self, f"fixed_{name}")
        result = self.model(**arguments)
        return result if self.chosen is None else _chosen(result, self.chosen)


def _chosen(result: Any, name: str | int) -> Any:
    if isinstance(result, Mapping) and name in result:
        return result[name]
    if isinstance(result, (tuple, list)) and isinstance(name, int) and -len(result) <= name < len(result):
        return result[name]
    if isinstance(name, str) and hasattr(result, name) and (is_dataclass(result) or isinstance(result, tuple)):
        return getattr(result, name)
    raise UnreadableModel(f"the module returns {_described(result)}; there is no output {name!r} in it")


def _described(result: Any) -> str:
    """What a module returns, for people."""
    kind = type(result).__name__
    if isinstance(result, Mapping):
        return f"a dictionary with {few(map(repr, result))}"
    if is_dataclass(result) or hasattr(result, "_fields"):
        return f"a {kind} with {few(getattr(result, '_fields', None) or vars(result))}"
    return f"a {kind} of {len(result)}" if isinstance(result, (tuple, list)) else f"a {kind}"


def _given(module: torch.nn.Module, fixed: Mapping[str, Any] | None, output: str | int | None) -> torch.nn.Module:
    """The module as a function of one tensor: itself, where it is one already."""
    if fixed is not None and not (isinstance(fixed, Mapping) and all(isinstance(name, str) for name in fixed)):
        raise InvalidInput(f"fixed must be a dictionary of arguments by name, got {fixed!r}")
    if output is not None and (not isinstance(output, (str, int)) or isinstance(output, bool)):
        raise InvalidInput(f"output must be the name or the number of an output, got {output!r}")
    if isinstance(module, torch.jit.ScriptModule):
        return module
    parameters = list(inspect.signature(type(module).forward).parameters.values())[1:]
    names = [p.name for p in parameters if p.kind not in _MANY]
    strange = [name for name in fixed or () if name not in names]
    if strange:
        raise InvalidInput(f"fixed names {few(strange)}; forward takes {few(names)}")
    free = [p for p in parameters if p.kind not in _MANY and p.name not in (fixed or {})]
    if len(parameters) == 1 and not fixed and output is None:
        return module
    if not free:
        raise UnreadableModel(f"the module takes 0 inputs that are not fixed ({few(names)}); a network has one")
    entry, *others = free
    needed = [p.name for p in others if p.default is inspect.Parameter.empty]
    if needed:
        raise UnreadableModel(
            f"the module takes {1 + len(needed)} inputs ({entry.name}, {few(needed)}); a network has one: give the"
            f" others as fixed={{{needed[0]!r}: …}}"
        )
    if entry.kind is inspect.Parameter.POSITIONAL_ONLY:
        return module
    values = {name: _plain(name, value, guard.precisions(module)[0]) for name, value in (fixed or {}).items()}
    return _Given(module, entry.name, values, output)


def _plain(name: str, value: Any, dtype: torch.dtype) -> Any:
    """Arrays as tensors, of real numbers in the module's own precision."""
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value.copy())
        value = value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise InvalidInput(
        f"fixed[{name!r}] must be an array, a tensor, a number, a string or None, got {type(value).__name__}"
    )


@dataclass(frozen=True, eq=False)
class _Traced:
    """A copy of a module, and its trace as a graph of calls; the shape is that of the input, with batch."""

    copy: torch.nn.Module
    graph: fx.GraphModule
    shape: tuple[int, ...]
    dtype: torch.dtype

    def inputs(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Two inputs."""
        draw = torch.Generator().manual_seed(0)
        one, two = (torch.randn(self.shape, generator=draw, dtype=self.dtype) for _ in range(2))
        return one, 1e3 * two


def _close(one: Array, two: Array) -> bool:
    """Whether two outputs are the same but for rounding."""
    size = np.abs(one[np.isfinite(one)]).max(initial=0.0)
    return bool(np.isclose(one, two, rtol=0.0, atol=1e-3 * size, equal_nan=True).all())


def _copied(module: torch.nn.Module) -> torch.nn.Module:
    try:
        return copy.deepcopy(module, guard.prepared(module)).cpu()
    except Exception as error:  # copying runs code of the module's own parts
        raise UnreadableModel(
            f"the module cannot be copied ({guard.first_line(error)}); keep open files, generators and results that"
            " hold gradients outside of it, and use torch.nn.utils.parametrizations for norms of weights"
        ) from error


def _own(module: torch.nn.Module, input_shape: Sequence[int] | None) -> _Traced:
    """The trace of a copy with inputs of the type that the module takes, which need not be that of all its numbers."""
    first, *others = guard.precisions(module)
    try:
        return _trace(_copied(module), first, input_shape)
    except UnreadableModel:
        if not others:
            raise
    return _trace(_copied(module), others[0], input_shape)


def _trace(module: torch.nn.Module, dtype: torch.dtype, input_shape: Sequence[int] | None) -> _Traced:
    """The trace of a module, which is changed by it if its code changes it."""
    try:
        # a bare layer is read as a whole
        alone = type(module).__module__.startswith("torch.nn") or of_module(module) is not None
        whole = torch.nn.Sequential(module).eval() if alone else module
        with guard.quiet():
            traced = fx.GraphModule(whole, _Tracer(input_shape).trace(whole))
    except LipcertError:  # there is no output of that name
        raise
    except Exception as error:  # tracing runs the module's own code, which may fail in any way
        raise UnreadableModel(
            f"torch.fx cannot trace the module ({guard.first_line(error)}); its forward must not decide by the values"
            " or types of tensors, and its layers must be made in __init__; where it looks at the sizes of its input,"
            " give input_shape. Or export it, if torch can, and load that file:"
            " torch.onnx.export(module, x, 'model.onnx', dynamo=True)"
        ) from error
    _one_in_one_out(traced)
    shape = (1, *_input_shape(traced, input_shape))
    try:
        with guard.quiet(), torch.no_grad():
            _Shapes(traced).run(torch.zeros(shape, dtype=dtype))
    except Exception as error:  # the module's own code again
        raise UnreadableModel(
            f"the module fails on an input of shape {shape}: {guard.first_line(error.__cause__ or error)};"
            f" {_advice(module)}"
        ) from error
    return _Traced(module, traced, shape, dtype)


def _advice(module: torch.nn.Module) -> str:
    """What may help a module that fails on an input."""
    if any(isinstance(part, (torch.nn.Embedding, torch.nn.EmbeddingBag)) for part in module.modules()):
        return "an Embedding takes whole numbers, and a Lipschitz constant is about real ones: load the part behind it"
    return (
        "give input_shape without the batch, such as input_shape=(3, 32, 32), and values of fixed= as the forward gets"
        " them, with a batch of one where it has one; a batch norm needs track_running_stats=True"
    )


def _watch(module: torch.nn.Module, own: _Traced) -> bool:
    """Refuse a module that changes itself, or does anything that its trace does not show.

    The result tells whether it computes in single precision throughout.

    A copy runs first, so that a module that is refused for changing itself is left as it was. Records of two kinds
    of devices cannot be compared, so that on others than the CPU the copy stands for the module.
    """
    for part in (_copied(module), module) if guard.device(module).type == "cpu" else (_copied(module),):
        before = guard.state(part)
        try:
            single = guard.compare(part, own.graph, own.inputs())
        except LipcertError:
            guard.unchanged(before, guard.state(part))  # what changes a module is the cause of what follows
            raise
        except Exception as error:  # the module's own code
            raise UnreadableModel(
                f"the module fails on an input of shape {own.shape}, though its trace does not"
                f" ({guard.first_line(error)})"
            ) from error
        guard.unchanged(before, guard.state(part))
    return single


def _doubled(module: torch.nn.Module, own: _Traced, input_shape: Sequence[int] | None) -> _Traced:
    """The trace of a copy in double precision, or the one in single where the module insists on it."""
    twin = _copied(module).double()
    try:
        traced = _trace(twin, torch.float64, input_shape)
        with guard.quiet():
            insists = guard.rounds(twin, traced.inputs()[0])
    except Exception:  # layers that get numbers of another type than their own fail in many ways
        return own
    pairs = zip(own.copy.state_dict().values(), twin.state_dict().values(), strict=True)
    equal = all(torch.equal(a.double(), b.double()) for a, b in pairs)
    return traced if equal and not insists and _alike(own.graph, traced.graph) else own


def _alike(one: fx.GraphModule, two: fx.GraphModule) -> bool:
    """Whether two traces are the same but for the precision of their numbers."""
    nodes = [*one.graph.nodes], [*two.graph.nodes]
    calls = ([(n.op, str(n.target), repr(n.args), repr(n.kwargs)) for n in each] for each in nodes)
    if next(calls) != next(calls):
        return False
    names = [str(node.target) for node in nodes[0] if node.op == "get_attr"]
    pairs = ((modules.attribute(one, name), modules.attribute(two, name)) for name in names)
    return all(torch.equal(a.double(), b.double()) for a, b in pairs if isinstance(a, torch.Tensor))


def _originals(module: torch.nn.Module, own: _Traced, read: _Traced, traces: bool) -> Iterator[Original]:
    """The module as it is, and its copy in double precision if that was read.

    Where a softmax was dropped their traces stand for them, which are known to do the same.
    """
    place, precision = guard.device(module), SINGLE if own.dtype == torch.float32 else DOUBLE
    call = own.graph if traces else lambda x: module(x.to(place))
    yield Original(_runner(call, own), precision, "PyTorch")
    if read is not own:
        # PyTorch's softplus switches to x where single precision cannot tell; a copy in double precision can
        coarse = 2.0**-21 if modules.holds(read.graph, "softplus") else 0.0
        call = read.graph if traces else read.copy
        yield Original(_runner(call, read), DOUBLE, "PyTorch in double precision", coarse)


def _runner(call: Callable[[Any], Any], traced: _Traced) -> Callable[[Array], Array]:
    """A function of one flat input; whether gradients are recorded must not matter."""

    def run(x: Array) -> Array:
        results = []
        for mode in (torch.no_grad, torch.enable_grad):
            with mode(), guard.quiet():
                given = torch.from_numpy(x.copy()).to(traced.dtype).reshape(traced.shape)
                try:
                    results.append(call(given).detach().cpu().numpy().ravel())
                except Exception as error:  # the module's own code
                    raise UnreadableModel(
                        f"the module fails at an input with entries up to {np.abs(x).max():.3g}"
                        f" ({guard.first_line(error)}); a network has a value everywhere"
                    ) from error
        one, two = results
        if not _close(one, two):
            raise UnreadableModel(
                f"the module returns {one} without and {two} with gradients recorded;"
                " its forward must not depend on that"
            )
        return np.asarray(one, dtype=float)

    return run


def _one_in_one_out(traced: fx.GraphModule) -> None:
    inputs = [n for n in traced.graph.nodes if n.op == "placeholder"]
    needed = [n for n in inputs if not n.args]
    counted = inputs if any(n.args and n.users for n in inputs) else needed  # defaults that nothing uses do not count
    if len(needed) != 1 or counted != needed:
        names = ", ".join(str(n.target) for n in counted) or "none"
        raise UnreadableModel(f"the module takes {len(counted)} inputs ({names}); a network has one")
    (result,) = (n.args[0] for n in traced.graph.nodes if n.op == "output")
    if not isinstance(result, fx.Node):
        raise UnreadableModel(
            f"the module returns {_described(result)}; a network has one tensor as output: choose one with output=…,"
            " its name or number"
        )


def _drop_softmax(traced: fx.GraphModule) -> None:
    """Let the output be what the final softmax receives."""
    (output,) = (n for n in traced.graph.nodes if n.op == "output")
    last = output.args[0]
    if not modules.is_softmax(traced, last):
        kind = modules.kind_of(traced, last)
        raise InvalidInput(f"drop_softmax=True, but the last operation is {kind}, not a softmax")
    output.args = (last.args[0] if last.args else last.kwargs["input"],)
    traced.graph.eliminate_dead_code()
    traced.recompile()


def _input_shape(traced: fx.GraphModule, given: Sequence[int] | None) -> tuple[int, ...]:
    if given is not None:
        return tuple(given)
    node = next(n for n in traced.graph.nodes if n.op == "placeholder" and not n.args)
    while node.users:
        for user in node.users:
            size = modules.input_size(traced, user)
            if size is not None:
                return (size,)
        node = next(iter(node.users))
        if not modules.keeps_size(traced, node):
            break
    raise InvalidInput("the module does not tell the shape of its input; give input_shape, such as (3, 32, 32)")


class _Tracer(fx.Tracer):
    """Traces into all modules but those of PyTorch, and those that are registered as an activation.

    Where the shape of the input is known, the module sees it.
    """

    def __init__(self, shape: Sequence[int] | None) -> None:
        super().__init__()
        self.shape = None if shape is None else torch.Size((1, *shape))

    def proxy(self, node: fx.Node) -> fx.Proxy:
        if node.op == "placeholder" and not node.args and self.shape is not None:
            return _Entry(node, self)
        return super().proxy(node)

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return of_module(m) is not None or super().is_leaf_module(m, module_qualified_name)


class _Entry(fx.Proxy):
    """Stands for the input, whose shape is known."""

    @property
    def shape(self) -> torch.Size:
        assert isinstance(self.tracer, _Tracer)
        assert self.tracer.shape is not None
        return self.tracer.shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]


class _Shapes(fx.Interpreter):
    """Runs a traced module and notes the shape of every value."""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        n.meta["lipcert_shape"] = tuple(result.shape) if isinstance(result, torch.Tensor) else None
        return result


class _Reader:
    """Walks the traced graph and writes ours."""

    def __init__(self, traced: _Traced, single: bool) -> None:
        self.traced = traced
        self.build = TorchBuilder(traced.shape, single)
        self.values: dict[fx.Node, Any] = {}

    def read(self) -> Any:
        """The finished graph, or an error with every offender."""
        module = self.traced.graph
        for node in module.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = self.build.input if not node.args else node.args[0]
            elif node.op == "get_attr":
                self.values[node] = modules.attribute(module, str(node.target))
            elif node.op == "output":
                output = self._value(node.args[0])
            else:
                self.values[node] = self._call(node)
        return self.build.finish(output.detach().numpy() if isinstance(output, torch.Tensor) else output)

    def _call(self, node: fx.Node) -> Any:
        args, kwargs = self._value(node.args), self._value(node.kwargs)
        leaves: list[Any] = []
        fx.node.map_aggregate((args, kwargs), leaves.append)
        shape = node.meta.get("lipcert_shape")
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        picks = node.target in (operator.getitem, getattr) and isinstance(args[0], (tuple, list))
        if not picks and any(type(leaf) is Opaque for leaf in leaves):
            return Opaque() if shape is None else self.build.unknown(shape, tensors)
        name = str(node.target) if node.op == "call_module" else node.name
        with self.build.reading(name, modules.kind_of(self.traced.graph, node), shape):
            if not picks and any(isinstance(leaf, Positions) for leaf in leaves):
                raise Unsupported(Positions.reason)
            if picks or not tensors:
                return self._constant(node, args, kwargs)
            return modules.translate(self.build, self.traced.graph, node, args, kwargs)
        return Opaque() if shape is None else self.build.unknown(shape, tensors)

    def _constant(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """What does not depend on the input is left to PyTorch."""
        try:
            with torch.no_grad(), guard.quiet():
                if node.op == "call_method":
                    return getattr(args[0], str(node.target))(*args[1:], **kwargs)
                function: Any = node.target
                if node.op == "call_module":
                    function = self.traced.graph.get_submodule(str(node.target))
                return function(*args, **kwargs)
        except Exception as error:  # it ran when the module did, but not on what was made of its operands here
            raise Unsupported(f"it is called in an unknown way: {guard.first_line(error)}") from None

    def _value(self, argument: Any) -> Any:
        return fx.node.map_arg(argument, lambda n: self.values[n])


def _large_constants(module: fx.GraphModule, above: float = 1e25, most: int = 8) -> tuple[float, ...]:
    """Large numbers that stand in the calls of a traced module and in its layers' settings, the smallest first."""
    found: set[float] = set()

    def note(value: Any) -> Any:
        if isinstance(value, (int, float)) and above < abs(value) < 1e290:
            found.add(abs(float(value)))
        return value

    for node in module.graph.nodes:
        fx.node.map_aggregate((node.args, node.kwargs), note)
        if node.op == "get_attr" and isinstance(value := modules.attribute(module, str(node.target)), torch.Tensor):
            sizes = value.detach().abs() if value.is_floating_point() and value.numel() else torch.zeros(1)
            for size in (sizes.min(), sizes.max()):
                note(float(size))
        if node.op == "call_module":
            for value in vars(module.get_submodule(str(node.target))).values():
                note(value)
    return tuple(sorted(found)[:most])
