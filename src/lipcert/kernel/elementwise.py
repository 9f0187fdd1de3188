"""Networks with products and softmax as networks of elementwise activations, for rules that know no others.

With s a power of two, xy = (½(sx + y/s))² - (½(sx - y/s))²; and p_l = 1/(1 + Σ_{j≠l} exp(v_j - v_l)). A layer with a
coupling becomes two, or three with softmax: its values, those that are coupled once more as they are; exponents and
halves; sums of exponentials. Rows and columns of weights are copied or negated, all others are powers of two or zero.
So nothing is rounded, and it is the same function for all weights within the tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import linalg

from lipcert.model.activations import Activation
from lipcert.model.arrays import Array, Interval, dense
from lipcert.model.network import Layer, Network, Neurons

_LARGEST = 60
"""Powers of two by which factors are scaled at most."""


def elementwise(network: Network, known: Sequence[tuple[Any, Any]] = ()) -> tuple[Network, list[Interval]]:
    """The same function without couplings, and what follows for its hidden pre-activations from those that are known.

    Factors are scaled so that both vary alike. A sum of exponentials, with 1 = exp(0) among them, is at least one.
    """
    layers, ends = list[Layer](), list[Interval]()
    source, sign = np.arange(network.inputs), np.ones(network.inputs)

    def add(weight: Array, bias: Array, neurons: Neurons | None, low: Any = -np.inf, high: Any = np.inf) -> None:
        layers.append(Layer(weight, bias, neurons))
        ends.append((np.broadcast_to(low, (1, len(bias))), np.broadcast_to(high, (1, len(bias)))))

    unknown = [(-np.inf, np.inf)] * (network.depth - len(known))
    for layer, interval in zip(network.layers, [*known, *unknown], strict=True):
        low, high = (np.broadcast_to(end, (1, layer.size)) for end in interval)
        weight, coupling, plain = dense(layer.weight)[:, source] * sign, layer.coupling, layer.plain
        source, sign = np.arange(layer.size), np.ones(layer.size)
        if coupling is None or plain is None:
            add(weight, layer.bias, plain, low, high)
            continue
        n, rows = plain.size, [v for _, v in coupling.softmax_rows()]
        terms = [(p.one.ravel(), p.two.ravel(), np.repeat(z, p.one.shape[1])) for p, z in coupling.sums()]
        one, two, place = np.hstack([np.zeros((3, 0), dtype=int), *terms])
        used = np.unique(np.concatenate([one, two, *(v.ravel() for v in rows)]))
        taken, value = np.append(np.arange(n), used), np.eye(layer.size)[:, used]
        same = Activation("identity"), np.arange(n, len(taken))
        add(weight[taken], layer.bias[taken], Neurons(len(taken), (*plain.groups, same)), low[:, taken], high[:, taken])
        off = [np.nonzero(~np.eye(v.shape[1], dtype=bool)) for v in rows]
        apart = [(value[v[:, j]] - value[v[:, k]]).reshape(-1, len(used)) for v, (k, j) in zip(rows, off, strict=True)]
        with np.errstate(all="ignore"):
            power = np.rint(0.5 * np.log2((high - low)[0, two] / (high - low)[0, one]))
        s = np.exp2(np.clip(np.where(np.isfinite(power), power, 0.0), -_LARGEST, _LARGEST))[:, None]
        x, y = 0.5 * s * value[one], 0.5 / s * value[two]
        weight = linalg.block_diag(np.eye(n), np.vstack([*apart, x + y, x - y]))
        names = ["identity"] * n + ["exp"] * sum(map(len, apart)) + ["square"] * (2 * len(one))
        add(weight, np.zeros(len(names)), Neurons.of(names, len(names)))
        if rows:
            sums = [np.kron(np.eye(v.size), np.ones((1, v.shape[1] - 1))) for v in rows]
            weight = linalg.block_diag(np.eye(n), *sums, np.eye(2 * len(one)))
            names = ["identity"] * n + ["reciprocal"] * (coupling.factors - n) + ["identity"] * (2 * len(one))
            bias = np.array(names) == "reciprocal"
            add(weight, 1.0 * bias, Neurons.of(names, len(names)), np.where(bias, 1.0, -np.inf))
        source = np.concatenate([np.arange(coupling.factors), place, place])
        sign = np.repeat([1.0, -1.0], [len(source) - len(place), len(place)])
    return Network(tuple(layers)), ends[:-1]
