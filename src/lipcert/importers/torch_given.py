"""A PyTorch module as a function of one tensor: other arguments held fixed, one of several results chosen."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from lipcert.errors import InvalidInput, UnreadableModel
from lipcert.importers import torch_guard as guard
from lipcert.importers.untrusted import few

_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Given(nn.Module):
    """Calls a module with one tensor, and takes what is asked for from its result.

    Whatever has a default and is not given keeps it: the module's own code sees the default, not a stand-in.
    """

    def __init__(self, module: nn.Module, entry: str, fixed: Mapping[str, Any], chosen: str | int | None) -> None:
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
    raise UnreadableModel(f"the module returns {described(result)}; there is no output {name!r} in it")


def described(result: Any) -> str:
    """What a module returns, for people."""
    kind = type(result).__name__
    if isinstance(result, Mapping):
        return f"a dictionary with {few(map(repr, result))}"
    if is_dataclass(result) or hasattr(result, "_fields"):
        return f"a {kind} with {few(getattr(result, '_fields', None) or vars(result))}"
    return f"a {kind} of {len(result)}" if isinstance(result, (tuple, list)) else f"a {kind}"


def given(module: nn.Module, fixed: Mapping[str, Any] | None, output: str | int | None) -> nn.Module:
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
    return Given(module, entry.name, values, output)


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
