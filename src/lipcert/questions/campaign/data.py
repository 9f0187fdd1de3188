"""Points and labels, from arrays or files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lipcert.arguments.numbers import numbers, scaled
from lipcert.errors import InvalidInput, UnreadableModel
from lipcert.files.whole import is_file
from lipcert.importers.arrays import stored
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.questions.classifiers import classifier

_LABEL_NAMES = ("y", "label", "labels", "class", "target")


@dataclass(frozen=True, eq=False)
class Points:
    """Points (points, inputs) and labels (points,); None if the predicted class counts."""

    x: Array
    y: Array | None

    @staticmethod
    def of(network: Network, x: Any, y: Any = None) -> Points:
        """Check points and labels against the inputs and outputs of a network."""
        points = scaled("x", x)
        if points.ndim < 2 or not len(points) or points[0].size != network.inputs:
            raise InvalidInput(
                f"x must be (points, {network.inputs}), as the network has inputs, at least one point; got shape"
                f" {points.shape}"
            )
        network.flat("a point of x", points[0])  # an image of another shape is refused
        points = points.reshape(len(points), network.inputs)
        network = classifier(network)
        if y is None:
            return Points(points, None)
        labels = numbers("y", y).reshape(-1)
        if len(labels) != len(points):
            raise InvalidInput(f"y must have one label a point: got {len(labels)} for {len(points)} points")
        wrong = (labels != np.round(labels)) | (labels < 0) | (labels >= network.outputs)
        if wrong.any():
            raise InvalidInput(
                f"y must be whole numbers from 0 to {network.outputs - 1}; got {labels[wrong][0]:g} at point"
                f" {np.flatnonzero(wrong)[0]}"
            )
        return Points(points, labels.astype(int))

    def __len__(self) -> int:
        return len(self.x)

    @property
    def digest(self) -> str:
        """SHA-256 of points and labels."""
        state = hashlib.sha256(repr(self.x.shape).encode())
        state.update(np.ascontiguousarray(self.x, dtype="<f8").tobytes())
        state.update(b"none" if self.y is None else np.ascontiguousarray(self.y, dtype="<i8").tobytes())
        return state.hexdigest()


def read_points(path: str | Path, network: Network) -> Points:
    """Points from a file.

    An ``.npz`` file has ``x`` (points × inputs; images may keep their shape) and optionally ``y``. A ``.csv`` file has
    one point per line. It may start with a line of names; a column named y or label then holds the labels.
    """
    file = Path(path)
    if not is_file(file):
        raise InvalidInput(f"{file} does not exist or is no file")
    suffix = file.suffix.lower()
    if suffix not in (".npz", ".csv"):
        raise InvalidInput(f"{file} must be an .npz file with x and optionally y, or a .csv file")
    try:
        x, y = _from_npz(file) if suffix == ".npz" else _from_csv(file, network.inputs)
        return Points.of(network, x, y)
    except (OSError, ValueError, UnreadableModel) as error:  # an InvalidInput is a ValueError
        raise InvalidInput(str(error) if str(file) in str(error) else f"{file}: {error}") from None


def _from_npz(file: Path) -> tuple[Any, Any]:
    arrays = stored(file)
    if "x" not in arrays:
        raise InvalidInput(f"there is no array x; the file holds {', '.join(arrays) or 'nothing'}")
    for name in ("x", "y"):
        if name in arrays and arrays[name].dtype.kind not in "fiub":
            raise InvalidInput(f"{name} must hold real numbers, got {arrays[name].dtype}")
    return arrays["x"], arrays.get("y")


def _from_csv(file: Path, inputs: int) -> tuple[Any, Any]:
    lines = [line for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    names = [name.strip(' "').lower() for name in lines[0].split(",")] if lines else []
    named = any(map(_is_word, names))
    if len(lines) <= named:
        raise ValueError("it holds no points")
    if named and not all(map(_is_word, names)):
        raise ValueError(f"its first line has numbers and words: {', '.join(names)}"[:80])
    table = np.loadtxt(lines[named:], delimiter=",", ndmin=2, comments=None, quotechar='"')
    marked = [k for k, name in enumerate(names) if name in _LABEL_NAMES]
    if len(marked) > 1 or table.shape[-1] != len(names):
        raise ValueError(f"its first line must name each column, and one for labels at most: {', '.join(names)}"[:80])
    if marked:
        return np.delete(table, marked[0], axis=1), table[:, marked[0]]
    if table.shape[1] == inputs + 1:
        raise ValueError(
            f"it has {inputs + 1} columns and the network {inputs} inputs; if one column holds labels, name it y in a"
            " first line of names"
        )
    return table, None


def _is_word(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return True
    return False
