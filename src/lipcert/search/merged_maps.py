"""Merged affine maps: neurons whose slope is known need not be carried one by one.

A neuron with a single slope on the region is an affine function of the values u before its layer. A layer of n
neurons, of which some have a range of slopes, is therefore determined by those alone together with u, carried by
identity neurons: often far fewer than n, as in a wide convolution that few inputs can switch. The step of the
algorithm is exact for such neurons, so the bound is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from lipcert.model.arrays import Array, Weight, dense
from lipcert.model.network import Layer

WIDE = 400
"""Neurons of a layer from which those whose slope is zero are left out."""
_NEARLY_ALL = 0.9
"""Share of the neurons from which none is left out."""
_WORTH = 0.7
"""Share of the neurons that must not be exceeded for the change to pay."""


@dataclass(frozen=True, eq=False)
class Kept:
    """What is kept of a layer: some of its neurons, then carried values.

    ``weight`` gives their values before the activation, ``alpha`` and ``beta`` their slopes (1 for carried values),
    ``ahead`` the next layer's weight in terms of them, ``neurons`` the positions of the kept neurons in their layer
    of ``size`` neurons; the carried values come after those.
    """

    weight: Weight
    alpha: Array
    beta: Array
    ahead: Weight
    neurons: Array
    size: int

    @property
    def carries(self) -> bool:
        """Whether values from before the layer are carried along."""
        return len(self.alpha) > self.neurons.size

    def narrow(self, values: Array) -> Array:
        """Values of the layer's neurons, as values of what is kept; zero for carried ones."""
        kept = np.zeros(self.alpha.shape)
        kept[: self.neurons.size] = values[self.neurons]
        return kept

    def spread(self, values: Array) -> Array:
        """Values of what is kept, as values of the layer's neurons; zero for the others."""
        full = np.zeros(self.size)
        full[self.neurons] = values[: self.neurons.size]
        return full

    @property
    def fewer(self) -> bool:
        """Whether some of the layer's neurons are left out."""
        return self.neurons.size < self.size


def condense(weight: Weight, alpha: Array, beta: Array, ahead: Weight) -> Kept:
    """What to keep of a layer with the given weight over the values before it, slopes, and next weight."""
    n, before = weight.shape
    active = np.flatnonzero(beta > alpha)
    if not _may_pay(weight) or active.size + before > _WORTH * n:
        moving = np.flatnonzero((beta > alpha) | (alpha != 0.0))
        if n < WIDE or moving.size > _NEARLY_ALL * n or not moving.size:
            return Kept(weight, alpha, beta, ahead, np.arange(n), n)
        return Kept(weight[moving], alpha[moving], beta[moving], ahead[:, moving], moving, n)
    settled = np.flatnonzero(beta <= alpha)
    scaled = sparse.diags_array(alpha[settled]) @ weight[settled]
    return Kept(
        weight=_beside([weight[active], sparse.eye_array(before, format="csr")], axis=0),
        alpha=np.concatenate([alpha[active], np.ones(before)]),
        beta=np.concatenate([beta[active], np.ones(before)]),
        ahead=_beside([ahead[:, active], ahead[:, settled] @ scaled], axis=1),
        neurons=active,
        size=n,
    )


def condensed(layers: tuple[Layer, ...], slopes: list[tuple[Array, Array]]) -> list[Kept]:
    """What to keep of every hidden layer, for known slopes; the output's weight is the last one's ``ahead``."""
    kept: list[Kept] = []
    weight = layers[0].weight
    for (alpha, beta), after in zip(slopes, layers[1:], strict=True):
        kept.append(condense(weight, alpha, beta, after.weight))
        weight = kept[-1].ahead
    return kept


def _may_pay(weight: Weight) -> bool:
    return bool(weight.shape[1] <= _WORTH * weight.shape[0])


def _beside(parts: list[Weight], axis: int) -> Weight:
    """Matrices below (axis 0) or beside (axis 1) each other, dense where that is no larger."""
    if all(sparse.issparse(part) for part in parts):
        joined = sparse.csr_array((sparse.vstack if axis == 0 else sparse.hstack)(parts, format="csr"))
        return joined if 4 * joined.nnz < joined.shape[0] * joined.shape[1] else np.asarray(joined.toarray())
    return np.concatenate([dense(part) for part in parts], axis=axis)
