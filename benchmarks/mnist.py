"""MNIST from the folder beside the repository, and a classifier trained on it; shared by other benchmarks."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path

import lipcert as lc
from lipcert.model.arrays import Array
from lipcert.reproduce.classifiers import Images, Recipe, read_images, train

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "mnist"


@lru_cache
def mnist() -> Images:
    """All of MNIST."""
    if not FOLDER.is_dir():
        sys.exit(f"the MNIST files are not at {FOLDER}")
    return read_images(FOLDER)


def images() -> tuple[Array, Array]:
    """The test images, with pixels between 0 and 1, and their labels."""
    return mnist().test


def classifier(epochs: int = 4) -> lc.Network:
    """784-128-128-128-10 with ELU, trained as in the paper's study, but for so many epochs."""
    return train(mnist(), Recipe(epochs=epochs, target=1.0)).network
