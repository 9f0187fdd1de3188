"""The paper's two classifiers, trained with PyTorch (extra ``torch``)."""

from __future__ import annotations

import importlib
import itertools
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from lipcert.errors import InvalidInput
from lipcert.model.network import Network
from lipcert.reproduce.images import Images
from lipcert.runtime.clock import Progress, silent

CLASSES: Final = 10


@dataclass(frozen=True)
class Recipe:
    """How to train: Adam on cross-entropy, plus ``penalty`` times the squared norm of the Jacobian, estimated.

    Attributes
    ----------
    hidden : sizes of the hidden layers.
    penalty : weight of E‖vᵀJ‖² = ‖J‖²_F, one random sign vector v a batch element (Hutchinson); 0 leaves it out.
    rate, decay, batch, epochs : of Adam.
    target, checks : training ends where this accuracy on the test set is met; it is looked at about so often an epoch,
        after equal numbers of batches from the first one on.
    seed : of the first weights, the order of the images and the probes.
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
class Trained:
    """A network, its accuracy on the test set, and the epochs it took, the last of them perhaps not to its end."""

    network: Network
    accuracy: float
    epochs: int


def train(images: Images, recipe: Recipe, report: Progress = silent) -> Trained:
    """Train a classifier whose hidden layers have ELU neurons."""
    torch = require_torch()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return _train(torch, images, recipe, report)


def _train(torch: Any, images: Images, recipe: Recipe, report: Progress) -> Trained:
    x, y = (torch.tensor(part) for part in images.train)
    x = x.float()
    linear = [torch.nn.Linear(*sizes) for sizes in itertools.pairwise((x.shape[1], *recipe.hidden, CLASSES))]
    model = torch.nn.Sequential(*[part for layer in linear for part in (layer, torch.nn.ELU())][:-1])
    optimiser = torch.optim.Adam(model.parameters(), lr=recipe.rate, weight_decay=recipe.decay)
    if min(recipe.epochs, recipe.checks) < 1:
        raise InvalidInput(f"epochs and checks must be at least 1, got {recipe.epochs} and {recipe.checks}")
    batches = -(-len(x) // recipe.batch)
    every, last = -(-batches // recipe.checks), batches * recipe.epochs
    seen = 0
    for epoch in range(1, recipe.epochs + 1):
        for part in torch.randperm(len(x)).split(recipe.batch):
            optimiser.zero_grad()
            _loss(torch, model, x[part], y[part], recipe.penalty).backward()
            optimiser.step()
            seen += 1
            if seen % every == 0 or seen == last:
                network = _network(linear)
                trained = Trained(network, accuracy(network, images), epoch)
                if trained.accuracy >= recipe.target:
                    report(f"epoch {epoch}: {trained.accuracy:.2%} of the test images are right")
                    return trained
        report(f"epoch {epoch} of at most {recipe.epochs}: {trained.accuracy:.2%} of the test images are right")
    return trained


def accuracy(network: Network, images: Images) -> float:
    """Share of the test images that are classified as they should be."""
    x, y = images.test
    return float(np.mean(network(x).argmax(axis=1) == y))


def _loss(torch: Any, model: Any, x: Any, y: Any, penalty: float) -> Any:
    if penalty == 0.0:
        return torch.nn.functional.cross_entropy(model(x), y)
    x = x.requires_grad_(True)
    outputs = model(x)
    probe = 2.0 * torch.randint(0, 2, outputs.shape) - 1.0
    (gradient,) = torch.autograd.grad((probe * outputs).sum(), x, create_graph=True)
    return torch.nn.functional.cross_entropy(outputs, y) + penalty * gradient.square().sum(dim=1).mean()


def _network(linear: list[Any]) -> Network:
    weights = [layer.weight.detach().double().numpy() for layer in linear]
    return Network.from_weights(weights, [layer.bias.detach().double().numpy() for layer in linear], "elu")


def require_torch() -> Any:
    """PyTorch, or an error that says what to install."""
    try:
        return importlib.import_module("torch")  # its own annotations are incomplete
    except ImportError:
        raise InvalidInput("training needs PyTorch: pip install 'lipcert[torch]'") from None
