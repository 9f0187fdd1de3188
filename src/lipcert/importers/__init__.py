"""Ways to obtain a network: one reader a kind of file or object, imported when it is first needed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from lipcert.errors import InvalidInput, UnreadableModel
from lipcert.network import Network

FILES: Final[Mapping[str, str]] = {
    ".npz": "lipcert.importers.arrays:read_npz",
    ".mat": "lipcert.importers.arrays:read_mat",
}
"""Suffix of a file → its reader, a function of (path, activation)."""

OBJECTS: Final[Mapping[str, str]] = {}
"""Package that defines the class of an object → its reader, a function of (object, activation)."""


def load(source: Any, activation: Any = None) -> Network:
    """A network from a file.

    Parameters
    ----------
    source
        Path of a ``.npz`` file with arrays ``W1, b1, W2, b2, …`` (biases optional) and optionally a string
        ``activation``, or of a ``.mat`` file with cell arrays ``weights`` and ``biases``. Nothing in a file is
        ever executed.
    activation
        As in :meth:`Network.from_weights`, where the file does not say. Names may carry parameters, as in
        ``"leaky_relu(0.2)"``.

    Raises
    ------
    UnreadableModel
        The file cannot be read as a network; the message says why.
    InvalidInput
        An argument is not what it should be.
    """
    if isinstance(source, (str, os.PathLike)):
        return _from_file(Path(source), activation)
    for package, reader in OBJECTS.items():
        if any(kind.__module__.partition(".")[0] == package for kind in type(source).__mro__):
            return _reader(reader)(source, activation)
    if isinstance(source, Network):
        raise InvalidInput("source is a Network already; there is nothing to load")
    raise InvalidInput(
        f"source must be a path of a {_known()} file, got {type(source).__name__};"
        " weights at hand go to Network.from_weights"
    )


def _from_file(path: Path, activation: Any) -> Network:
    reader = FILES.get(path.suffix.lower())
    if reader is None:
        came = f"the suffix {path.suffix!r}" if path.suffix else "no suffix"
        raise UnreadableModel(f"{path} has {came}; networks are read from {_known()} files")
    if path.is_dir():
        raise UnreadableModel(f"{path} is a folder; name a {_known()} file in it")
    if not path.exists():
        raise UnreadableModel(f"{path} does not exist; check the path (relative paths start at {Path.cwd()})")
    return _reader(reader)(path, activation)


def _reader(where: str) -> Any:
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)


def _known() -> str:
    *most, last = FILES
    return f"{', '.join(most)} or {last}"
