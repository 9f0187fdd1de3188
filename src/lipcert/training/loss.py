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

_CLASSES = 4
"""Other classes that get a bound of their own, those with the largest logits; the rest get the largest of these."""
_QUICK = 4
"""Layers, the last one with them, up to which bounds without inverses are faster: products double with each."""
_FIRST = 20
"""Steps of the power method the first time; afterwards each call makes one more."""

_vectors: WeakKeyDictionary[LiveModule, list[torch.Tensor]] = WeakKeyDictionary()


def certified_margin_loss(
    module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, radius: float, *, ball: float | None = None
) -> torch.Tensor:
    """Cross-entropy of logits that are raised by as much as they may gain on the label within the radius.

    The logit of class j becomes f_j + radius·L_j, where L_j bounds the Lipschitz constant of f_label - f_j over a ball
    around the image. If the label still has the largest one, and the ball has this radius, the radius is certified.

    Parameters
    ----------
    module
        A classifier as for :func:`local_bound`, in evaluation mode: dropout has no part in this loss. With ``ball=0``
        any module that PyTorch differentiates twice, in its own mode.
    x, y
        Inputs (batch, ...) and labels (batch,).
    radius
        The ℓ2 radius to certify, or more: what was trained for 0.6 has more certified radii of 0.3. Begin with a small
        one, see :func:`growing`.
    ball
        Radius of the balls, ``radius`` if not given; a certificate is tighter than a bound over all of it. 0: the norm
        of one gradient at each image, of the label's logit minus the others' by their probabilities; little time.
        ``math.inf``: the product of the layers' norms.

    Examples
    --------
    >>> import torch
    >>> from lipcert.training import certified_margin_loss
    >>> module = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> loss = certified_margin_loss(module, torch.zeros(4, 2), torch.tensor([0, 1, 2, 0]), radius=0.1)
    >>> loss.backward()
    """
    ball = radius if ball is None else ball
    if not min(radius, ball) >= 0:
        raise InvalidInput(f"radius and ball must be at least 0, got {radius} and {ball}")
    if ball == 0:
        outputs, slopes = _gradients(module, x, y)
    elif ball == np.inf:
        layers = layers_of(module, x)
        outputs, slopes = layers.outputs(x), _by_norms(layers)[y]
    else:
        layers = layers_of(module, x)
        radii = torch.full((len(x),), ball, dtype=x.dtype, device=x.device)
        found = Bounds(layers, x, radii, relaxation=False, exact=len(layers.weights) > _QUICK)
        outputs = found.outputs
        others = torch.topk(outputs.scatter(1, y[:, None], -torch.inf), min(_CLASSES, outputs.shape[1] - 1)).indices
        near = found.pairwise(y, others)
        slopes = near.amax(dim=1, keepdim=True).expand_as(outputs).scatter(1, others, near)
    return cross_entropy(outputs + radius * slopes * (1 - one_hot(y, outputs.shape[1])), y)


def growing(radius: float, steps: int, share: float = 0.5) -> Callable[[int], float]:
    """A schedule: the radius grows evenly from zero during a share of the steps, and stays."""
    if not 0.0 < share <= 1.0 or steps < 1:
        raise InvalidInput(f"share must lie between 0 and 1 and steps be at least 1, got {share} and {steps}")
    return lambda step: radius * min(1.0, step / (share * steps))


def _gradients(module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs, and ‖∇(f_label - Σ p_j f_j)‖ at each point, (batch, 1), p the probabilities of the other classes."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        outputs = module(x)
        others = outputs.detach().scatter(1, y[:, None], -torch.inf).softmax(dim=1)
        margin = (outputs * (one_hot(y, outputs.shape[1]) - others)).sum()
        (slopes,) = torch.autograd.grad(margin, x, create_graph=True)
    return outputs, root(slopes.square().flatten(1).sum(dim=1, keepdim=True))


def _by_norms(layers: Layers) -> torch.Tensor:
    """Bounds of f_i - f_j by the product of norms, (outputs, outputs)."""
    *hidden, end = layers.cut.segments
    last = end.weight(layers.held)
    scale = torch.ones(()).to(last)
    for segment, neurons, right in zip(hidden, layers.cut.neurons, _directions(layers), strict=True):
        steepest = max(float(np.abs(end).max()) for end in neurons.everywhere)
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
