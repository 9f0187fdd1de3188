"""Networks on disk: one .npz file with everything that the digest covers, so that it comes back with the same digest.

The arrays are named in docs/certificate-format.md. Nothing in a file is executed, and its digest must be that of what
was read.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy import sparse

from lipcert.errors import InvalidInput, UnreadableModel
from lipcert.files.whole import write_whole
from lipcert.model.activations import Activation
from lipcert.model.arrays import Array, Weight
from lipcert.model.convolution import Convolution
from lipcert.model.couplings import Coupling
from lipcert.model.network import Network, Neurons

FORMAT: Final = "lipcert network 1"
_GEOMETRY: Final = ("image", "stride", "padding", "dilation", "groups", "circular")
_NAMES: Final = ("input_names", "output_names")
_SPARSE: Final = ("shape", "indptr", "indices", "data")


def write(network: Network, path: str | os.PathLike[str]) -> None:
    """Write a network; the file appears whole or not at all."""
    if Path(path).suffix.lower() != ".npz":
        raise InvalidInput(f"path must end with .npz, got {os.fspath(path)!r}")
    if network.declared:
        raise InvalidInput(
            f"a network with declared activations cannot be saved ({'; '.join(network.declared)}): what was declared is"
            " Python's. Save its weights, and define the activation again where they are read"
        )
    arrays: dict[str, Any] = {"format": FORMAT, "digest": network.digest}
    if network.input_shape is not None:
        arrays["input_shape"] = np.array(network.input_shape, dtype=np.int64)
    arrays |= {name: np.array(each) for name, each in zip(_NAMES, network.names, strict=True) if each}
    for number, layer in enumerate(network.layers, 1):
        arrays |= {f"W{number}{part}": array for part, array in _parts(layer.linear).items()}
        arrays[f"b{number}"] = layer.bias
        for group, (row, neurons) in enumerate(layer.plain.groups if layer.plain else ()):
            name = f"activation{number}.{group}"
            arrays |= {name: row.name, f"{name}.neurons": np.asarray(neurons, dtype=np.int64)}
            arrays |= {f"{name}.{label}": p for label, p in zip(row.row.parameters, row.parameters, strict=True)}
        if layer.coupling is not None:
            rows = np.array(layer.coupling.rows, dtype=np.int64).reshape(-1, 2)
            arrays |= {f"coupling{number}.plain": np.array(layer.coupling.plain), f"coupling{number}.rows": rows}
            for group, product in enumerate(layer.coupling.products):
                arrays[f"coupling{number}.products.{group}"] = np.stack([product.one, product.two])
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    write_whole(path, stream.getvalue())


def _parts(linear: Weight | Convolution) -> dict[str, Any]:
    """The arrays of a weight; a matrix is one array, without a name of its own."""
    if isinstance(linear, Convolution):
        return {".kernel": linear.kernel} | {f".{name}": np.array(getattr(linear, name)) for name in _GEOMETRY}
    if sparse.issparse(linear):
        return {f".{name}": np.asarray(getattr(linear, name)) for name in _SPARSE}
    return {"": linear}


def built(path: Path, arrays: Mapping[str, Array]) -> Network:
    """The network of a file's arrays."""
    rest = dict(arrays)
    try:
        if str(rest.pop("format")) != FORMAT:
            raise ValueError(f"its format is {str(arrays['format'])[:40]!a}; this program reads {FORMAT!r}")
        digest, shape = str(rest.pop("digest")), rest.pop("input_shape", None)
        called, told = (_texts(rest.pop(name, None)) for name in _NAMES)
        weights: list[Any] = []
        biases: list[Array] = []
        neurons: list[Any] = []
        while f"b{len(biases) + 1}" in rest:
            number = len(biases) + 1
            weights.append(_weight(rest, f"W{number}"))
            biases.append(_real(rest, f"b{number}"))
            coupling = _coupling(rest, f"coupling{number}", biases[-1].size)
            if coupling is not None:
                neurons.append((_neurons(rest, f"activation{number}", coupling.plain), coupling))
            elif f"activation{number}.0" in rest:
                neurons.append(_neurons(rest, f"activation{number}", biases[-1].size))
        if rest:
            raise ValueError(f"it has an array {min(rest)[:40]!a}, which belongs to no layer")
        if len(neurons) != len(weights) - 1:
            raise ValueError(f"{len(weights)} layers do not go with the activations of {len(neurons)}")
        network = Network.from_weights(weights, biases, neurons)
        sizes = None if shape is None else _sizes(shape, network.inputs)
        network = Network(network.layers, sizes, (called, told))
        if network.digest != digest:
            raise ValueError("its content does not match its digest")
        return network
    except KeyError as error:
        raise UnreadableModel(f"{path} is damaged: it has no array {error}") from None
    except (ValueError, TypeError, OverflowError, MemoryError) as error:  # an InvalidInput is a ValueError
        raise UnreadableModel(f"{path} is damaged: {error}") from None


def _real(rest: dict[str, Array], name: str) -> Array:
    array = rest.pop(name)
    if array.dtype != np.float64:
        raise ValueError(f"{name} must be of float64, got {array.dtype}")
    return array


def _weight(rest: dict[str, Array], name: str) -> Any:
    if f"{name}.kernel" in rest:
        image, stride, padding, dilation, groups, circular = (rest.pop(f"{name}.{part}") for part in _GEOMETRY)
        kernel = _real(rest, f"{name}.kernel")
        # lists: what is asked of an argument is asked of what a file says
        sizes = image.tolist(), stride.tolist(), padding.tolist(), dilation.tolist()
        return Convolution.of(kernel, *sizes, groups=groups.item(), circular=bool(circular))
    if f"{name}.data" in rest:
        shape, indptr, indices = (rest.pop(f"{name}.{part}") for part in _SPARSE[:-1])
        return sparse.csr_array((_real(rest, f"{name}.data"), indices, indptr), shape=tuple(shape.tolist()))
    return _real(rest, name)


def _neurons(rest: dict[str, Array], name: str, size: int) -> Neurons:
    """The activations of a layer; each neuron must be in one group."""
    groups: list[tuple[Activation, Array]] = []
    while (label := f"{name}.{len(groups)}") in rest:
        kind, index = str(rest.pop(label)), rest.pop(f"{label}.neurons")
        told = {one: _real(rest, one) for one in list(rest) if one.startswith(f"{label}.")}
        if index.dtype.kind != "i" or any(np.shape(p) not in ((), index.shape) for p in told.values()):
            raise ValueError(f"the parameters of {label} are not for its neurons")
        row = Activation(kind, tuple(float(p) if not p.ndim else p for p in told.values()))
        if [f"{label}.{parameter}" for parameter in row.row.parameters] != list(told):
            raise ValueError(f"{label} does not have the parameters of {kind}")
        groups.append((row, index))
    found = np.concatenate([np.zeros(0, dtype=int), *(index for _, index in groups)])
    if not np.array_equal(np.sort(found), np.arange(size)):
        raise ValueError(f"the neurons of {name} are not each in one group")
    return Neurons(size, tuple(groups))


def _texts(names: Array | None) -> tuple[str, ...]:
    texts = () if names is None else tuple(map(str, names.ravel()))
    if not all(text.isprintable() for text in texts):
        raise ValueError("the names of its inputs or outputs cannot be printed")
    return texts


def _coupling(rest: dict[str, Array], name: str, size: int) -> Coupling | None:
    """The softmax rows and products of a layer, if there are any."""
    if f"{name}.plain" not in rest:
        return None
    plain, rows = rest.pop(f"{name}.plain"), rest.pop(f"{name}.rows")
    products: list[Array] = []
    while f"{name}.products.{len(products)}" in rest:
        products.append(rest.pop(f"{name}.products.{len(products)}"))
    if any(part.dtype.kind != "i" for part in (plain, rows, *products)) or rows.ndim != 2 or rows.shape[1] != 2:
        raise ValueError(f"{name} is not made of whole numbers")
    if any(product.ndim != 3 or len(product) != 2 for product in products):
        raise ValueError(f"the products of {name} are not pairs of positions")
    return Coupling.of(int(plain.item()), size, rows.tolist(), [(product[0], product[1]) for product in products])


def _sizes(shape: Array, inputs: int) -> tuple[int, ...]:
    sizes = tuple(shape.tolist())
    if shape.dtype.kind != "i" or shape.ndim != 1 or min(sizes, default=0) < 1 or np.prod(shape) != inputs:
        raise ValueError(f"input_shape does not go with {inputs} inputs")
    return sizes


Network.writer = write
