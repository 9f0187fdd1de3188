"""What makes a PyTorch module unreadable: hooks and strange numbers, runs that change it, runs that its trace misses.

A trace is made with stand-ins for tensors, so that a module may take another way through its code than it does with
real ones. Here the real operations are recorded below Python, for the module and for its trace, with what each one
reads. The trace is read as if no operation changed a value in place. If the two records agree, step by step and value
by value, then nothing that the trace leaves out has any effect: no branch, no hidden cast, no change through an alias.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from inspect import unwrap as inspect_unwrap
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np
import torch
from torch import fx, nn
from torch.nn.modules import module as modules
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from lipcert.errors import InvalidInput, UnreadableModel
from lipcert.importers.untrusted import few, line

_PREPARE: Final = ("torch.nn.utils.weight_norm", "torch.nn.utils.spectral_norm")
"""Homes of hooks that only prepare a weight."""

_HOOKS: Final = {
    "_forward_hooks": "forward hook",
    "_forward_pre_hooks": "forward pre-hook",
    "_backward_hooks": "backward hook",
    "_backward_pre_hooks": "backward pre-hook",
}


def unwrapped(module: Any) -> nn.Module:
    """The module itself, where ``torch.compile`` has wrapped it."""
    home = type(module).__module__
    if home.startswith("torch._dynamo") and isinstance(getattr(module, "_orig_mod", None), nn.Module):
        _refuse([*_hooks("the compiled module", module)])
        module = module._orig_mod
    if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        raise UnreadableModel(f"{type(module).__name__} spreads a module over devices; pass its .module")
    if hasattr(module, "_guards_fn") or isinstance(module, torch.export.ExportedProgram):
        raise UnreadableModel(
            "this was made by torch.export, and cannot be traced again; pass the nn.Module that was exported"
        )
    if not isinstance(module, nn.Module):
        raise InvalidInput(f"module must be a torch.nn.Module, got {type(module).__name__}")
    if isinstance(module, torch.jit.ScriptModule):
        raise UnreadableModel("a TorchScript module cannot be traced; pass the nn.Module that it was made from")
    return module


def inspect(module: nn.Module) -> None:
    """Refuse a module whose call is not its class's forward, or whose numbers are not real; all reasons at once."""
    quantised = [name for name, part in module.named_modules() if ".quantized" in type(part).__module__]
    if quantised:
        raise UnreadableModel(
            f"the module has quantised parts ({few(quantised)}), which round in steps and have no Lipschitz constant;"
            " pass the module as it was before it was quantised"
        )
    training = [name or "the module itself" for name, part in module.named_modules() if part.training]
    if training:
        raise UnreadableModel(f"the module is in training mode ({few(training)}); call module.eval() first")
    found: list[str] = []
    for name, kind in _HOOKS.items():
        if getattr(modules, f"_global{name}", None):
            found.append(f"a {kind} is registered for every module of this process; remove it")
    for name, part in module.named_modules():
        label = name or "the module itself"
        found += [*_hooks(label, part), *_calls(label, part)]
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        reason = _strange(value)
        if reason is not None:
            found.append(f"{name}: {reason}")
    _refuse(found)


def _refuse(found: Sequence[str]) -> None:
    if found:
        lines = "\n".join(f"  {reason}" for reason in dict.fromkeys(found))
        raise UnreadableModel(f"what the module computes is not what its layers and numbers say:\n{lines}")


def _hooks(label: str, part: nn.Module) -> Iterator[str]:
    for name, kind in _HOOKS.items():
        for hook in (getattr(part, name, None) or {}).values():
            if type(hook).__module__ not in _PREPARE:
                yield f"{label}: it has a {kind}, which could do anything; remove it"


def prepared(module: nn.Module) -> dict[int, Any]:
    """Copies, by identity, of the weights that hooks prepare before every call; copying a module fails at them."""
    found: dict[int, Any] = {}
    for part in module.modules():
        hooks = [hook for hook in (part._forward_pre_hooks or {}).values() if type(hook).__module__ in _PREPARE]
        for hook in hooks:
            value = vars(part).get(getattr(hook, "name", ""))
            if isinstance(value, torch.Tensor):
                found[id(value)] = value.detach().clone()
    return found


def _calls(label: str, part: nn.Module) -> Iterator[str]:
    kind: Any = type(part)
    if "forward" in vars(part):
        yield f"{label}: forward is set on the instance; define it in the class"
    if kind in (nn.ParameterList, nn.ParameterDict):  # they only hold parameters, and say so when called
        return
    for name in ("__call__", "_call_impl", "_wrapped_call_impl"):
        made = isinstance(part, fx.GraphModule) and getattr(kind, name).__module__ == "torch.fx.graph_module"
        if name in vars(part) or (getattr(kind, name) is not getattr(nn.Module, name) and not made):
            yield f"{label}: {name} is not that of torch.nn.Module; put what it does into forward"
    if part._compiled_call_impl is not None:
        yield f"{label}: it is compiled in place; pass the module as it was before compile()"


def _strange(value: torch.Tensor) -> str | None:
    """Why the numbers of a parameter or buffer cannot be read as they are."""
    if isinstance(value, (nn.UninitializedParameter, nn.UninitializedBuffer)):
        return "it is not initialised; run the module once"
    if type(value) not in (torch.Tensor, nn.Parameter, nn.Buffer):
        return f"it is a {type(value).__name__}, not a plain tensor"
    if value.is_meta:
        return "it has no values (device meta); load its values first"
    if value.layout != torch.strided:
        return f"it is stored as {value.layout}; call to_dense()"
    if value.is_complex() or value.is_quantized:
        return f"it holds numbers of type {value.dtype}; a network has real ones"
    if value.is_floating_point() and value.dtype not in (torch.float32, torch.float64):
        return f"it holds numbers of type {value.dtype}; convert the module with float()"
    if value.is_floating_point() and bool(value.isnan().any()):
        return f"it holds {int(value.isnan().sum())} NaN; train again, or load another state"
    return None


def precisions(module: nn.Module) -> tuple[torch.dtype, ...]:
    """The types of numbers among parameters and buffers, the widest first; double where there are none."""
    kinds = {v.dtype for v in (*module.parameters(), *module.buffers()) if v.is_floating_point()}
    return tuple(kind for kind in (torch.float64, torch.float32) if kind in kinds) or (torch.float64,)


def device(module: nn.Module) -> torch.device:
    """Where the module keeps its numbers."""
    return next((value.device for value in (*module.parameters(), *module.buffers())), torch.device("cpu"))


def state(module: nn.Module) -> dict[str, Any]:
    """Everything that the parts of a module hold, in a form that can be compared."""
    return {
        f"{name}.{key}" if name else key: _summary(value)
        for name, part in module.named_modules()
        for key, value in (*vars(part).items(), *part._parameters.items(), *part._buffers.items())
        if key not in ("_parameters", "_buffers", "_modules")
    }


def unchanged(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Refuse a module that a run has changed."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    if names:
        raise UnreadableModel(
            f"a run changes what the module holds ({few(names)}): its next run may compute something else;"
            " keep counters, caches and statistics outside of the module"
        )


def _summary(value: Any, depth: int = 4) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), str(value.dtype), digest(value)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.shape, str(value.dtype), hashlib.blake2b(np.ascontiguousarray(value).tobytes()).digest()
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return type(value).__name__, repr(value)
    if depth and isinstance(value, (list, tuple)):
        return type(value).__name__, tuple(_summary(item, depth - 1) for item in value)
    if depth and isinstance(value, dict):
        return type(value).__name__, tuple((repr(k), _summary(v, depth - 1)) for k, v in value.items())
    if depth and isinstance(value, (set, frozenset)):
        return type(value).__name__, tuple(sorted(map(repr, value)))
    if depth and hasattr(value, "__dict__") and not isinstance(value, (type, ModuleType, FunctionType, MethodType)):
        held = tuple((key, _summary(item, depth - 1)) for key, item in vars(value).items())
        return type(value).__name__, id(value), held
    return type(value).__name__, id(value)


def digest(value: torch.Tensor) -> bytes:
    """Of a tensor's numbers, bit by bit."""
    if value.layout != torch.strided or value.is_meta:
        return repr(value.layout).encode()
    plain = value.detach().cpu().contiguous().reshape(-1)
    return hashlib.blake2b(plain.view(torch.uint8).numpy().data if plain.numel() else b"", digest_size=16).digest()


@contextmanager
def one_thread() -> Iterator[None]:
    """Within the block PyTorch uses one thread: single inputs are small, more threads mostly wait for each other."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)


@contextmanager
def quiet() -> Iterator[None]:
    """Within the block, runs of the module neither warn nor advance the random numbers of the process."""
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        yield


def genuine(function: Any) -> bool:
    """Whether a function is PyTorch's or Python's own, as its file tells."""
    code = getattr(inspect_unwrap(function), "__code__", None)
    return code is None or Path(code.co_filename).is_relative_to(Path(torch.__file__).parent)


def first_line(error: BaseException) -> str:
    """An error in one line, for messages."""
    kind = type(error).__name__
    return f"{kind}: {line(error)}" if str(error).strip() else kind


# the record of a run, and that of its trace ----------------------------------------------------------------------

_LOOKS: Final = frozenset(
    {
        *("item", "tolist", "numpy", "data_ptr", "storage", "untyped_storage", "_typed_storage"),
        *("equal", "allclose", "isclose", "is_nonzero", "__bool__", "__contains__"),
        *("__int__", "__float__", "__index__", "__complex__", "__array__", "__dlpack__"),
        *("__repr__", "__str__", "__format__", "__reduce_ex__", "__deepcopy__"),
        *("apply_", "map_", "map2_"),
    }
)
"""Functions that hand the values of a tensor to Python."""

_PRECISION: Final = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
"""Bits of the numbers of each type; others are not real numbers."""

_CASTS: Final = ("_to_copy", "copy_", "sum", "prod", "cumsum")
"""Operations that turn real numbers into whole ones."""

_UNTRAINED: Final = ("training", "train", "dropout_p", "p")
"""Arguments that turn randomness off when they are false or zero."""

_MODES: Final[Mapping[str, Callable[[], AbstractContextManager[Any]]]] = {
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "requires_grad": torch.enable_grad,  # and the input is a result that has a gradient
    "leaf": torch.enable_grad,  # and the input itself asks for its gradient
    "inference_mode": torch.inference_mode,
}

Key = tuple[int, int, tuple[int, ...], tuple[int, ...], torch.dtype]


class Record(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The operations that depend on the input, in the order in which they run.

    A step is the name of an operation and its arguments. A value that depends on the input appears as the number of
    the step that made it, any other tensor as a digest of its numbers.
    """

    def __init__(self, x: torch.Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps: list[tuple[Any, ...]] = []
        self.offences: dict[str, None] = {}
        self.result: Any = None
        self.bits = 0  # of the most precise numbers
        self.written: set[int] = set()
        self.paused = False
        self._made = 0
        self._values: dict[Key, int] = {}
        self._storages: set[int] = set()
        self._alive: list[torch.Tensor] = []  # so that no address is used twice
        self._new(x)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # it would load the compiler, which takes a second

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.paused:
            return func(*args, **kwargs)
        self.paused = True
        try:
            return self._watch(func, args, kwargs)
        finally:
            self.paused = False

    def depends(self, value: Any) -> bool:
        """Whether a value shares memory with one that depends on the input."""
        return isinstance(value, torch.Tensor) and _storage(value) in self._storages

    def copied(self, value: torch.Tensor) -> torch.Tensor:
        """A copy that counts as the same value."""
        self.paused = True
        copy = value.clone()
        self.paused = False
        self._alive.append(copy)
        if self.depends(value):
            self._new(value)
            self._storages.add(_storage(copy))
            self._values[_key(copy)] = self._values[_key(value)]
        return copy

    def finish(self, result: Any) -> None:
        """Note what the run returned."""
        self.result = self._named(result)

    def _watch(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if torch.Tag.nondeterministic_seeded in func.tags and not _untrained(func, args, kwargs):
            self.offences[f"{name} is random"] = None
        tensors = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]
        read = [tensor for tensor in tensors if self.depends(tensor)]
        if not read:
            return func(*args, **kwargs)
        chosen = tree_flatten(args[1:])[0] if name == "index" else args  # what is taken may depend on the input
        looks = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(func.tags)
        if looks and any(self.depends(leaf) for leaf in chosen):
            self.offences[f"{name} looks at values that depend on the input"] = None
        step = (name.removesuffix("_"), func._overloadname, *self._named((args, kwargs)))
        written = list(_written(func, args, kwargs))
        if "out" in kwargs or func._overloadname.endswith("_out"):
            self.offences[f"{name} writes its result into a given tensor"] = None
        bits = max(_PRECISION.get(tensor.dtype, 0) for tensor in read)
        result = func(*args, **kwargs)
        self.steps.append(step)
        for tensor in written:
            self._overwritten(tensor)
        for tensor in tree_flatten(result)[0]:
            if isinstance(tensor, torch.Tensor):
                self._new(tensor)
        self._rounds(name, bits, tree_flatten(result)[0])
        return result

    def _rounds(self, name: str, bits: int, results: list[Any]) -> None:
        """Note results of lower precision than the operands; indices and truth values are no rounded numbers."""
        for tensor in results:
            counts = isinstance(tensor, torch.Tensor) and (tensor.is_floating_point() or name in _CASTS)
            if counts and _PRECISION.get(tensor.dtype, 0) < bits:
                self.offences[f"{name} rounds to numbers of type {tensor.dtype}; keep to one type"] = None

    def _new(self, tensor: torch.Tensor) -> None:
        """Number a result; a view of the same elements keeps its number."""
        self._alive.append(tensor)
        self._storages.add(_storage(tensor))
        self.bits = max(self.bits, _PRECISION.get(tensor.dtype, 0))
        if _key(tensor) not in self._values:
            self._values[_key(tensor)] = self._made
            self._made += 1

    def _overwritten(self, tensor: torch.Tensor) -> None:
        """Forget every value in the tensor's memory, and number the new one."""
        storage = _storage(tensor)
        self.written.add(storage)
        for key in [key for key in self._values if key[0] == storage]:
            del self._values[key]
        self._new(tensor)

    def _named(self, tree: Any) -> tuple[Any, ...]:
        """Arguments in a form that can be compared between runs."""
        leaves, structure = tree_flatten(tree)
        return str(structure), tuple(self._name(leaf) for leaf in leaves)

    def _name(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return type(leaf).__name__, repr(leaf)
        if not self.depends(leaf):
            return "constant", tuple(leaf.shape), str(leaf.dtype), digest(leaf)
        self._new(leaf)  # its memory may have been changed through another tensor: then it has no number yet
        return "value", self._values[_key(leaf)]


class _Looks(TorchFunctionMode):
    """Notes calls that hand values which depend on the input to Python."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self.record = record

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _LOOKS and any(self.record.depends(leaf) for leaf in tree_flatten(args)[0]):
            self.record.offences[f"{name} looks at values that depend on the input"] = None
        return func(*args, **(kwargs or {}))


class _Functional(fx.Interpreter):
    """Runs a traced module as it is read: an operation in place does not change what others see."""

    def __init__(self, module: fx.GraphModule, record: Record, copying: set[fx.Node]) -> None:
        super().__init__(module)
        self.record, self.copying = record, copying
        self.given: set[int] = set()
        self.writers: set[fx.Node] = set()

    def run_node(self, n: fx.Node) -> Any:
        self.record.written.clear()
        result = super().run_node(n)
        if self.record.written & self.given:
            self.writers.add(n)
        return result

    def fetch_args_kwargs_from_env(self, n: fx.Node) -> Any:
        given = super().fetch_args_kwargs_from_env(n)
        self.given = {_storage(leaf) for leaf in tree_flatten(given)[0] if isinstance(leaf, torch.Tensor)}
        if n not in self.copying:
            return given
        return tree_map(lambda leaf: self.record.copied(leaf) if isinstance(leaf, torch.Tensor) else leaf, given)


def compare(module: Callable[[Any], Any], traced: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> bool:
    """Refuse a trace that is not what the module does with each of the inputs, in every mode of differentiation.

    The result tells whether all numbers that depend on the input are of single precision.
    """
    first, *others = inputs
    bits = 0
    for x, mode in (*((first, mode) for mode in _MODES), *((x, "no_grad") for x in others)):
        with quiet():
            try:
                real = record(module, x, mode)
            except RuntimeError:
                if mode == "no_grad":
                    raise
                continue  # some operations in place cannot be differentiated; then nobody runs them that way
            _refuse_offences(real)
            try:
                trace = _trace(traced, x, mode)
            except RuntimeError as error:
                raise UnreadableModel(f"the trace does not run where the module does: {first_line(error)}") from error
            _same(real, trace)
            bits = max(bits, real.bits)
    return bits <= _PRECISION[torch.float32]


def record(call: Callable[[Any], Any], x: torch.Tensor, mode: str = "no_grad") -> Record:
    """What PyTorch does when a function is called with a copy of the input."""
    return _recorded(lambda _: call, x, mode)


def _trace(traced: fx.GraphModule, x: torch.Tensor, mode: str) -> Record:
    """As :func:`record`, for a traced module as it is read."""
    runs: list[_Functional] = []

    def once(note: Record) -> Callable[[Any], Any]:
        runs.append(_Functional(traced, note, runs[0].writers if runs else set()))
        return runs[-1].run

    plain = _recorded(once, x, mode)
    return _recorded(once, x, mode) if runs[0].writers else plain


def _recorded(make: Callable[[Record], Callable[[Any], Any]], x: torch.Tensor, mode: str) -> Record:
    with _MODES[mode]():
        x = x.clone().requires_grad_(mode in ("requires_grad", "leaf"))
        x = x if mode == "leaf" else x.clone()
        note = Record(x)
        with _Looks(note), note:
            result = make(note)(x)
        note.finish(result)
    return note


def _refuse_offences(real: Record) -> None:
    if real.offences:
        lines = "\n".join(f"  {offence}" for offence in real.offences)
        raise UnreadableModel(f"a run of the module does what a network cannot:\n{lines}")


def _same(real: Record, trace: Record) -> None:
    if real.steps == trace.steps and real.result == trace.result:
        return
    advice = (
        "forward must not decide by types or values of tensors or by whether gradients are recorded, and must use the"
        " results of operations that work in place instead of their operands"
    )
    for place, (one, two) in enumerate(zip(real.steps, trace.steps), 1):
        if one != two:
            what = (
                f"{one[0]}, its trace {two[0]}" if one[0] != two[0] else f"{one[0]} with other operands than its trace"
            )
            raise UnreadableModel(f"the trace is not what the module does: operation {place} is {what}; {advice}")
    counts = f"it runs {len(real.steps)} operations, its trace {len(trace.steps)}"
    counts = counts if len(real.steps) != len(trace.steps) else "it returns another value than its trace"
    raise UnreadableModel(f"the trace is not what the module does: {counts}; {advice}")


def rounds(call: Callable[[Any], Any], x: torch.Tensor) -> bool:
    """Whether a run rounds values to a type of lower precision."""
    return any(" rounds to " in offence for offence in record(call, x).offences)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _key(tensor: torch.Tensor) -> Key:
    """Which elements of which memory a tensor shows, in which order."""
    shape = tuple(tensor.shape)
    stride = tuple(0 if size == 1 else step for size, step in zip(shape, tensor.stride(), strict=True))
    return _storage(tensor), int(tensor.storage_offset()), shape, stride, tensor.dtype


def _bound(func: Any, args: Any, kwargs: Any) -> Iterator[tuple[Any, Any]]:
    """Each argument of an operation's schema with its value, where it was given."""
    for place, argument in enumerate(func._schema.arguments):
        if place < len(args):
            yield argument, args[place]
        elif argument.name in kwargs:
            yield argument, kwargs[argument.name]


def _written(func: Any, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    for argument, value in _bound(func, args, kwargs):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from (leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor))


def _untrained(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether an operation that is random in training is told not to train."""
    given = {argument.name: value for argument, value in _bound(func, args, kwargs)}
    named = [argument for argument in func._schema.arguments if argument.name in _UNTRAINED]
    return any(given.get(argument.name, argument.default_value) in (False, 0) for argument in named)  # None trains
