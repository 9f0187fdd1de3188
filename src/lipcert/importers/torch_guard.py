"""What makes a PyTorch module unreadable before any of its operations is looked at, and what a run may not change."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import unwrap as inspect_unwrap
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np
import torch
from torch import fx, nn
from torch.nn.modules import module as modules

from lipcert.errors import InvalidInput, UnreadableModel
from lipcert.importers.wording import few, line

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
        if reason:
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
