"""PyTorch modules, by the graph of ATen operations that ``torch.export`` makes of them."""

from __future__ import annotations

import inspect
import io
import logging
import operator
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lipcert.errors import InvalidInput, LipcertError, UnreadableModel
from lipcert.importers.builder import Tensor, Unsupported
from lipcert.importers.faithful import DOUBLE, SINGLE, Original, confirm
from lipcert.importers.graph import Graph
from lipcert.importers.lowering import Imported, lower
from lipcert.importers.untrusted import few, line
from lipcert.model.arrays import Array
from lipcert.runtime.clock import clock

try:
    import torch
    from torch import fx
except ImportError:  # pragma: no cover - depends on the installation
    raise LipcertError('reading PyTorch models needs PyTorch: pip install "lipcert[torch]"') from None

from lipcert.importers import torch_checks as checks
from lipcert.importers.torch_ops import ACTIVATIONS, KNOWN, RANDOM, TorchBuilder, array, bound, name_of, translate

_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_SOFTMAX = ("softmax", "_softmax", "log_softmax", "_log_softmax")
_BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
_TORCH, _HERE = Path(torch.__file__).parent, Path(__file__).parent


def read_module(
    module: Any,
    *,
    input_shape: Sequence[int] | None,
    drop_softmax: bool,
    points: Any,
    fixed: Mapping[str, Any] | None = None,
    output: str | int | None = None,
) -> Imported:
    """The network of a module in evaluation mode, which is not changed; the options are those of ``lipcert.load``.

    The shape of the input may be left out where the first layer tells it. An ``ExportedProgram`` is read as well.
    """
    if isinstance(module, torch.export.ExportedProgram):
        entry = next((node for node in module.graph.nodes if node.name in module.graph_signature.user_inputs), None)
        input_shape = _shape(entry, first=1) if input_shape is None and entry is not None else input_shape
        with silent():
            module = functional(module, harmless=()).module(check_guards=False)
    module = checks.in_single(checks.unwrapped(module))
    given = _given(module, fixed, output)
    checks.inspect(module)
    if isinstance(points, torch.Tensor):
        points = points.detach().cpu().numpy()
    before = checks.state(module)
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # attention layers are made of their parts, not one fused operation
    try:
        exported = _found(given, input_shape)
        if drop_softmax:
            _without_softmax(exported)
        graph, off = _read(exported)
        numbers = torch.randn(exported.shape, generator=torch.Generator().manual_seed(0), dtype=exported.dtype)
        checks.same_operations(given, exported.program, numbers.to(given.place))
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        checks.refuse_changes(before, checks.state(module))  # what changes a module is the cause of all else
    lowered = lower(graph)
    # where a softmax was dropped the graph stands for the module, whose operations are known to be the same
    run = _runner(exported.run if drop_softmax else given, exported, given.place)
    precision = SINGLE if exported.dtype == torch.float32 else DOUBLE
    confirm(lowered.network, [Original(run, precision, "PyTorch", off)], points)
    network = replace(lowered.network, input_shape=exported.shape[1:])
    return Imported(network, lowered.origins, sum(parameter.numel() for parameter in module.parameters()))


# the module as a function of one tensor --------------------------------------------------------------------------


class _Given(torch.nn.Module):
    """Calls a module with one tensor, and takes what is asked for from its result.

    Whatever has a default and is not given keeps it: the module's own code sees the default, not a stand-in.
    """

    def __init__(self, module: torch.nn.Module, entry: str | None, fixed: Mapping[str, Any], chosen: Any) -> None:
        super().__init__()
        self.model, self.entry, self.chosen, self.names = module, entry, chosen, list(fixed)
        for name, value in fixed.items():
            tensor, name = isinstance(value, torch.Tensor), f"fixed_{name}"
            self.register_buffer(name, value) if tensor else setattr(self, name, value)
        self.training = False  # not eval(), which would change the module

    def forward(self, x: Any) -> Any:
        arguments = {name: getattr(self, f"fixed_{name}") for name in self.names}
        result = self.model(x, **arguments) if self.entry is None else self.model(**{self.entry: x}, **arguments)
        result = result if self.chosen is None else _chosen(result, self.chosen)
        if not isinstance(result, torch.Tensor):
            raise UnreadableModel(
                f"the module returns {_described(result)}; a network has one tensor as output: choose one with"
                " output=…, its name or number"
            )
        return result

    @property
    def place(self) -> torch.device:
        """Where the module keeps its numbers."""
        return next((value.device for value in (*self.parameters(), *self.buffers())), torch.device("cpu"))


def _dtypes(module: torch.nn.Module) -> list[torch.dtype]:
    """The types of numbers among parameters and buffers, the widest first; all where there are none."""
    kinds = {value.dtype for value in (*module.parameters(), *module.buffers())}
    return [kind for kind in (torch.float64, torch.float32) if kind in kinds] or [torch.float64, torch.float32]


def _parts(result: Any) -> dict[Any, Any]:
    """The values in what a module returns, by name and number."""
    if isinstance(result, Mapping) or is_dataclass(result):
        return dict(result if isinstance(result, Mapping) else vars(result))
    values = list(result) if isinstance(result, (tuple, list)) else []
    count, names = len(values), getattr(result, "_fields", ())
    return dict(zip([*range(count), *range(-count, 0), *names], [*values, *values, *values]))


def _chosen(result: Any, name: str | int) -> Any:
    if name in (parts := _parts(result)):
        return parts[name]
    raise UnreadableModel(f"the module returns {_described(result)}; there is no output {name!r} in it")


def _described(result: Any) -> str:
    names = [repr(name) for name in _parts(result) if not isinstance(name, int) or name >= 0]
    return f"a {type(result).__name__}" + (f" with {few(names)}" if names else "")


def _given(module: torch.nn.Module, fixed: Mapping[str, Any] | None, output: str | int | None) -> _Given:
    fixed = {} if fixed is None else fixed
    if not (isinstance(fixed, Mapping) and all(isinstance(name, str) for name in fixed)):
        raise InvalidInput(f"fixed must be a dictionary of arguments by name, got {fixed!r}")
    if output is not None and (not isinstance(output, (str, int)) or isinstance(output, bool)):
        raise InvalidInput(f"output must be the name or the number of an output, got {output!r}")
    parameters = list(inspect.signature(module.forward).parameters.values())
    named = [p for p in parameters if p.kind not in _MANY]
    if strange := set(fixed) - {p.name for p in named}:
        raise InvalidInput(f"fixed names {few(strange)}; forward takes {few(p.name for p in named)}")
    free = [p for p in named if p.name not in fixed]
    if needed := [p.name for p in free[1:] if p.default is inspect.Parameter.empty]:
        raise UnreadableModel(
            f"the module takes {1 + len(needed)} inputs ({free[0].name}, {few(needed)}); a network has one: give the"
            f" others as fixed={{{needed[0]!r}: …}}"
        )
    if not free and not any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        raise UnreadableModel(f"the module takes 0 inputs that are not fixed ({few(fixed)}); a network has one")
    values = {name: _plain(name, value, _dtypes(module)[0]) for name, value in fixed.items()}
    return _Given(module, free[0].name if free and free[0] is not parameters[0] else None, values, output)


def _plain(name: str, value: Any, dtype: torch.dtype) -> Any:
    """Arrays as tensors, of real numbers in the module's own precision."""
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value.copy())
        value = value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    kind = type(value).__name__
    raise InvalidInput(f"fixed[{name!r}] must be an array, a tensor, a number, a string or None, got {kind}")


# the export ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Exported:
    """A module's program, and its graph without operations in place; the shape is that of the input, with batch."""

    program: Callable[[Any], Any]
    graph: fx.GraphModule
    state: Mapping[str, torch.Tensor]
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def result(self) -> fx.Node:
        """The node whose value is the output; before it come buffers that change."""
        return next(node.args[0][-1] for node in self.graph.graph.nodes if node.op == "output")

    def held(self, node: fx.Node, given: Any) -> Any:
        """What stands for a node that is no operation: a parameter, buffer or constant, or what is given."""
        return self.state.get(node.name, given) if node.op == "placeholder" else getattr(self.graph, str(node.target))

    def run(self, x: torch.Tensor) -> Any:
        """What the graph makes of an input."""
        return self.graph(*(self.held(node, x) for node in self.graph.graph.nodes if node.op == "placeholder"))[-1]


def _found(module: _Given, input_shape: Sequence[int] | None) -> _Exported:
    """The export for an input of the given shape, else of one that a linear layer tells."""
    if input_shape is not None:
        return _exported(module, (1, *input_shape))
    failed = ""
    for size in dict.fromkeys(int(value.shape[1]) for value in module.parameters() if value.ndim == 2):
        dtype, why = _type(module, (1, size))
        failed = failed or why
        if dtype is not None and _tells(exported := _exported(module, (1, size)), size):
            return exported
    raise InvalidInput(
        f"the module does not tell the shape of its input{failed and f' (with one number it fails{failed})'};"
        " give input_shape, such as (3, 32, 32)"
    )


def _tells(exported: _Exported, size: int) -> bool:
    """Whether the input goes to a linear layer of that size, by operations that keep the number of its elements."""
    node = next(n for n in exported.graph.graph.nodes if n.op == "placeholder" and n.name not in exported.state)
    while node.users:
        if any(name_of(u.target) == "linear" and u.args[1].meta["val"].shape[-1] == size for u in node.users):
            return True
        node = next(iter(node.users))
        if name_of(node.target) not in {*ACTIVATIONS, "view", "reshape", "flatten", "clone", "contiguous"}:
            return False
    return False


def _exported(module: _Given, shape: tuple[int, ...]) -> _Exported:
    dtype, why = _type(module, shape)
    if dtype is None:
        raise UnreadableModel(f"the module fails on an input of shape {shape}{why}; {_advice(module)}")
    clock().say("exporting the module with torch.export (the first time in a process this loads its tracer)")
    try:
        with silent(), torch.no_grad():
            program = torch.export.export(module, (torch.zeros(shape, dtype=dtype, device=module.place),), strict=False)
            whole, run = functional(program), program.module(check_guards=False)
            signature, kept = whole.graph_signature, {**whole.constants, **whole.state_dict}
            state = {s.arg.name: kept[s.target].detach() for s in signature.input_specs if s.kind.name != "USER_INPUT"}
    except LipcertError:
        raise
    except Exception as error:  # an export runs the module's own code, which may fail in any way
        raise UnreadableModel(
            f"torch.export cannot follow the module{_frame(error)}: {_why(error)}; forward must not decide by the"
            " values of tensors, nor hand them to Python or numpy: write choices with relu, clamp, abs or maximum, or"
            " load the part of the module that does not decide"
        ) from error
    changed = [s for s in signature.output_specs if s.kind.name in ("BUFFER_MUTATION", "PARAMETER_MUTATION")]
    checks.refuse_changes({}, dict.fromkeys((spec.target.removeprefix("model.") for spec in changed), True))
    return _Exported(run, whole.graph_module, state, shape, dtype)


def _type(module: _Given, shape: tuple[int, ...]) -> tuple[torch.dtype | None, str]:
    """The type of numbers that the module takes, or None and why it fails with any; buffers may have other types."""
    why = ""
    for dtype in _dtypes(module.model):
        try:
            with checks.quiet(), torch.no_grad():
                module(torch.zeros(shape, dtype=dtype, device=module.place))
        except LipcertError:  # there is no output of that name
            raise
        except Exception as error:  # the module's own code
            why = why or f"{_frame(error)}: {_first_line(error)}"
        else:
            return dtype, ""
    return None, why


def _advice(module: torch.nn.Module) -> str:
    if any(isinstance(part, (torch.nn.Embedding, torch.nn.EmbeddingBag)) for part in module.modules()):
        return "an Embedding takes whole numbers, and a Lipschitz constant is about real ones: load the part behind it"
    return (
        "give input_shape without the batch, such as input_shape=(3, 32, 32), and values of fixed= as the forward gets"
        " them, with a batch of one where it has one; a batch norm needs track_running_stats=True"
    )


def functional(program: Any, harmless: Sequence[str] = ("detach_",)) -> Any:
    """The program without operations in place; those that have no meaning of their own here PyTorch takes apart."""
    reached: dict[fx.Node, Any] = {}  # what depends on the input → its operation
    written = False
    for node in program.graph.nodes:
        if node.name in program.graph_signature.user_inputs or any(n in reached for n in node.all_input_nodes):
            reached[node] = node.target
        mutable = getattr(getattr(node.target, "_schema", None), "is_mutable", False)
        written = written or (mutable and name_of(node.target) not in harmless)
    unknown = {t for n, t in reached.items() if n.op == "call_function" and name_of(t) not in (*KNOWN, *harmless)}
    if not written and not unknown - {operator.getitem}:
        return program
    table = torch.export.default_decompositions()
    return program.run_decompositions({target: table[target] for target in unknown if target in table} | APART)


def _attention(
    q: Any, k: Any, v: Any, mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, **given: Any
) -> Any:
    if dropout_p:
        return NotImplemented
    k, v = (
        part.repeat_interleave(q.shape[-3] // part.shape[-3], -3) if given.get("enable_gqa") else part
        for part in (k, v)
    )
    mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril() if is_causal else mask
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill(~mask, -torch.inf)
    scores = q * (q.shape[-1] ** -0.5 if given.get("scale") is None else given["scale"]) @ k.transpose(-1, -2)
    return (scores if mask is None else scores + mask).softmax(-1) @ v


def _variance(x: Any, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Any:
    moved = x - x.mean(dim or list(range(x.ndim)), True)
    total = moved.pow(2).sum(dim, keepdim)
    return total / (x.numel() // total.numel() - (1 if correction is None else correction))


APART: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.bilinear.default: lambda x, z, weight, bias=None: (
        (x[..., None, None, :] @ weight @ z[..., None, :, None])[..., 0, 0] + (0.0 if bias is None else bias)
    ),
    torch.ops.aten.cdist.default: lambda x, z, p=2.0, compute_mode=None: (
        (x.unsqueeze(-2) - z.unsqueeze(-3)).pow(2).sum(-1).sqrt() if p == 2.0 else NotImplemented
    ),
    torch.ops.aten.cumsum.default: lambda x, dim, dtype=None: (
        (x.movedim(dim, -1) @ torch.ones([x.shape[dim]] * 2, dtype=x.dtype, device=x.device).triu()).movedim(-1, dim)
        if dtype in (None, x.dtype)
        else NotImplemented
    ),
    torch.ops.aten.linalg_vector_norm.default: lambda x, ord=2, dim=None, keepdim=False, dtype=None: (
        x.pow(2).sum(dim, keepdim).sqrt() if ord == 2 and dtype in (None, x.dtype) else NotImplemented
    ),
    torch.ops.aten.norm.ScalarOpt_dim: lambda x, p, dim, keepdim=False: torch.linalg.vector_norm(
        x, 2.0 if p is None else p, dim, keepdim
    ),
    torch.ops.aten.scaled_dot_product_attention.default: _attention,
    torch.ops.aten.std.dim: lambda x, dim, unbiased=True, keepdim=False: x.var(
        dim, correction=int(unbiased), keepdim=keepdim
    ).sqrt(),
    torch.ops.aten.var.correction: _variance,
}
"""What is taken apart in another way than PyTorch would, into operations that are known here."""


def _shape(node: fx.Node, first: int = 0) -> tuple[int, ...] | None:
    """The shape of a node's value, from some axis on; None where it is no tensor, or its sizes may vary."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not all(isinstance(size, int) for size in value.shape[first:]):
        return None
    return tuple(value.shape[first:])


def _without_softmax(exported: _Exported) -> None:
    """Let the output of the graph be what the final softmax receives."""
    if (last := name_of(exported.result.target)) not in _SOFTMAX:
        raise InvalidInput(f"drop_softmax=True, but the last operation is {last}, not a softmax")
    (logits,) = exported.result.all_input_nodes
    exported.result.replace_all_uses_with(logits)
    exported.graph.recompile()


@contextmanager
def silent() -> Iterator[None]:
    """Within the block nothing is logged; an export that fails prints its graph."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with checks.quiet(), redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def _runner(call: Callable[[Any], Any], exported: _Exported, place: torch.device) -> Callable[[Array], Array]:
    def run(x: Array) -> Array:
        given = torch.from_numpy(x.copy()).to(exported.dtype).reshape(exported.shape)
        try:
            with torch.no_grad(), checks.quiet():
                return np.asarray(call(given.to(place)).cpu().numpy().ravel(), dtype=float)
        except Exception as error:  # the module's own code
            raise UnreadableModel(
                f"the module fails at an input with entries up to {np.abs(x).max():.3g} ({_first_line(error)});"
                " a network has a value everywhere"
            ) from error

    return run


# the graph, as the builder writes it -----------------------------------------------------------------------------


def _read(exported: _Exported) -> tuple[Graph, float]:
    """The graph, or an error with every offender, and how far its activations are from the module's, relatively."""
    build, values = TorchBuilder(exported.shape), dict[fx.Node, Any]()
    for node in exported.graph.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            values[node] = _widened(exported.held(node, build.input))
        elif node.op == "call_function" and node.users:
            values[node] = _call(build, node, values)
    output = values[exported.result]
    return build.finish(array(output) if isinstance(output, torch.Tensor) else output), build.off


def _widened(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.double() if leaf.dtype == torch.float32 else leaf
    return torch.float64 if leaf is torch.float32 else leaf


def _call(build: TorchBuilder, node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
    """The value of an operation; one that does not depend on the input is computed by PyTorch."""
    args: Any = fx.node.map_arg(node.args, values.__getitem__)
    kwargs: Any = fx.node.map_arg(node.kwargs, values.__getitem__)
    if node.target is operator.getitem and isinstance(args[0], (tuple, list)):
        return args[0][args[1]]
    leaves: list[Any] = []
    fx.node.map_aggregate((args, kwargs), leaves.append)
    value, shape = node.meta.get("val"), _shape(node)
    own = getattr(value, "dtype", None)

    def read(opaque: bool) -> Sequence[Any] | None:
        if opaque:
            return None
        if not any(isinstance(leaf, Tensor) for leaf in leaves):
            return [_constant(node, args, kwargs)]
        result = translate(build, node.target, args, kwargs)
        before = [n.meta["val"].dtype for n in node.all_input_nodes if isinstance(values[n], Tensor)]
        if own is not None and _BITS.get(own, 0) < max((_BITS.get(dtype, 0) for dtype in before), default=0):
            raise Unsupported(f"it rounds to numbers of type {own}; keep to one type")
        if isinstance(result, Tensor) and result.shape != shape:
            raise Unsupported(f"it was read with a result of shape {result.shape}; please report this model")
        return [result]

    build.unit = 2.0**-24 if own == torch.float32 else 2.0**-53
    whole = node.meta.get("original_aten", node.target)  # of which the operation may be a part
    return build.step(_source(node), name_of(whole), [shape], leaves, read)[0]


def _constant(node: fx.Node, args: Any, kwargs: Any) -> Any:
    """What PyTorch makes of constants, in double precision, but of numbers that it makes itself as they were."""
    target: Any = node.target
    tags = getattr(target, "tags", ())
    if torch.Tag.nondeterministic_seeded in tags and dict(bound(target, args, kwargs)).get("train") is not False:
        raise Unsupported(RANDOM)
    with torch.no_grad(), checks.quiet():
        given = fx.node.map_aggregate((args, kwargs), _widened) if node.all_input_nodes else (args, kwargs)
        return fx.node.map_aggregate(target(*given[0], **given[1]), _widened)


def _source(node: fx.Node) -> str:
    """The layer of PyTorch's that an operation belongs to, or its own name, and the line of the user's file."""
    path, kind = (list((node.meta.get("nn_module_stack") or {}).values()) or [("", "")])[-1]
    name = path.removeprefix("model.") if str(kind).startswith("torch.nn.modules") else node.name
    frames = re.findall(r'File "(.+)", line (\d+), in', node.meta.get("stack_trace") or "")
    return name + _place([(file, int(number)) for file, number in frames])


def _place(frames: Sequence[tuple[str, int]]) -> str:
    """The innermost line that is neither PyTorch's nor ours."""
    for file, number in reversed(frames):
        if not any(Path(file).is_relative_to(home) for home in (_TORCH, _HERE)):
            return f" ({Path(file).name}:{number})"
    return ""


def _frame(error: BaseException) -> str:
    """Where in the user's file an error arose."""
    return _place([(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)])


def _why(error: BaseException) -> str:
    """What an export could not follow, in plain words."""
    looks = "DataDependent" in type(error).__name__ or "data-dependent" in str(error) or ".numpy()" in str(error)
    if "fake tensor in the exported program" in str(error):
        return "it changes a tensor behind PyTorch's back, as .data does; use detach()"
    return "it looks at values that depend on the input" if looks else _first_line(error)


def _first_line(error: BaseException) -> str:
    kind = type(error).__name__
    return f"{kind}: {line(error)}" if str(error).strip() else kind
