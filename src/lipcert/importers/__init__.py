"""Ways to obtain a network: one reader a kind of file or object, imported when it is first needed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from lipcert.arguments.numbers import numbers
from lipcert.errors import InvalidInput, UnreadableModel
from lipcert.files.whole import is_file
from lipcert.importers.builder import Builder
from lipcert.importers.lowering import Imported, lower
from lipcert.importers.untrusted import LARGEST_INPUT
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.runtime.clock import Progress, timed

ARRAYS: Final[Mapping[str, str]] = {
    ".npz": "lipcert.importers.arrays:read_npz",
    ".mat": "lipcert.importers.arrays:read_mat",
    ".nnet": "lipcert.importers.arrays:read_nnet",
}
"""Suffix of a file of bare arrays → its reader, a function of (path, activation) to a network."""

MODELS: Final[Mapping[str, str]] = {
    ".onnx": "lipcert.importers.onnx:read_onnx",
    ".pt2": "lipcert.importers.pt2:read_program",
}
"""Suffix of a file with a whole model → its reader, to a network and where it comes from."""

OBJECTS: Final[Mapping[str, str]] = {
    "torch": "lipcert.importers.torch:read_module",
    "onnx": "lipcert.importers.onnx:read_onnx",
}
"""Package that defines the class of an object → its reader, as for MODELS."""


def load(
    source: Any,
    activation: Any = None,
    *,
    input_shape: Sequence[int] | None = None,
    drop_softmax: bool = False,
    points: Any = None,
    fixed: Mapping[str, Any] | None = None,
    output: str | int | None = None,
    mean: Any = None,
    std: Any = None,
    inputs: Sequence[str] | bool | None = None,
    outputs: Sequence[str] | bool | None = None,
    progress: Progress | None = None,
) -> Network:
    """A network from a model or a file.

    Parameters
    ----------
    source
        A ``torch.nn.Module`` in evaluation mode, a ``torch.export.ExportedProgram``, or the path of a file: ``.onnx``;
        ``.pt2``, a program that ``torch.export.save`` wrote; ``.npz`` with arrays
        ``W1, b1, W2, b2, …`` (biases optional) and optionally a string ``activation``; ``.mat`` with the same, or
        with cell arrays ``weights`` and ``biases``, or ``W``, ``b`` and ``act_fcns`` of NNV, or ``IW``, ``LW`` and
        ``b`` of MATLAB's networks; ``.nnet`` of the ACAS family. Nothing in a file is ever executed.
    activation
        As in :meth:`Network.from_weights`, where the file does not say. Names may carry parameters, as in
        ``"leaky_relu(0.2)"``.
    input_shape
        Shape of one input, without the batch, such as ``(3, 32, 32)``, where the model does not say.
    drop_softmax
        Where the last operation of a model is a softmax, take what it receives, the logits, as the output.
    points
        Inputs, flat, at which network and model are compared, besides random ones.
    fixed
        Where a model takes several inputs: the values of all but one, by name, as in ``{"mask": mask}``.
    output
        Where a model returns several values: the name (of a dictionary, dataclass or ONNX output) or the number of the
        one that is meant.
    mean, std
        A normalisation (x - mean)/std to put in front of the model: then centres and radii are in the units of x, such
        as those of pixels. One number, one per channel, or one per input.
    inputs, outputs
        What inputs and outputs are called, with units, as in ``inputs=["angle [rad]", "rate [rad/s]"]``, or True for
        the names of an ONNX model: for tables, plots and reports. The digest does not depend on it.
    progress
        Told, in short lines, what is being done, as in ``progress=print``. Default: a line on the terminal.

    Returns
    -------
    Network
        It computes what the model computes for a batch of one, input and output flat (C order). This has been
        checked against the library the model comes from.

    Raises
    ------
    UnreadableModel
        The source cannot be read as a network; the message says why and, for operations without an exact
        translation, lists them all.
    InvalidInput
        An argument is not what it should be.
    """
    options = {"input_shape": input_shape, "drop_softmax": drop_softmax, "points": points, "fixed": fixed}
    with timed(None, progress):
        network, imported = examine(source, activation, output=output, **options)
    network = normalised(network, mean, std, apart=imported is not None)  # its weights may have been rounded already
    given = (("inputs", inputs, network.inputs), ("outputs", outputs, network.outputs))
    called = [_names(*each, own, imported is None) for each, own in zip(given, network.names, strict=True)]
    return replace(network, names=(called[0], called[1]))


def examine(source: Any, activation: Any = None, **options: Any) -> tuple[Network, Imported | None]:
    """As :func:`load`, with where the network's layers come from if the source is a whole model."""
    options = {"input_shape": None, "drop_softmax": False, "points": None, "fixed": None, "output": None} | options
    reader = _model_reader(source)
    if reader is not None:
        if activation is not None:
            raise InvalidInput("activation has no meaning here: the model says which activations it has")
        if options["input_shape"] is not None:
            options["input_shape"] = _sizes(options["input_shape"])
        source = _file(Path(source)) if isinstance(source, (str, os.PathLike)) else source
        with timed():
            imported: Imported = _reader(reader)(source, **options)
        return imported.network, imported
    if isinstance(source, Network):
        raise InvalidInput("source is a Network already; there is nothing to load")
    if not isinstance(source, (str, os.PathLike)):
        raise InvalidInput(
            f"source must be a torch.nn.Module or a path of a {_known()} file, got {type(source).__name__};"
            " weights at hand go to Network.from_weights"
        )
    path = _file(Path(source))
    spare = [name for name, value in options.items() if value is not None and value is not False]
    if spare:
        raise InvalidInput(f"{', '.join(spare)} has no meaning for {path}, a {path.suffix} file of weights")
    return _reader(ARRAYS[path.suffix.lower()])(path, activation), None


def _names(what: str, given: Any, count: int, own: tuple[str, ...], kept: bool) -> tuple[str, ...]:
    """The names that are given, or those of the model, which many exporters number: only where they are asked for."""
    if given is None or (given is True and own):
        return own if given or kept else ()
    names = () if isinstance(given, (str, bool)) else tuple(given)
    if len(names) != count or not all(isinstance(name, str) and name.strip() and name.isprintable() for name in names):
        raise InvalidInput(f"{what} must be {count} names, such as 'angle [rad]', one for each; got {given!r}")
    return names


def normalised(network: Network, mean: Any = None, std: Any = None, apart: bool = False) -> Network:
    """The network that takes x and computes what the given one computes of (x - mean)/std.

    ``mean`` and ``std`` are one number for all inputs, one per channel (channels first), or one per input. Each weight
    is within 2⁻⁵⁰ of the quotient, and each bias of the whole sum, relatively. Where that cannot be shown, or ``apart``
    asks for it since weights may have been rounded already, the normalisation is a layer of its own, with neurons of
    the identity.
    """
    if mean is None and std is None:
        return network
    m, s = (
        _per_input("mean", 0.0 if mean is None else mean, network),
        _per_input("std", 1.0 if std is None else std, network),
    )
    if (s <= 0.0).any():
        raise InvalidInput(f"std must be positive, got {s[s <= 0.0][0]:g}")
    first, build = network.layers[0], Builder((network.inputs,))
    x = build.divide(build.scale(build.input, 1.0, -m), s)
    x = build.activate(x, "identity") if apart else build.affine(x, first.weight, first.bias, (first.size,))
    made = lower(build.finish(x)).network.layers
    made = made[:-1] if apart else (*made[:-1], replace(made[-1], plain=first.plain, coupling=first.coupling))
    return replace(network, layers=(*made, *network.layers[0 if apart else 1 :]))


def _per_input(name: str, value: Any, network: Network) -> Array:
    given, size, shape = numbers(name, value), network.inputs, network.input_shape
    channels = shape[0] if shape and len(shape) > 1 else given.size  # of a flat input they are not known
    if given.ndim > 1 or not given.size or size % given.size or given.size not in (1, channels, size):
        raise InvalidInput(
            f"{name} must be one number, one per channel or one per input; got {given.size} for {size} inputs"
            + (f" of shape {shape}" if shape else "")
        )
    return np.repeat(np.atleast_1d(given), size // given.size)


def _sizes(shape: Any) -> tuple[int, ...]:
    """A shape as whole numbers; True is none, though Python has it as 1."""
    sizes = np.atleast_1d(numbers("input_shape", shape))
    flags = any(isinstance(entry, (bool, np.bool_)) for entry in (shape if np.ndim(shape) == 1 else [shape]))
    if flags or sizes.ndim != 1 or not sizes.size or (sizes < 1).any() or (sizes != np.round(sizes)).any():
        raise InvalidInput(f"input_shape must be positive sizes without the batch, such as (3, 32, 32), got {shape!r}")
    if sizes.prod() > LARGEST_INPUT:
        raise InvalidInput(f"input_shape must have at most {LARGEST_INPUT} numbers together, got {shape!r}")
    return tuple(int(size) for size in sizes)


def _model_reader(source: Any) -> str | None:
    if isinstance(source, (str, os.PathLike)):
        return MODELS.get(Path(source).suffix.lower())
    packages = (kind.__module__.partition(".")[0] for kind in type(source).__mro__)
    return next((OBJECTS[package] for package in packages if package in OBJECTS), None)


def _file(path: Path) -> Path:
    if path.suffix.lower() not in {*ARRAYS, *MODELS}:
        if path.suffix.lower() in (".pt", ".pth"):
            raise UnreadableModel(
                f"{path} does not say what its numbers belong to; build the module, load its state dict and pass the"
                " module: lipcert.load(module.eval())"
            )
        came = f"the suffix {path.suffix!r}" if path.suffix else "no suffix"
        raise UnreadableModel(f"{path} has {came}; networks are read from {_known()} files")
    if os.path.isdir(path):
        raise UnreadableModel(f"{path} is a folder; name a {_known()} file in it")
    if not is_file(path):
        missing = f"{path} does not exist; check the path (relative paths start at {Path.cwd()})"
        there = f"{path} is no regular file; copy what it gives into one"
        raise UnreadableModel(there if os.path.exists(path) else missing)
    return path


def _reader(where: str) -> Any:
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)


def _known() -> str:
    *most, last = (*ARRAYS, *MODELS)
    return f"{', '.join(most)} or {last}"
