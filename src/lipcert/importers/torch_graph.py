"""What a traced PyTorch module holds: its numbers, and the shape of every value."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn


def attribute(module: nn.Module, path: str) -> Any:
    """A parameter or buffer by its dotted name."""
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value


class _Shapes(fx.Interpreter):
    """Runs a traced module and notes the shape of every value."""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        n.meta["lipcert_shape"] = tuple(result.shape) if isinstance(result, torch.Tensor) else None
        return result


def propagate_shapes(module: fx.GraphModule, x: torch.Tensor) -> None:
    """Run the traced module once to learn the shape of every value."""
    with torch.no_grad():
        _Shapes(module).run(x)


def shape_of(node: fx.Node) -> tuple[int, ...] | None:
    """Shape of a node's result, where it is a tensor."""
    return node.meta.get("lipcert_shape")


def constants(module: fx.GraphModule, above: float = 1e25, most: int = 8) -> tuple[float, ...]:
    """Large numbers that stand in the calls of a traced module and in its layers' settings, the smallest first."""
    found: set[float] = set()

    def note(value: Any) -> Any:
        if isinstance(value, (int, float)) and above < abs(value) < 1e290:
            found.add(abs(float(value)))
        return value

    for node in module.graph.nodes:
        fx.node.map_aggregate((node.args, node.kwargs), note)
        if node.op == "get_attr" and isinstance(held := attribute(module, str(node.target)), torch.Tensor):
            sizes = held.detach().abs() if held.is_floating_point() and held.numel() else torch.zeros(1)
            for size in (sizes.min(), sizes.max()):
                note(float(size))
        if node.op == "call_module":
            for value in vars(module.get_submodule(str(node.target))).values():
                note(value)
    return tuple(sorted(found)[:most])
