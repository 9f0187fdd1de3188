"""A small classifier of scikit-learn's digits, trained on the spot."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.model.arrays import Array


@cache
def classifier(activation: str = "relu", hidden: tuple[int, ...] = (16, 16)) -> tuple[lc.Network, Array, Array]:
    """A network, and the points and labels that it was not trained on; pixels are between 0 and 1."""
    datasets: Any = pytest.importorskip("sklearn.datasets")
    neural: Any = pytest.importorskip("sklearn.neural_network")
    data = datasets.load_digits()
    x, y = data.data / 16.0, data.target
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:797], order[797:]
    model = neural.MLPClassifier(hidden, activation=activation, alpha=1e-2, max_iter=60, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has not converged, and need not
        model.fit(x[train], y[train])
    network = lc.Network.from_weights([w.T for w in model.coefs_], model.intercepts_, activation)
    return network, x[test], y[test]
