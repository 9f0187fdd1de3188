"""What an exported graph cannot show of a PyTorch module: strange numbers, state that runs change, other operations.

An export follows the module's own code with stand-ins for tensors and in one mode of differentiation. A module that
looks at either may do something else in use. So the operations of real runs are listed, in every mode, and must be
those of the exported program in the same mode.
"""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import zip_longest
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from lipcert.errors import InvalidInput, UnreadableModel
from lipcert.importers.torch_ops import bound, name_of
from lipcert.importers.untrusted import few
from lipcert.runtime.clock import clock

_MODES: Final[Mapping[str, Callable[[], AbstractContextManager[Any]]]] = {
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "requires_grad": torch.enable_grad,  # and the input is a result that has a gradient
    "leaf": torch.enable_grad,  # and the input itself asks for its gradient
    "inference_mode": torch.inference_mode,
}


_IDLE: Final = ("detach", "alias", "_assert_tensor_metadata", "_assert_scalar", "_assert_async")
"""Operations that change no value, which an export adds or leaves out."""


def unwrapped(module: Any) -> nn.Module:
    """The module itself, where ``torch.compile`` or ``DataParallel`` has wrapped it."""
    inner = getattr(module, "_orig_mod", None)
    if isinstance(inner, nn.Module) and type(module).__module__.startswith("torch._dynamo"):
        if module._forward_hooks or module._forward_pre_hooks:
            raise UnreadableModel("the compiled module has hooks of its own; register them before torch.compile")
        module = inner
    if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        return unwrapped(module.module)
    if not isinstance(module, nn.Module):
        raise InvalidInput(f"module must be a torch.nn.Module, got {type(module).__name__}")
    if isinstance(module, torch.jit.ScriptModule):
        raise UnreadableModel("a TorchScript module cannot be exported; pass the nn.Module that it was made from")
    return module


def in_single(module: nn.Module) -> nn.Module:
    """A copy in single precision of a module in half precision, whose numbers it has: it rounds less on its way."""
    numbers = [value for value in (*module.parameters(), *module.buffers()) if value.is_floating_point()]
    if not numbers or any(value.dtype not in (torch.float16, torch.bfloat16) for value in numbers):
        return module
    clock().say("half precision: the module is read as its copy in single precision, module.float()")
    return copy.deepcopy(module).float()


def inspect(module: nn.Module) -> None:
    """Refuse a module in training mode, or one whose numbers are not real; all reasons at once."""
    parts = dict(module.named_modules())
    if quantised := [name for name, part in parts.items() if ".quantized" in type(part).__module__]:
        raise UnreadableModel(
            f"the module has quantised parts ({few(quantised)}), which round in steps and have no Lipschitz constant;"
            " pass the module as it was before it was quantised"
        )
    training = [name or "the module itself" for name, part in parts.items() if part.training]
    if training and "eval" not in vars(module):  # a program of torch.export has no modes, and says so
        raise UnreadableModel(f"the module is in training mode ({few(training)}); call module.eval() first")
    if any(getattr(modules, f"_global_forward{kind}", None) for kind in ("_hooks", "_pre_hooks")):
        raise UnreadableModel("a forward hook is registered for every module of this process; remove it")
    compiled = "it is compiled in place; pass the module as it was before compile()"
    found = [f"{name or 'itself'}: {compiled}" for name, part in parts.items() if part._compiled_call_impl is not None]
    numbers = (*module.named_parameters(), *module.named_buffers())
    found += [f"{name}: it {reason}" for name, value in numbers if (reason := _strange(value)) is not None]
    if found:
        raise UnreadableModel("\n  ".join(["the module's parts or numbers cannot be read as they are:", *found]))


def _strange(value: torch.Tensor) -> str | None:
    """Why the numbers of a parameter or buffer cannot be read as they are."""
    if isinstance(value, (nn.UninitializedParameter, nn.UninitializedBuffer)):
        return "is not initialised; run the module once"
    if type(value) not in (torch.Tensor, nn.Parameter, nn.Buffer):
        return f"is a {type(value).__name__}, not a plain tensor"
    if value.is_meta or value.layout != torch.strided:
        return f"has no values (device meta), or is stored as {value.layout}; load its values, or call to_dense()"
    real = value.dtype in (torch.float32, torch.float64)
    if value.is_complex() or value.is_quantized or (value.is_floating_point() and not real):
        return f"holds numbers of type {value.dtype}; convert the module with float()"
    missing = int(value.isnan().sum()) if real else 0
    return f"holds {missing} NaN; train again, or load another state" if missing else None


def state(module: nn.Module) -> dict[str, Any]:
    """Everything that the parts of a module hold, in a form that can be compared."""
    return {
        f"{name}.{key}" if name else key: _summary(value)
        for name, part in module.named_modules()
        for key, value in (*vars(part).items(), *part._parameters.items(), *part._buffers.items())
        if key not in ("_parameters", "_buffers", "_modules", "_graph")
    }


def refuse_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Refuse a module that a run has changed."""
    if changed := [name for name in {**before, **after} if before.get(name) != after.get(name)]:
        raise UnreadableModel(
            f"a run changes what the module holds ({few(changed)}): its next run may compute something else;"
            " keep counters, caches and statistics outside of the module"
        )


def _summary(value: Any, depth: int = 4) -> Any:
    """What a value is, in a form that can be compared; beyond some depth, and of code, only which object it is."""
    if isinstance(value, torch.Tensor) and value.layout == torch.strided and not value.is_meta:
        value = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy() if value.numel() else None
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.shape, str(value.dtype), hashlib.blake2b(np.ascontiguousarray(value).tobytes()).digest()
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return type(value), repr(value)
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    held = dict(enumerate(value)) if isinstance(value, (list, tuple)) else value
    if not isinstance(held, dict):
        code = isinstance(value, (type, ModuleType, FunctionType, MethodType))
        held = {} if code else getattr(value, "__dict__", {})
    which = None if depth and isinstance(value, (list, tuple, dict)) else id(value)
    return which, [(repr(key), _summary(item, depth - 1)) for key, item in held.items() if depth]


@contextmanager
def quiet() -> Iterator[None]:
    """Within the block, runs of the module neither warn nor advance the random numbers of the process."""
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        yield


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lists the operations that depend on the input, with the shapes of their operands and their other arguments."""

    def __init__(self, x: torch.Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps: list[tuple[Any, ...]] = []
        self.looks: list[str] = []
        self.alive = [x]  # so that no address is used twice
        self.reached = {_storage(x)}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {name: value for name, value in bound(func, args, kwargs or {}) if not name.startswith("cudnn")}
        leaves, name = tree_flatten(given)[0], name_of(func)
        result = func(*args, **(kwargs or {}))
        if any(isinstance(leaf, torch.Tensor) and _storage(leaf) in self.reached for leaf in leaves):
            if name not in _IDLE:
                self.steps.append((name, *map(_described, leaves)))
            self.looks += [name] if torch.Tag.data_dependent_output in func.tags else []
            made = [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, torch.Tensor)]
            self.alive += made
            self.reached |= {_storage(tensor) for tensor in made}
        return result

    def shown(self, *_: Any, **__: Any) -> str:
        """Stands for a tensor's text, which an export takes from a stand-in."""
        self.looks.append("repr")
        return "tensor(...)"


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _described(leaf: Any) -> Any:
    return (tuple(leaf.shape), leaf.dtype) if isinstance(leaf, torch.Tensor) else repr(leaf)


def same_operations(module: Callable[[Any], Any], program: Callable[[Any], Any], x: torch.Tensor) -> None:
    """Refuse a module that does something else with real tensors, in any mode, than its exported program does."""
    for mode, given in (*((mode, x) for mode in _MODES), ("no_grad", -1e3 * x)):
        with quiet():
            try:
                real = _listed(module, given, mode)
            except RuntimeError:
                if mode == "no_grad":
                    raise
                continue  # some operations in place cannot be differentiated; then nobody runs them that way
            shown = _listed(program, given, mode).steps
        if real.looks:
            raise UnreadableModel(
                f"the module looks at values that depend on the input ({few(dict.fromkeys(real.looks))}): it may decide"
                " by them; write choices with relu, clamp, abs or maximum"
            )
        differ = [k for k, pair in enumerate(zip_longest(real.steps, shown)) if pair[0] != pair[1]]
        if differ:
            does, says = (run[differ[0]][0] if differ[0] < len(run) else "nothing" for run in (real.steps, shown))
            raise UnreadableModel(
                f"the exported program is not what the module does: operation {differ[0] + 1} of a run is {does}, of"
                f" the program {says}; forward must not look at the values or the type of tensors, at random numbers,"
                " or at whether gradients are recorded"
            )


def _listed(call: Callable[[Any], Any], x: torch.Tensor, mode: str) -> _Operations:
    with _MODES[mode]():
        x = x.clone().requires_grad_(mode in ("requires_grad", "leaf"))
        x = x if mode == "leaf" else x.clone()
        operations = _Operations(x)
        with operations, patch("torch._tensor_str._str", operations.shown):
            call(x)
    return operations
