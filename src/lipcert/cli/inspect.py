"""``lipcert inspect``: what was read from a model, and what bounds of it will cost."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from scipy import sparse

from lipcert.cli import options
from lipcert.cli.output import show
from lipcert.importers import examine
from lipcert.importers.faithful import Imported
from lipcert.model.network import Layer, Network
from lipcert.runtime.costs import available_memory, costs, entries


def inspect(
    model: options.ModelArgument,
    input_shape: options.InputShapeOption = None,
    drop_softmax: options.DropSoftmaxOption = False,
    activation: options.ActivationOption = None,
    json: options.JsonOption = False,
) -> None:
    """Show what MODEL becomes as a network: layers, activations, what was folded, and what bounds will cost.

    Times and memory are for the worst case, in which the slope of every neuron is open over the region; in a small
    ball most slopes are settled, and bounds come much faster.

    [bold]Example[/bold]

      lipcert inspect model.onnx

      lipcert inspect model.npz --activation tanh --json
    """
    network, imported = examine(
        model,
        options.activations(activation),
        input_shape=options.shape("--input-shape", input_shape),
        drop_softmax=drop_softmax,
    )
    show(json, lambda _, record: record, _print, model, describe(network, imported))


def describe(network: Network, imported: Imported | None) -> dict[str, Any]:
    """All there is to say, in JSON's types."""
    layers = []
    for number, layer in enumerate(network.layers):
        origin = imported.lowered.origins[number] if imported else None
        stored = entries(layer.weight)
        layers.append(
            {
                "neurons": layer.size,
                "activations": _activations(layer),
                "weight": {
                    "shape": list(layer.weight.shape),
                    "sparse": bool(sparse.issparse(layer.weight)),
                    "entries": stored,
                },
                "folded": list(origin.folded) if origin else [],
                "applied": list(origin.applied) if origin else [],
                "carried": origin.carried if origin else 0,
                "dropped": origin.dropped if origin else 0,
            }
        )
    numbers = sum(entries(layer.weight) + layer.size for layer in network.layers)
    return {
        "inputs": network.inputs,
        "input_shape": list(imported.input_shape) if imported else [network.inputs],
        "outputs": network.outputs,
        "layers": layers,
        "parameters": imported.parameters if imported else numbers,
        "stored": numbers,
        "digest": network.digest,
        "free_memory": available_memory(),
        "costs": {name: {"seconds": c.seconds, "memory": c.memory} for name, c in costs(network).items()},
    }


def _activations(layer: Layer) -> dict[str, int]:
    """Names of the rows in use and how many neurons have each."""
    found: dict[str, int] = {}
    for row, index in layer.neurons.groups if layer.neurons else ():
        found[row.name] = found.get(row.name, 0) + int(index.size)
    return found


def _print(console: Console, model: str, record: dict[str, Any]) -> None:
    shape = " × ".join(map(str, record["input_shape"]))
    console.print(f"[bold]{model}[/bold]: {record['inputs']} inputs ({shape}), {record['outputs']} outputs,", end=" ")
    console.print(f"{record['parameters']:,} parameters, {record['stored']:,} numbers stored\n", soft_wrap=True)
    layers = Table("layer", "neurons", "activations", "weight", "made from")
    for number, layer in enumerate(record["layers"], 1):
        kinds = ", ".join(f"{name} {count}" for name, count in layer["activations"].items()) or "(output)"
        weight = f"{'sparse' if layer['weight']['sparse'] else 'dense'}, {layer['weight']['entries']:,}"
        notes = [*layer["folded"], *(name for name in layer["applied"] if name not in layer["folded"])]
        if layer["dropped"]:
            notes.append(f"{layer['dropped']} unused neurons left out")
        layers.add_row(str(number), str(layer["neurons"]), kinds, weight, ", ".join(notes))
    console.print(layers)
    prices = Table("method", "time, at most about", "memory")
    for name, cost in record["costs"].items():
        prices.add_row(name, _seconds(cost["seconds"]), _memory(cost["memory"]))
    console.print(prices)
    free, widest = record["free_memory"], max(layer["neurons"] for layer in record["layers"])
    console.print(
        f"The widest layer has {widest} neurons: {_memory(8 * widest**2)} a matrix if all their slopes are open."
    )
    if free is not None:
        console.print(f"Free memory: {_memory(free)}.")


def _seconds(value: float) -> str:
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if value >= 2 * size:
            return f"{value / size:.0f} {unit}"
    return f"{value:.2g} s"


def _memory(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
