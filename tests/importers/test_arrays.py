"""Networks from .npz and .mat files: the same function, and errors that say what to do."""

from __future__ import annotations

import io
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.io import savemat

import lipcert as lc
from lipcert.errors import InvalidInput
from lipcert.importers.normalise import normalised
from lipcert.model.arrays import dense
from networks import random_network

W = [np.array([[1.0, -2.0, 0.5], [0.25, 1.0, -1.0]]), np.array([[2.0, 1.0], [0.0, -1.0], [1.0, 1.0], [3.0, 0.5]])]
B = [np.array([0.5, -1.5]), np.array([1.0, 0.0, -2.0, 0.25])]
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
X = np.array([[0.3, -0.7, 1.1], [2.0, 1.0, -1.0]])


def by_hand(activation: Any) -> np.ndarray[Any, Any]:
    return activation(X @ W[0].T + B[0]) @ W[1].T + B[1]


def cells(arrays: list[Any]) -> np.ndarray[Any, Any]:
    row = np.empty((1, len(arrays)), dtype=object)
    row[0, :] = arrays
    return row


def npz(path: Path, **arrays: Any) -> Path:
    np.savez(path / "model.npz", **arrays)
    return path / "model.npz"


def mat(path: Path, **arrays: Any) -> Path:
    savemat(path / "model.mat", arrays)
    return path / "model.mat"


def test_npz_is_the_same_function(tmp_path: Path) -> None:
    file = npz(tmp_path, W1=W[0], b1=B[0], W2=W[1], b2=B[1], activation="tanh")
    np.testing.assert_allclose(lc.load(file)(X), by_hand(np.tanh), rtol=1e-15)
    np.testing.assert_allclose(lc.load(str(file))(X), by_hand(np.tanh), rtol=1e-15)


def test_mat_is_the_same_function(tmp_path: Path) -> None:
    file = mat(tmp_path, weights=cells(W), biases=cells([b[:, None] for b in B]), activation="tanh")
    np.testing.assert_allclose(lc.load(file)(X), by_hand(np.tanh), rtol=1e-15)


def test_the_file_or_the_caller_says_the_activation(tmp_path: Path) -> None:
    file = npz(tmp_path, W1=W[0], b1=B[0], W2=W[1], b2=B[1])
    np.testing.assert_allclose(lc.load(file, "relu")(X), by_hand(lambda v: np.maximum(v, 0)), rtol=1e-15)
    np.testing.assert_allclose(lc.load(file, activation="tanh")(X), by_hand(np.tanh), rtol=1e-15)


def test_biases_are_optional(tmp_path: Path) -> None:
    partly = lc.load(npz(tmp_path, W1=W[0], W2=W[1], b2=B[1]), "relu")
    np.testing.assert_allclose(partly(X), np.maximum(X @ W[0].T, 0) @ W[1].T + B[1], rtol=1e-15)
    without = lc.load(mat(tmp_path, weights=cells(W)), "relu")
    np.testing.assert_allclose(without(X), np.maximum(X @ W[0].T, 0) @ W[1].T, rtol=1e-15)
    hollow = lc.load(mat(tmp_path, weights=cells(W), biases=cells([np.zeros((0, 0)), B[1]])), "relu")
    assert hollow.digest == partly.digest


def test_ten_layers_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    weights = {f"W{i}": [[float(i)]] for i in range(11, 0, -1)}
    net = lc.load(npz(tmp_path, **weights), "identity")
    assert [float(layer.weight[0, 0]) for layer in net.layers] == [float(i) for i in range(1, 12)]


def test_a_single_layer_needs_no_activation(tmp_path: Path) -> None:
    assert lc.load(npz(tmp_path, W1=W[0])).sizes == (3, 2)


def test_one_activation_a_layer(tmp_path: Path) -> None:
    square = np.eye(2)
    file = npz(tmp_path, W1=square, W2=square, W3=square, activation=["tanh", "leaky_relu(0.5)"])
    np.testing.assert_allclose(lc.load(file)([-1.0, 2.0]), [0.5 * np.tanh(-1.0), np.tanh(2.0)], rtol=1e-15)
    same = mat(tmp_path, weights=cells([square] * 3), activation=cells(["tanh", "leaky_relu(0.5)"]))
    assert lc.load(same).digest == lc.load(file).digest


BAD_NPZ: dict[str, tuple[dict[str, Any], str]] = {
    "no arrays": ({}, "has no W1; it holds nothing"),
    "no W1": ({"b1": B[0]}, "has no W1; it holds b1; expected W1, b1, W2"),
    "a gap": ({"W1": W[0], "W3": W[1]}, "has W3 but not W2; number the layers from 1 without gaps"),
    "a spare bias": ({"W1": W[0], "b2": B[1]}, "has b2 but its last weight is W1"),
    "a strange name": ({"W1": W[0], "bias1": B[0]}, "arrays of unknown meaning: bias1; expected W1, b1"),
    "layers counted from 0": ({"W0": W[0], "W1": W[1]}, "arrays of unknown meaning: W0"),
    "transposed layers": ({"W1": W[0].T, "W2": W[1].T}, "stored (inputs, outputs), as some frameworks do"),
    "a transposed single layer": ({"W1": W[0].T, "b1": B[0]}, "store the transpose of each"),
    "shapes that fit neither way": ({"W1": W[0], "W2": W[0]}, "weights of layers 1 and 2 do not fit"),
    "a long bias": ({"W1": W[0], "b1": np.ones(7)}, "bias of layer 1 must have 2 numbers"),
    "a vector for a weight": ({"W1": B[0]}, "weight of layer 1 must be a matrix"),
    "NaN": ({"W1": W[0] * np.nan}, "weight of layer 1 must be finite, got 6 NaN"),
    "complex numbers": ({"W1": W[0] + 1j}, "W1 must hold real numbers, got complex128"),
    "text": ({"W1": np.array([["1", "2"]])}, "W1 must hold real numbers, got <U1"),
    "an unknown activation": ({"W1": W[0], "W2": W[1], "activation": "rleu"}, "unknown activation 'rleu'; known are"),
    "a number for an activation": ({"W1": W[0], "activation": 3.0}, "activation must be a string or strings"),
    "too many activations": (
        {"W1": W[0], "W2": W[1], "activation": ["relu"] * 4},
        "activation must be one name, or 1 entries for 2 layers; got 4",
    ),
    "pickled objects": ({"W1": np.array([W[0], None], dtype=object)}, "pickled Python objects, which could run code"),
}


BAD_MAT: dict[str, tuple[dict[str, Any], str]] = {
    "no weights": ({"W": W[0]}, "'weights' must be a cell array with one matrix a layer, got ndarray of shape"),
    "a matrix, not cells": ({"weights": W[0]}, "'weights' must be a cell array with one matrix a layer, got ndarray"),
    "no cells": ({"weights": np.empty((0, 0), dtype=object)}, "'weights' must be a cell array"),
    "a table of cells": (
        {"weights": np.array([[1.0, 2.0], [3.0, 4.0]], dtype=object)},
        "one matrix a layer, got ndarray of shape (2, 2)",
    ),
    "a bias too few": ({"weights": cells(W), "biases": cells(B[:1])}, "2 weights and 1 biases"),
    "transposed": ({"weights": cells([w.T for w in W])}, "stored (inputs, outputs)"),
    "text in a cell": ({"weights": cells(["abc", W[1]])}, "weights{1} must hold real numbers, got <U3"),
}


@pytest.mark.parametrize("case", [*BAD_NPZ, *BAD_MAT])
def test_files_that_hold_no_network(tmp_path: Path, case: str) -> None:
    arrays, message = (BAD_NPZ | BAD_MAT)[case]
    file = (mat if case in BAD_MAT else npz)(tmp_path, **arrays)
    with pytest.raises(lc.UnreadableModel) as caught:
        lc.load(file) if "activation" in arrays else lc.load(file, "relu")
    assert str(file) in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize("suffix", [".npz", ".mat"])
def test_damaged_files(tmp_path: Path, suffix: str) -> None:
    whole = npz(tmp_path, W1=W[0]) if suffix == ".npz" else mat(tmp_path, weights=cells([W[0]]))
    content = whole.read_bytes()
    file = tmp_path / f"damaged{suffix}"
    for sample in (b"", b"neither", content[: len(content) // 2], content[:-30], bytes(len(content))):
        file.write_bytes(sample)
        with pytest.raises(lc.UnreadableModel, match=r"damaged\.\w+ is not .* damaged or cut short"):
            lc.load(file, "relu")


def test_a_flipped_bit_never_passes_unnoticed_in_npz(tmp_path: Path) -> None:
    whole = npz(tmp_path, W1=W[0])
    content = bytearray(whole.read_bytes())
    content[content.index(W[0].tobytes()) + 6] ^= 1
    whole.write_bytes(bytes(content))
    with pytest.raises(lc.UnreadableModel, match="damaged"):
        lc.load(whole)


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    file = tmp_path / "model.npz"
    file.write_bytes(pickle.dumps({"W1": W[0]}))
    with pytest.raises(lc.UnreadableModel, match=r"model\.npz is not a NumPy file"):
        lc.load(file)


def test_matlab_73_says_how_to_save(tmp_path: Path) -> None:
    file = tmp_path / "model.mat"
    header = io.BytesIO()
    savemat(header, {"weights": 1.0})
    # bytes 124 and 125 hold the version: 0x0200 is the HDF5 format
    file.write_bytes(header.getvalue()[:124] + b"\x00\x02IM" + header.getvalue()[128:])
    with pytest.raises(lc.UnreadableModel, match=r"MATLAB 7\.3 file; save it again with save"):
        lc.load(file)


def test_paths_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(lc.UnreadableModel, match=r"missing\.npz does not exist; check the path"):
        lc.load(tmp_path / "missing.npz")
    with pytest.raises(lc.UnreadableModel, match=r"model\.h5 has the suffix '\.h5'; networks are read from \.npz"):
        lc.load("model.h5")
    with pytest.raises(lc.UnreadableModel, match="model has no suffix; networks are read from"):
        lc.load("model")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(lc.UnreadableModel, match="is a folder"):
        lc.load(tmp_path / "folder.npz")


def test_arguments_of_the_wrong_kind() -> None:
    with pytest.raises(lc.InvalidInput, match=r"source must be .* got int; weights at hand go to Network.from_weights"):
        lc.load(7)
    with pytest.raises(lc.InvalidInput, match="Network already"):
        lc.load(lc.Network.from_weights(W, B))


def test_the_activation_must_be_said_and_only_once(tmp_path: Path) -> None:
    silent = npz(tmp_path, W1=W[0], W2=W[1])
    with pytest.raises(
        lc.InvalidInput, match=r"model\.npz does not say .* its 1 hidden layer use; .*--activation relu"
    ):
        lc.load(silent)
    with pytest.raises(lc.InvalidInput, match="unknown activation 'rleu'"):
        lc.load(silent, "rleu")
    clear = npz(tmp_path, W1=W[0], W2=W[1], activation="ReLU")
    assert lc.load(clear, "relu").digest == lc.load(clear).digest
    with pytest.raises(lc.InvalidInput, match=r"says its activation is ReLU, the argument says 'tanh'"):
        lc.load(clear, "tanh")


# a normalisation in front of a model: the same function, within the weight tolerance


ONCE = Fraction(1, 2**53) * (1 + Fraction(1, 2**19))


@pytest.mark.parametrize("sparsely", [False, True])
def test_each_number_is_rounded_once(sparsely: bool) -> None:
    network = random_network(1, (6, 5, 2), "tanh")
    if sparsely:
        weights = [sparse.csr_array(layer.weight) for layer in network.layers]
        network = lc.Network.from_weights(weights, [layer.bias for layer in network.layers], "tanh")
    mean, std = [0.485, 0.456], [0.229, 0.225]  # two channels of three
    found = normalised(network, mean, std)
    assert found.depth == network.depth
    m, s = (np.repeat(part, 3) for part in (mean, std))
    first, layer = dense(network.layers[0].weight), found.layers[0]
    for row, (old, new) in enumerate(zip(first, dense(layer.weight), strict=True)):
        exact = [Fraction(w) / Fraction(d) for w, d in zip(old.tolist(), s.tolist(), strict=True)]
        assert all(abs(Fraction(w) - e) <= ONCE * abs(Fraction(w)) for w, e in zip(new.tolist(), exact, strict=True))
        shift = sum(e * Fraction(c) for e, c in zip(exact, m.tolist(), strict=True))
        bias = Fraction(float(network.layers[0].bias[row])) - shift
        assert abs(Fraction(float(layer.bias[row])) - bias) <= ONCE * abs(bias) * 2
    x = np.random.default_rng(0).random((10, 6))
    assert found(x) == pytest.approx(network((x - m) / s), rel=1e-12)


def test_numbers_that_cannot_be_rounded_once_are_a_layer_of_their_own() -> None:
    """The bias cancels to far below what three floats hold of its terms."""
    network = lc.Network.from_weights([[[1.0, 1.0]], [[1.0]]], [[-(1.0 / 3.0) * 2.0], None], "tanh")
    found = normalised(network, [1.0, 1.0], [3.0, 3.0])
    x = np.array([[1.5, 2.0], [1.0, 1.0]])
    assert found(x) == pytest.approx(network((x - 1.0) / 3.0), rel=1e-12)


def test_load_normalises(tmp_path: Path) -> None:
    network = random_network(1, (4, 5, 2), "relu")
    arrays = {f"W{k}": layer.weight for k, layer in enumerate(network.layers, 1)}
    np.savez(tmp_path / "model.npz", activation="relu", **arrays)  # type: ignore[arg-type]
    plain, found = lc.load(tmp_path / "model.npz"), lc.load(tmp_path / "model.npz", mean=0.5, std=[0.1, 0.2])
    x = np.array([0.1, 0.9, 0.4, 0.2])
    assert found(x) == pytest.approx(plain((x - 0.5) / [0.1, 0.1, 0.2, 0.2]), rel=1e-12)
    assert lc.load(tmp_path / "model.npz", mean=None, std=None).digest == plain.digest


@pytest.mark.parametrize(("mean", "std"), [(0.0, 0.0), ([1.0, 2.0, 3.0], 1.0), (0.0, -1.0), (np.nan, 1.0)])
def test_wrong_numbers_are_refused(mean: object, std: object) -> None:
    with pytest.raises(InvalidInput, match=r"mean|std"):
        normalised(random_network(1, (4, 5, 2), "relu"), mean, std)


@pytest.mark.parametrize("apart", [False, True])
def test_images_stay_images_and_have_as_many_means_as_channels(apart: bool) -> None:
    network = lc.conv_stack([np.ones((2, 3, 3, 3))], (4, 4))
    assert normalised(network, [0.1, 0.2, 0.3], 2.0, apart=apart).input_shape == (3, 4, 4)
    with pytest.raises(lc.InvalidInput, match=r"mean must be .* got 2 for 48 inputs of shape \(3, 4, 4\)"):
        normalised(network, [0.1, 0.2], apart=apart)


# files of the control community


@pytest.mark.parametrize("path", sorted((SHARED / "control").glob("*.mat")), ids=lambda path: path.name[:30])
def test_controllers_are_the_same_from_both_kinds_of_files(path: Path) -> None:
    pytest.importorskip("onnx")
    name = path.name.replace("nnv_networks", "onnx_networks").replace("_nnv.mat", ".mat")
    one, two = lc.load(path), lc.load(path.with_name(name).with_suffix(".onnx"))
    x = np.random.default_rng(0).standard_normal((50, one.inputs))
    np.testing.assert_allclose(one(x), two(x), atol=1e-4 * np.abs(two(x)).max())  # some are stored with few digits


def test_names_of_matlab(tmp_path: Path) -> None:
    W, b = np.empty((2, 4), dtype=object)
    W[:], b[:] = [np.eye(2)] * 4, [np.ones((2, 1))] * 4
    savemat(tmp_path / "model.mat", {"W": W, "b": b, "act": ["poslin", "logsig", "tansig", "purelin"]})
    network = lc.load(tmp_path / "model.mat")
    assert [layer.neurons and layer.neurons.describe() for layer in network.layers] == [
        *("relu", "sigmoid", "tanh", None)
    ]
    savemat(tmp_path / "model.mat", {"W": W, "weights": W, "b": b})
    with pytest.raises(lc.UnreadableModel, match="each once"):
        lc.load(tmp_path / "model.mat")
