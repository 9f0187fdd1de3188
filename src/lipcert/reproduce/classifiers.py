"""The two classifiers of the MNIST study: images to train on, training with PyTorch, and a folder that keeps them."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import itertools
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from lipcert.errors import InvalidInput
from lipcert.importers import load
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.reproduce.store import Key, Store
from lipcert.runtime.clock import clock

FILES: Final = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
"""MNIST's files, as they are or with ``.gz`` behind."""

_DIGITS_TRAINING: Final = 1297
"""So many of the 1,797 digits are for training, 500 for testing."""


@dataclass(frozen=True, eq=False)
class Images:
    """Images (images, pixels) with pixels between 0 and 1, and labels; the name is "mnist" or "digits"."""

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
    sets = []
    for names in FILES.values():
        x, y = (_idx(folder / name) for name in names)
        if len(x) != len(y) or not len(x):
            raise InvalidInput(f"{folder} has {len(x)} images but {len(y)} labels; get its files again")
        sets.append((x.reshape(len(x), -1) / 255.0, y.astype(int)))
    return Images("mnist", sets[0], sets[1])


def _idx(path: Path) -> Array:
    """The array in an idx file: two zeros, the type (8: bytes), the number of axes, their sizes, the bytes."""
    packed = path.with_name(f"{path.name}.gz")
    if not (path.is_file() or packed.is_file()):
        raise InvalidInput(f"{path.parent} lacks {path.name} (with or without .gz); MNIST has four files")
    try:
        content = path.read_bytes() if path.is_file() else gzip.decompress(packed.read_bytes())
        zeros, kind, axes = struct.unpack_from(">HBB", content)
        shape = struct.unpack_from(f">{axes}I", content, 4)
        if (zeros, kind) != (0, 8):
            raise ValueError("it is not an idx file of bytes")
        return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)
    except (OSError, EOFError, ValueError, struct.error) as error:
        raise InvalidInput(f"{path} is damaged: {error}") from None


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


CLASSES: Final = 10


@dataclass(frozen=True)
class Recipe:
    """How to train: Adam on cross-entropy, plus ``penalty`` times E‖vᵀJ‖² = ‖J‖²_F, v a random vector of signs.

    Training ends at the ``target`` accuracy on the test set, which is checked so many times an epoch.
    """

    hidden: tuple[int, ...] = (128, 128, 128)
    penalty: float = 0.0
    rate: float = 1e-3
    decay: float = 1e-4
    batch: int = 128
    epochs: int = 50
    target: float = 0.98
    checks: int = 10
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Classifier:
    """A network, its accuracy on the test set, and the epochs it took, the last of them perhaps in part."""

    network: Network
    accuracy: float
    epochs: int
    name: str = ""


def train(images: Images, recipe: Recipe, name: str = "") -> Classifier:
    """Train a classifier of that name whose hidden layers have ELU neurons."""
    torch = require_torch()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return _train(torch, images, recipe, name)


def _train(torch: Any, images: Images, recipe: Recipe, name: str) -> Classifier:
    x, y = (torch.tensor(part) for part in images.train)
    x = x.float()
    linear = [torch.nn.Linear(*sizes) for sizes in itertools.pairwise((x.shape[1], *recipe.hidden, CLASSES))]
    model = torch.nn.Sequential(*[part for layer in linear for part in (layer, torch.nn.ELU())][:-1])
    optimiser = torch.optim.Adam(model.parameters(), lr=recipe.rate, weight_decay=recipe.decay)
    batches = -(-len(x) // recipe.batch)
    every, last, seen = -(-batches // recipe.checks), batches * recipe.epochs, 0
    for epoch in range(1, recipe.epochs + 1):
        for part in torch.randperm(len(x)).split(recipe.batch):
            optimiser.zero_grad()
            _loss(torch, model, x[part], y[part], recipe.penalty).backward()
            optimiser.step()
            seen += 1
            if seen % every == 0 or seen == last:
                found = _tested(linear, images, epoch, name)
                if found.accuracy >= recipe.target:
                    return found
        clock().say(f"training {name}: {found.accuracy:.2%} right after epoch {epoch} of at most {recipe.epochs}")
    return found


def _tested(linear: list[Any], images: Images, epoch: int, name: str) -> Classifier:
    """The network as it is, with its share of test images that are classified as they should be."""
    weights, biases = ([getattr(one, name).detach().double().numpy() for one in linear] for name in ("weight", "bias"))
    network, (x, y) = Network.from_weights(weights, biases, "elu"), images.test
    return Classifier(network, float(np.mean(network(x).argmax(axis=1) == y)), epoch, name)


def _loss(torch: Any, model: Any, x: Any, y: Any, penalty: float) -> Any:
    if penalty == 0.0:
        return torch.nn.functional.cross_entropy(model(x), y)
    x = x.requires_grad_(True)
    outputs = model(x)
    probe = 2.0 * torch.randint(0, 2, outputs.shape) - 1.0
    (gradient,) = torch.autograd.grad((probe * outputs).sum(), x, create_graph=True)
    return torch.nn.functional.cross_entropy(outputs, y) + penalty * gradient.square().sum(dim=1).mean()


def require_torch() -> Any:
    """PyTorch, or an error that says what to install."""
    try:
        return importlib.import_module("torch")  # its own annotations are incomplete
    except ImportError:
        raise InvalidInput("training needs PyTorch: pip install 'lipcert[torch]'") from None


_NARROW: Final = (64, 64, 64)
RECIPES: Final[dict[str, dict[str, Recipe]]] = {
    "mnist": {"baseline": Recipe(), "regularised": Recipe(penalty=1.0)},
    "digits": {"baseline": Recipe(_NARROW, batch=16), "regularised": Recipe(_NARROW, penalty=0.05, batch=16)},
}
"""By name of the images. There are few digits, so batches are small. They have few pixels, so narrower layers are
enough, and a penalty of 1 would leave little to learn.
"""


def classifiers(
    folder: Path, images: Images, store: Store, recipes: Mapping[str, Recipe] | None = None
) -> list[Classifier]:
    """Both classifiers: from the folder if they were trained on these images by the same recipe, else trained now.

    They are saved as NAME.npz, which ``lipcert.load`` reads, and accuracy and epochs are kept in the store.
    """
    found = []
    for name, recipe in (recipes or RECIPES[images.name]).items():
        path = folder / f"{name}.npz"
        key: Key = {"trained": name, "recipe": repr(recipe), "images": images.digest}
        note = store.find(key)
        if note is None or not path.exists():
            made = train(images, recipe, name)
            made.network.save(path)
            note = {"accuracy": made.accuracy, "epochs": made.epochs}
            store.add(key, note)
        found.append(Classifier(load(path), note["accuracy"], note["epochs"], name))
    return found
