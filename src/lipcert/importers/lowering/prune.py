"""Same function: neurons that nothing after them looks at are left out."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from lipcert.model.network import Layer, Network


def prune(network: Network) -> Network:
    """Drop hidden neurons whose column in the next weight is zero, from the output backwards."""
    layers = list(network.layers)
    for i in range(len(layers) - 2, -1, -1):
        here, after = layers[i], layers[i + 1]
        used = np.flatnonzero(abs(after.weight).sum(axis=0))
        if used.size == here.size:
            continue
        used = used if used.size else np.zeros(1, dtype=int)
        assert here.neurons is not None
        layers[i] = Layer(here.weight[used], here.bias[used], here.neurons.take(used))
        columns = after.weight[:, used]
        weight = columns if sparse.issparse(columns) else np.ascontiguousarray(columns)
        layers[i + 1] = Layer(weight, after.bias, after.neurons)
    return Network(tuple(layers))
