"""Images to train on: MNIST from its four files, or the digits that come with scikit-learn."""

from __future__ import annotations

import gzip
import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from lipcert.errors import InvalidInput
from lipcert.model.arrays import Array

FILES: Final = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
"""MNIST's files, as they are or with ``.gz`` behind."""

_DIGITS_TRAINING: Final = 1297
"""So many of the 1,797 digits are for training, 500 for testing."""


@dataclass(frozen=True, eq=False)
class Images:
    """Images (images, pixels) with pixels between 0 and 1, and labels (images,), to train on and to test with.

    Attributes
    ----------
    name : "mnist" or "digits".
    """

    name: str
    train: tuple[Array, Array]
    test: tuple[Array, Array]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of images and labels."""
        state = hashlib.sha256()
        for part in (*self.train, *self.test):
            state.update(np.ascontiguousarray(part, dtype="<f8").tobytes())
        return state.hexdigest()


def read_images(folder: Path | None = None) -> Images:
    """MNIST from a folder with its four files, raw or gzipped; without a folder scikit-learn's digits."""
    if folder is None:
        return _digits()
    if not folder.is_dir():
        raise InvalidInput(f"the data must be a folder with MNIST's four files; {folder} is not a folder")
    missing = [name for names in FILES.values() for name in names if _file(folder, name) is None]
    if missing:
        raise InvalidInput(f"{folder} lacks {', '.join(missing)} (with or without .gz); MNIST has four files")
    raw = [(_idx(folder, images), _idx(folder, labels)) for images, labels in FILES.values()]
    train, test = ((x.reshape(len(x), -1) / 255.0, y.astype(int)) for x, y in raw)
    for x, y in raw:
        if len(x) != len(y) or not len(x):
            raise InvalidInput(f"{folder} has {len(x)} images but {len(y)} labels; get its files again")
    return Images("mnist", train, test)


def _file(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _idx(folder: Path, name: str) -> Array:
    """The array in an idx file: two zeros, the type (8: bytes), the number of axes, their sizes, the bytes."""
    path = _file(folder, name)
    assert path is not None
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise InvalidInput(f"{path} is damaged: {error}") from None
    axes = content[3] if content[:3] == b"\x00\x00\x08" and len(content) > 3 else 0
    start = 4 + 4 * axes
    if not axes or len(content) < start:
        raise InvalidInput(f"{path} is not an idx file of bytes")
    shape = struct.unpack(f">{axes}I", content[4:start])
    if len(content) - start != np.prod(shape, dtype=float):
        raise InvalidInput(f"{path} is damaged: its size does not fit its shape {shape}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _digits() -> Images:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise InvalidInput(
            "the digits come with scikit-learn: pip install 'lipcert[reproduce]'; or give a folder with MNIST"
        ) from None
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:_DIGITS_TRAINING], order[_DIGITS_TRAINING:]
    return Images("digits", (x[train] / 16.0, y[train]), (x[test] / 16.0, y[test]))
