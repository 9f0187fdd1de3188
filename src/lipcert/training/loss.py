"""A loss for training whose minimum is a classifier with certified radii."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.nn.functional import cross_entropy, one_hot

from lipcert.errors import InvalidInput
from lipcert.training.bound import Bounds, root
from lipcert.training.layers import Layers, LiveModule, layers_of

_LOCAL = 32
"""Images of a batch that get a local bound. Of 784-100-100-10 and 128 images a step takes 9 times a plain one."""
_CLASSES = 4
"""Other classes that get one: those that the product of norms leaves nearest to the label."""
_QUICK = 4
"""Layers, the last one with them, up to which bounds without inverses are faster: products double with each."""
_FIRST = 20
"""Steps of the power method the first time; afterwards each call makes one more."""

_vectors: WeakKeyDictionary[LiveModule, list[torch.Tensor]] = WeakKeyDictionary()


def certified_margin_loss(
    module: torch.nn.Module,
    x: torch.Tensor,
    y: torch.Tensor,
    radius: float,
    *,
    most: int = _LOCAL,
) -> torch.Tensor:
    """Cross-entropy of logits that are raised by as much as they may gain on the label within the radius.

    The logit of class j becomes f_j + radius·L_j, where L_j bounds the Lipschitz constant of f_label - f_j over the
    ball. If the label still has the largest one, the radius is certified. L_j is the smaller of the product of norms
    and, for some images, the local bound: those that the product of norms does not certify, nearest to it first.

    Parameters
    ----------
    module
        A classifier as for :func:`local_bound`, in evaluation mode: dropout has no part in this loss.
    x, y
        Inputs (batch, ...) and labels (batch,).
    radius
        The ℓ2 radius to certify; begin with a small one, see :func:`growing`.
    most
        How many images of the batch get a local bound. 0 leaves the product of norms alone.

    Examples
    --------
    >>> import torch
    >>> from lipcert.training import certified_margin_loss
    >>> module = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> loss = certified_margin_loss(module, torch.zeros(4, 2), torch.tensor([0, 1, 2, 0]), radius=0.1)
    >>> loss.backward()
    """
    if radius < 0:
        raise InvalidInput(f"radius must be at least 0, got {radius}")
    layers = layers_of(module, x)
    outputs, slopes = layers.outputs(x), _by_norms(layers)[y]
    with torch.no_grad():
        slack = (outputs.gather(1, y[:, None]) - outputs - radius * slopes).scatter(1, y[:, None], torch.inf)
        near, others = torch.topk(slack, min(_CLASSES, slack.shape[1]), dim=1, largest=False)
        least = near[:, 0]
        chosen = torch.argsort(torch.where(least < 0, -least, torch.inf))[: min(most, int((least < 0).sum()))]
        others = others[chosen]
    if len(chosen):
        radii = torch.full((len(chosen),), radius, dtype=x.dtype, device=x.device)
        found = Bounds(layers, x[chosen], radii, relaxation=False, exact=len(layers.weights) > _QUICK)
        where = (chosen[:, None], others)
        slopes = slopes.index_put(where, torch.minimum(found.pairwise(y[chosen], others), slopes[where]))
    return cross_entropy(outputs + radius * slopes * (1 - one_hot(y, outputs.shape[1])), y)


def growing(radius: float, steps: int, share: float = 0.5) -> Callable[[int], float]:
    """A schedule: the radius grows evenly from zero during a share of the steps, and stays."""
    if not 0.0 < share <= 1.0 or steps < 1:
        raise InvalidInput(f"share must lie between 0 and 1 and steps be at least 1, got {share} and {steps}")
    return lambda step: radius * min(1.0, step / (share * steps))


def _by_norms(layers: Layers) -> torch.Tensor:
    """Bounds of f_i - f_j by the product of norms, (outputs, outputs)."""
    *hidden, end = layers.cut.segments
    last = end.weight(layers.held)
    scale = torch.ones(()).to(last)
    for segment, neurons, right in zip(hidden, layers.cut.neurons, _directions(layers), strict=True):
        everywhere = np.full(neurons.size, np.inf)
        steepest = max(float(np.abs(end).max()) for end in neurons.slope_range(-everywhere, everywhere))
        scale = scale * steepest * torch.linalg.vector_norm(segment.change(layers.held, right))
    gram = last @ last.T
    axes = torch.diagonal(gram)
    return scale * root((axes[:, None] + axes - 2.0 * gram).clamp_min(0.0))


def _directions(layers: Layers) -> list[torch.Tensor]:
    """Unit vectors near those that the hidden layers' weights stretch most; nearer by a step with every call."""
    known, found = _vectors.get(layers.cut), []
    for index, segment in enumerate(layers.cut.segments[:-1]):
        right = known[index] if known else 1.0 + torch.rand_like(segment.zero)
        for _ in range(1 if known else _FIRST):
            with torch.enable_grad():
                right = right.requires_grad_()
                square = 0.5 * segment.change(layers.held, right).square().sum()
            (right,) = torch.autograd.grad(square, right)  # WᵀW·right
            right = right / torch.linalg.vector_norm(right).clamp_min(1e-30)
        found.append(right)
    _vectors[layers.cut] = found
    return found
