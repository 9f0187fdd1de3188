"""Networks as classifiers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import sparse

from lipcert.arguments.values import check_network
from lipcert.errors import InvalidInput
from lipcert.model.network import Layer, Network


def classifier(network: Network) -> Network:
    """The same network with at least two outputs: one logit f is (0, f), so that class 1 is where f is positive."""
    if not isinstance(network, Network):
        check_network(network)
    if network.outputs > 1:
        return network
    last = network.layers[-1]
    _check_sign(network, last)
    both = sparse.csr_array(sparse.vstack([sparse.csr_array(last.weight.shape), sparse.csr_array(last.weight)]))
    weight = both if sparse.issparse(last.weight) else both.toarray()
    return replace(network, layers=(*network.layers[:-1], Layer(weight, np.array([0.0, *last.bias]), None)))


def _check_sign(network: Network, last: Layer) -> None:
    """Refuse one output that is one rising neuron and never changes its sign, as a probability does not."""
    neurons = network.layers[-2].plain if network.depth > 1 else None
    if neurons is None or network.layers[-2].width > 1 or neurons.size != 1:
        return
    whole = np.array([[-np.inf], [np.inf]])
    ends = neurons.value(whole)
    if neurons.slope_range(*whole)[0] < 0.0 or not np.isfinite(ends).all():
        return
    low, high = np.sort(last.affine(ends), axis=None)
    if low >= 0.0 or high <= 0.0:
        raise InvalidInput(
            f"network has one output, of {neurons.describe()}, between {low:g} and {high:g}: as a classifier it must be"
            " negative for class 0 and positive for class 1. Take the logit, without the last activation"
        )
