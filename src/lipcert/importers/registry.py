"""Activations of users, by the class of PyTorch modules and the name of ONNX functions that stand for them."""

from __future__ import annotations

from typing import Any

from lipcert.errors import InvalidInput
from lipcert.model.activations import Activation

_CLASSES: dict[type, Activation] = {}
_FUNCTIONS: dict[tuple[str, str], Activation] = {}


def register(row: Activation, torch: Any = None, onnx: str | None = None) -> None:
    """Let importers read a class of modules, or a function that ONNX models define, as an activation.

    As everything that is imported, it is compared with what the module or function computes. ``torch`` is a class of
    ``torch.nn.Module`` whose forward takes one tensor; ``onnx`` is ``"domain:name"``, or ``"name"`` for any domain.
    """
    if not isinstance(row, Activation):
        raise InvalidInput(f"row must be an Activation, got {type(row).__name__}; see lipcert.activation")
    if torch is not None:
        if not isinstance(torch, type) or torch.__module__.partition(".")[0] in ("torch", "lipcert"):
            raise InvalidInput(f"torch must be a class of modules of your own, got {torch!r}")
        _CLASSES[torch] = row
    if onnx is not None:
        if not isinstance(onnx, str) or not onnx.rpartition(":")[2]:
            raise InvalidInput(f"onnx must be a name such as 'my.domain:Snake', got {onnx!r}")
        domain, _, name = onnx.rpartition(":")
        _FUNCTIONS[domain, name] = row


def of_module(module: object) -> Activation | None:
    """The activation that a module stands for; subclasses do not count."""
    return _CLASSES.get(type(module))


def of_function(domain: str, name: str) -> Activation | None:
    """The activation that a function of an ONNX model stands for."""
    return _FUNCTIONS.get((domain, name)) or _FUNCTIONS.get(("", name))
