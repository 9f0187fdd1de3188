"""``lipcert inspect``: what was read from a model, and how many neurons are unstable on a region."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import numpy as np
from rich.console import Console
from scipy import sparse

from lipcert.arguments.values import entries
from lipcert.arguments.words import upward
from lipcert.cli import options, output
from lipcert.cli.options import option
from lipcert.errors import InvalidInput, ProofFailed
from lipcert.importers import examine
from lipcert.importers.lowering import Imported, Origin
from lipcert.kernel.neuron_bounds import all_slopes
from lipcert.kernel.norm_product import norm_product
from lipcert.methods.greedy import ClosedForm
from lipcert.methods.method import Problem
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.questions.certify import question
from lipcert.questions.tables import Cell, Table
from lipcert.runtime.machine import available_memory, suited_to
from lipcert.suggest.hints import BOTH


def inspect(
    model: options.ModelArgument,
    where: options.RegionOptions,
    reading: options.ReadingOptions,
    norms: Annotated[
        bool, option(None, "Prove a norm for every layer and block: is it 1-Lipschitz, and where not?", "--norms")
    ] = False,
    save: Annotated[str | None, option("FILE.npz", "Write the network, with the digest that answers name.")] = None,
    json: options.JsonOption = False,
) -> None:
    """Show what MODEL becomes as a network: layers, activations, and what was folded.

    With a region, one quick pass counts the unstable neurons there: those with more than one possible slope. The time
    and memory of a bound depend on them.

    [bold]Example[/bold]

      lipcert inspect model.onnx --center test.npz:7 --radius 0.1
    """
    if reading.mean is not None or reading.std is not None:
        raise InvalidInput("inspect shows the model alone; leave out --mean and --std")
    network, imported = examine(model, **reading.arguments())
    if save is not None:
        network.save(save)
    region, record = where.region(network), describe(network, imported)
    if region.bounded:
        for layer, count in zip(record["layers"], _unstable(network, region), strict=False):
            layer["unstable"] = count
        record["region"] = output.region_record(region)
    if norms:
        _add_norms(network, record)
    output.showing(json, dict, partial(_print, model), record)()


def describe(network: Network, imported: Imported | None) -> dict[str, Any]:
    """Everything about a network, in JSON's types."""
    layers = []
    for number, layer in enumerate(network.layers):
        origin = imported.origins[number] if imported else Origin((), (), 0, 0)
        names = Counter[str]()
        for row, index in layer.plain.groups if layer.plain else ():
            names[row.name] += int(index.size)
        if layer.coupling is not None:
            names["softmax"] += sum(count * width for count, width in layer.coupling.rows)
            names["products"] += sum(len(each.one) for each in layer.coupling.products)
        weight, stored = layer.weight, entries(layer.weight)
        about = {"neurons": layer.size, "activations": dict(+names), "unstable": None}
        about["weight"] = {"shape": list(weight.shape), "sparse": bool(sparse.issparse(weight)), "entries": stored}
        layers.append(about | asdict(origin))
    numbers = sum(entries(layer.weight) + layer.size for layer in network.layers)
    return {
        "inputs": network.inputs,
        "input_shape": list(network.input_shape or [network.inputs]),
        "outputs": network.outputs,
        "layers": layers,
        "parameters": imported.parameters if imported else numbers,
        "stored": numbers,
        "digest": network.digest,
        "free_memory": available_memory(),
        "region": None,
    }


def _unstable(network: Network, region: Region) -> list[int]:
    """Number of unstable neurons of each hidden layer, by one ClosedForm pass."""
    region, method = question(network, region, ClosedForm())
    with suited_to(max(network.sizes)):
        layers = method.solve(Problem(network, region, BOTH)).layers
    return [int((layer.beta > layer.alpha).sum()) for layer in layers]


def _add_norms(network: Network, record: dict[str, Any]) -> None:
    """Proved norms of the weights, the steepest slopes, bounds of blocks from z_p to v_i, and of the whole network.

    A block ends where no value is carried past the activations, as a skip or a max pool does; sorting carries none.
    """
    start, record["blocks"] = 0, []
    for number, (layer, about) in enumerate(zip(network.layers, record["layers"], strict=True), 1):
        about["norm"], about["steepest"] = _bounded(network.slice(number - 1, number)), None
        if layer.plain is not None:
            alpha, beta = all_slopes(layer.plain)
            steepest = float(np.maximum(np.abs(alpha), np.abs(beta)).max())
            about["steepest"] = steepest if np.isfinite(steepest) else None
            carried = np.zeros(alpha.shape, dtype=bool)
            for row, index in layer.plain.groups:
                carried[index] = row.name == "identity"
            sorting = np.array_equal(alpha[~carried], -beta[~carried])
            if layer.coupling is not None or (carried.any() and not carried.all() and not sorting):
                continue
        record["blocks"].append({"layers": [start + 1, number], "norm": _bounded(network.slice(start, number))})
        start = number
    record["norm"] = _bounded(network)


def _bounded(network: Network) -> float | None:
    """The product of norms, block by block; None if slopes have no limit, as those of products of signals."""
    try:
        return norm_product(network)
    except ProofFailed:
        return None


def _print(model: str, console: Console, record: dict[str, Any]) -> None:
    shape = " × ".join(map(str, record["input_shape"]))
    console.print(f"[bold]{model}[/bold]: {record['inputs']} inputs ({shape}), {record['outputs']} outputs,", end=" ")
    console.print(f"{record['parameters']:,} parameters, {record['stored']:,} numbers stored\n", soft_wrap=True)
    rows: list[list[Cell]] = []
    headings = ["layer", "neurons", "activations", "weight"]
    headings += ["unstable"] * (record["region"] is not None) + ["norm", "slope", "block"] * ("norm" in record)
    blocks = {block["layers"][1]: block for block in record.get("blocks", ())}
    for number, layer in enumerate(record["layers"], 1):
        kinds = ", ".join(f"{name} {count}" for name, count in layer["activations"].items()) or "(output)"
        weight = f"{'sparse' if layer['weight']['sparse'] else 'dense'}, {layer['weight']['entries']:,}"
        notes = [*layer["folded"], *(name for name in layer["applied"] if name not in layer["folded"])]
        if layer["dropped"]:
            notes.append(f"{layer['dropped']} unused neurons left out")
        rows.append([Cell(text) for text in (str(number), str(layer["neurons"]), kinds, weight)])
        if record["region"] is not None:
            rows[-1].append(Cell("" if layer["unstable"] is None else str(layer["unstable"])))
        if "norm" in record:
            block = blocks.get(number)
            first = "" if block is None else f"{block['layers'][0]}–{number}: "
            rows[-1] += [Cell.bound(layer["norm"], 6), Cell.bound(layer["steepest"], 6)]
            rows[-1].append(
                Cell() if block is None else Cell(first + (Cell.bound(block["norm"], 6).text or "unbounded"))
            )
        rows[-1].append(Cell(", ".join(notes)))
    console.print(output.ruled(Table("", (*headings, "made from"), rows)))
    if "norm" in record:
        whole = "no bound is known" if record["norm"] is None else f"at most {upward(record['norm'], 6)}"
        console.print(f"Lipschitz constant over all inputs, by these norms: {whole}.", soft_wrap=True)
    if record["region"] is None:
        console.print(
            "Give --center and --radius, or --box, to count unstable neurons, on which time and memory depend."
        )
