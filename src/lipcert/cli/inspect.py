"""``lipcert inspect``: what was read from a model, and how much of it a region leaves open."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

from rich.console import Console
from scipy import sparse

from lipcert.cli import options, output
from lipcert.cli.options import option
from lipcert.errors import InvalidInput
from lipcert.importers import examine
from lipcert.importers.faithful import Imported
from lipcert.kernel.hints import BOTH
from lipcert.methods.greedy import ClosedForm
from lipcert.methods.method import Problem
from lipcert.model.network import Network, entries
from lipcert.model.regions import Region
from lipcert.questions.certify import question
from lipcert.questions.tables import Cell, Table
from lipcert.runtime.machine import available_memory, suited_to


def inspect(
    model: options.ModelArgument,
    where: options.RegionOptions,
    reading: options.ReadingOptions,
    save: Annotated[str | None, option("FILE.npz", "Write the network, with the digest that answers name.")] = None,
    json: options.JsonOption = False,
) -> None:
    """Show what MODEL becomes as a network: layers, activations, and what was folded.

    With a region one quick pass counts the open slopes, on which the time and the memory of a bound depend.

    [bold]Example[/bold]

      lipcert inspect model.onnx

      lipcert inspect model.npz --activation tanh --json

      lipcert inspect model.onnx --save network.npz

      lipcert inspect model.onnx --center test.npz:7 --radius 0.1
    """
    if reading.mean is not None or reading.std is not None:
        raise InvalidInput("inspect shows the model alone; leave out --mean and --std")
    network, imported = examine(model, **reading.arguments())
    if save is not None:
        network.save(save)
    region, record, console = where.region(network), describe(network, imported), output.console()
    if not json:  # the layers are known before the pass over the region
        _print_layers(console, model, record)
    if region.bounded:
        for layer, count in zip(record["layers"], _open_slopes(network, region), strict=False):
            layer["open"] = count
        record["region"] = output.region_record(region)
    if json:
        output.print_json(record)
    else:
        _print_open_slopes(console, record)


def describe(network: Network, imported: Imported | None) -> dict[str, Any]:
    """Everything about a network, in JSON's types."""
    layers = []
    for number, layer in enumerate(network.layers):
        origin = imported.lowered.origins[number] if imported else None
        names = Counter[str]()
        for row, index in layer.neurons.groups if layer.neurons else ():
            names[row.name] += int(index.size)
        layers.append(
            {
                "neurons": layer.size,
                "activations": dict(names),
                "weight": {
                    "shape": list(layer.weight.shape),
                    "sparse": bool(sparse.issparse(layer.weight)),
                    "entries": entries(layer.weight),
                },
                "folded": list(origin.folded) if origin else [],
                "applied": list(origin.applied) if origin else [],
                "carried": origin.carried if origin else 0,
                "dropped": origin.dropped if origin else 0,
                "open": None,
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
        "region": None,
    }


def _open_slopes(network: Network, region: Region) -> list[int]:
    """Number of neurons of each hidden layer with more than one slope over the region, by one ClosedForm pass."""
    region, method = question(network, region, ClosedForm())
    with suited_to(max(network.sizes)):
        layers = method.solve(Problem(network, region, BOTH)).layers
    return [int((layer.beta > layer.alpha).sum()) for layer in layers]


def _print_layers(console: Console, model: str, record: dict[str, Any]) -> None:
    shape = " × ".join(map(str, record["input_shape"]))
    console.print(f"[bold]{model}[/bold]: {record['inputs']} inputs ({shape}), {record['outputs']} outputs,", end=" ")
    console.print(f"{record['parameters']:,} parameters, {record['stored']:,} numbers stored\n", soft_wrap=True)
    rows = []
    for number, layer in enumerate(record["layers"], 1):
        kinds = ", ".join(f"{name} {count}" for name, count in layer["activations"].items()) or "(output)"
        weight = f"{'sparse' if layer['weight']['sparse'] else 'dense'}, {layer['weight']['entries']:,}"
        notes = [*layer["folded"], *(name for name in layer["applied"] if name not in layer["folded"])]
        if layer["dropped"]:
            notes.append(f"{layer['dropped']} unused neurons left out")
        rows.append([Cell(text) for text in (str(number), str(layer["neurons"]), kinds, weight, ", ".join(notes))])
    console.print(output.ruled(Table("", ("layer", "neurons", "activations", "weight", "made from"), rows)))


def _print_open_slopes(console: Console, record: dict[str, Any]) -> None:
    if record["region"] is None:
        console.print("Give --center and --radius to count open slopes, on which time and memory depend.")
        return
    counted = [(k, layer) for k, layer in enumerate(record["layers"], 1) if layer["open"] is not None]
    rows = [[Cell(str(k)), Cell(str(layer["neurons"])), Cell(str(layer["open"]))] for k, layer in counted]
    console.print(output.ruled(Table("", ("layer", "neurons", "open slopes"), rows)))
