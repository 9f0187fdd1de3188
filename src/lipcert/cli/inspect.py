"""``lipcert inspect``: what was read from a model, and how much of it a region leaves open."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from scipy import sparse

from lipcert.cli import options
from lipcert.cli.output import console, region_record, show
from lipcert.errors import InvalidInput
from lipcert.importers import examine
from lipcert.importers.faithful import Imported
from lipcert.kernel.hints import BOTH
from lipcert.methods.closed_form import ClosedForm
from lipcert.methods.problem import Problem
from lipcert.model.network import Layer, Network
from lipcert.model.regions import Region
from lipcert.questions.certify import question
from lipcert.runtime.costs import available_memory, entries
from lipcert.runtime.threads import suited_to


def inspect(
    model: options.ModelArgument,
    where: options.RegionOptions,
    reading: options.ReadingOptions,
    save: Annotated[
        str | None, typer.Option(metavar="FILE.npz", help="Write the network, with the digest that answers name.")
    ] = None,
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
    region = where.region(network)
    if region.bounded and not json:  # the layers are known before the pass over the region
        _print_layers(console(), model, describe(network, imported))
    show(json, lambda _, record: record, _print, model, describe(network, imported, region))


def describe(network: Network, imported: Imported | None, region: Region | None = None) -> dict[str, Any]:
    """Everything about a network, in JSON's types."""
    bounded = region is not None and region.bounded
    open_ = _open_slopes(network, region) if region is not None and bounded else None
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
                "open": None if open_ is None or number >= len(open_) else open_[number],
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
        "region": region_record(region) if region is not None and bounded else None,
    }


def _open_slopes(network: Network, region: Region) -> list[int]:
    """Number of neurons of each hidden layer with more than one slope over the region, by one ClosedForm pass."""
    region, method = question(network, region, ClosedForm())
    with suited_to(max(network.sizes)):
        layers = method.solve(Problem(network, region, BOTH)).layers
    return [int((layer.beta > layer.alpha).sum()) for layer in layers]


def _activations(layer: Layer) -> dict[str, int]:
    """Names of the activations, and how many neurons have each."""
    found: dict[str, int] = {}
    for row, index in layer.neurons.groups if layer.neurons else ():
        found[row.name] = found.get(row.name, 0) + int(index.size)
    return found


def _print(console: Console, model: str, record: dict[str, Any]) -> None:
    if record["region"] is None:
        _print_layers(console, model, record)
    else:
        counts = Table("layer", "neurons", "open slopes")
        for number, layer in enumerate(record["layers"], 1):
            if layer["open"] is not None:
                counts.add_row(str(number), str(layer["neurons"]), str(layer["open"]))
        console.print(counts)
    _print_memory(console, record)


def _print_layers(console: Console, model: str, record: dict[str, Any]) -> None:
    """The table of layers, which needs no region."""
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


def _print_memory(console: Console, record: dict[str, Any]) -> None:
    """The size of the largest matrix, and free memory."""
    free, widest = record["free_memory"], max(layer["neurons"] for layer in record["layers"])
    if record["region"] is not None:
        most = max((layer["open"] or 0 for layer in record["layers"]), default=0)
        console.print(f"At most {most} slopes of a layer are open over the region: {_memory(8 * most**2)} a matrix.")
    else:
        console.print(
            f"The widest layer has {widest} neurons: {_memory(8 * widest**2)} a matrix if all their slopes are open."
            " Give --center and --radius to count those of a region."
        )
    if free is not None:
        console.print(f"Free memory: {_memory(free)}.")


def _memory(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
