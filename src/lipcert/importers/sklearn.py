"""scikit-learn's multilayer perceptrons, as objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from lipcert.errors import InvalidInput, UnreadableModel
from lipcert.importers.builder import SOFTMAX, Builder
from lipcert.importers.faithful import DOUBLE, SINGLE, Imported, Original, confirm
from lipcert.importers.lowering import lower
from lipcert.model.arrays import Array

_HIDDEN: Final = {"identity": "identity", "logistic": "sigmoid", "tanh": "tanh", "relu": "relu"}


def read_perceptron(
    model: Any,
    *,
    input_shape: Sequence[int] | None,
    drop_softmax: bool,
    points: Any,
    fixed: Mapping[str, Any] | None = None,
    output: str | int | None = None,
) -> Imported:
    """The network of a fitted MLPClassifier or MLPRegressor; the options are those of ``lipcert.load``.

    A regressor is its predict. A classifier of two classes is the probability of the second, or with drop_softmax its
    logit; one of more classes needs drop_softmax, and is its logits.
    """
    kind = type(model).__name__
    if kind not in ("MLPClassifier", "MLPRegressor") or not type(model).__module__.startswith("sklearn."):
        raise UnreadableModel(f"of scikit-learn MLPClassifier and MLPRegressor are read, got {kind}")
    if not hasattr(model, "coefs_"):
        raise UnreadableModel(f"the {kind} is not fitted; call fit first")
    if fixed or output is not None:
        raise InvalidInput(f"fixed and output have no meaning for a {kind}, which has one input and one output")
    last = model.out_activation_
    if drop_softmax and last not in ("softmax", "logistic"):
        raise InvalidInput(f"drop_softmax=True, but the output of the {kind} is {last}, not a softmax")
    if last == "softmax" and not drop_softmax:
        raise UnreadableModel(f"the output of the {kind} is a softmax; {SOFTMAX}")
    weights, biases = [np.asarray(w) for w in model.coefs_], [np.asarray(b) for b in model.intercepts_]
    size = int(weights[0].shape[0])
    if input_shape is not None and tuple(input_shape) != (size,):
        raise InvalidInput(f"input_shape {tuple(input_shape)} does not fit the {kind}, which takes {size} numbers")
    b = Builder((1, size))
    x = b.input
    for number, (weight, bias) in enumerate(zip(weights, biases, strict=True), 1):
        with b.reading(f"layer {number}", kind, (1, int(weight.shape[1]))):
            x = b.add(b.matmul(x, weight.astype(float)), bias.astype(float))
            name = (
                _HIDDEN[model.activation] if number < len(weights) else "sigmoid" if last == "logistic" else "identity"
            )
            if name != "identity" and not (drop_softmax and number == len(weights)):
                x = b.activate(x, name)
    lowered = lower(b.finish(x))
    confirm(lowered.network, [_original(model, weights, biases, drop_softmax)], points)
    return Imported(lowered, (size,), sum(part.size for part in (*weights, *biases)))


def _original(model: Any, weights: Sequence[Array], biases: Sequence[Array], logits: bool) -> Original:
    """What scikit-learn computes; logits are what its last layer does to what its own pass through the others gives."""
    single = weights[0].dtype == np.float32

    def run(x: Array) -> Array:
        given = x.reshape(1, -1).astype(weights[0].dtype)
        if not logits:
            found = model.predict_proba(given)[:, 1:] if hasattr(model, "predict_proba") else model.predict(given)
            return np.asarray(found, dtype=float).ravel()
        activations = [given, *(np.empty((1, w.shape[1]), dtype=w.dtype) for w in weights)]
        hidden = model._forward_pass(activations)[-2]
        return np.asarray(hidden @ weights[-1] + biases[-1], dtype=float).ravel()

    return Original(run, SINGLE if single else DOUBLE, "scikit-learn")
