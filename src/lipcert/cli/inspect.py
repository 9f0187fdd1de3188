"""``lipcert inspect``: the network that a model file becomes."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from scipy import sparse

from lipcert.cli import given, options
from lipcert.cli.output import show
from lipcert.importers import examine
from lipcert.importers.faithful import Imported
from lipcert.model.network import Layer, Network
from lipcert.runtime.costs import entries


def inspect(
    model: options.ModelArgument,
    input_shape: options.InputShapeOption = None,
    drop_softmax: options.DropSoftmaxOption = False,
    fixed: given.FixedOption = None,
    output: given.OutputOption = None,
    activation: options.ActivationOption = None,
    json: options.JsonOption = False,
) -> None:
    """Show the network that MODEL becomes: its layers, activations, and the operations that each layer was made from.

    [bold]Example[/bold]

      lipcert inspect model.onnx

      lipcert inspect model.npz --activation tanh --json
    """
    network, imported = examine(
        model,
        options.activations(activation),
        input_shape=options.shape("--input-shape", input_shape),
        drop_softmax=drop_softmax,
        fixed=given.values(fixed),
        output=output,
    )
    show(json, lambda _, record: record, _print, model, describe(network, imported))


def describe(network: Network, imported: Imported | None) -> dict[str, Any]:
    """Everything about a network, in JSON's types."""
    layers = []
    for number, layer in enumerate(network.layers):
        origin = imported.lowered.origins[number] if imported else None
        weight = layer.weight
        layers.append(
            {
                "neurons": layer.size,
                "activations": _activations(layer),
                "weight": {
                    "shape": list(weight.shape),
                    "sparse": bool(sparse.issparse(weight)),
                    "entries": entries(weight),
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
    }


def _activations(layer: Layer) -> dict[str, int]:
    """Names of the activations, and how many neurons have each."""
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
