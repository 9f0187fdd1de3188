"""Networks from .npz, .mat and .nnet files: the same function, and errors that say what to do."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.io import loadmat, savemat

import lipcert as lc
from lipcert.errors import InvalidInput, UnreadableModel
from lipcert.importers import mat as reader
from lipcert.importers import normalised
from lipcert.model.arrays import dense
from lipcert.questions.campaign.data import read_points
from lipcert.show import wording
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


def test_files_are_the_same_function(tmp_path: Path) -> None:
    columns = [b[:, None] for b in B]
    for file in (
        npz(tmp_path, W1=W[0], b1=B[0], W2=W[1], b2=B[1], activation="tanh"),
        mat(tmp_path, weights=cells(W), biases=cells(columns), activation="tanh"),
    ):
        np.testing.assert_allclose(lc.load(str(file))(X), by_hand(np.tanh), rtol=1e-15)
    file = npz(tmp_path, W1=W[0], b1=B[0], W2=W[1], b2=B[1])
    np.testing.assert_allclose(lc.load(file, activation="relu")(X), by_hand(lambda v: np.maximum(v, 0)), rtol=1e-15)
    assert lc.load(npz(tmp_path, W1=W[0])).sizes == (3, 2)  # a single layer needs no activation


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


def test_one_activation_a_layer(tmp_path: Path) -> None:
    square = np.eye(2)
    file = npz(tmp_path, W1=square, W2=square, W3=square, activation=["tanh", "leaky_relu(0.5)"])
    np.testing.assert_allclose(lc.load(file)([-1.0, 2.0]), [0.5 * np.tanh(-1.0), np.tanh(2.0)], rtol=1e-15)
    same = mat(tmp_path, weights=cells([square] * 3), activation=cells(["tanh", "leaky_relu(0.5)"]))
    assert lc.load(same).digest == lc.load(file).digest


BAD_NPZ: dict[str, tuple[dict[str, Any], str]] = {
    "no arrays": ({}, "has no W1; it holds nothing"),
    "no W1": ({"b1": B[0]}, "has no W1; it holds b1; expected W1, b1, W2"),
    "far layers": ({"W1": W[0], "W999999999": W[0]}, "has no W2; it holds W1, W999999999"),
    "a gap": ({"W1": W[0], "W3": W[1]}, "has no W2; it holds W1, W3"),
    "a spare bias": ({"W1": W[0], "b2": B[1]}, "has b2 but its last weight is W1"),
    "a strange name": ({"W1": W[0], "bias1": B[0]}, "arrays of unknown meaning: bias1; expected W1, b1"),
    "layers counted from 0": ({"W0": W[0], "W1": W[1]}, "arrays of unknown meaning: W0"),
    "transposed layers": ({"W1": W[0].T, "W2": W[1].T}, "each weight is (outputs, inputs): transpose it"),
    "a transposed single layer": ({"W1": W[0].T, "b1": B[0]}, "each weight is (outputs, inputs)"),
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
    "transposed": ({"weights": cells([w.T for w in W])}, "each weight is (outputs, inputs)"),
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


ALONE = "control/CartPole*.onnx", "control/QUAD__quad*.onnx", "models/test_*.onnx"


@pytest.mark.parametrize("path", [path for name in ALONE for path in SHARED.glob(name)], ids=lambda path: path.name)
def test_public_models_without_a_pair_are_read(path: Path) -> None:
    pytest.importorskip("onnx")
    assert len(set(lc.load(path)(np.random.default_rng(0).standard_normal((5, lc.load(path).inputs))).ravel())) > 1


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


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_finding_3_sparse_and_complex_matrices_of_a_mat_file_are_refused(tmp_path: Path) -> None:
    """Their indices could point anywhere; MATLAB's full() is at hand."""
    for weight in (sparse.csc_matrix(W[0]), W[0] + 1j):
        savemat(tmp_path / "model.mat", {"weights": cells([weight])})
        with pytest.raises(lc.UnreadableModel, match=r"a sparse W is saved as full\(W\)"):
            lc.load(tmp_path / "model.mat")


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_array, sparse.csr_matrix])
def test_finding_3_sparse_weights_of_a_caller_are_checked_too(kind: Any) -> None:
    weight = kind(W[0])
    weight.indices[0] = 2**30
    with pytest.raises(lc.InvalidInput, match="weight of layer 1 is not a sound sparse matrix"):
        lc.Network.from_weights([weight])


def nested(depth: int) -> bytes:
    """Cells in cells, as deep as asked, compressed."""

    def element(kind: int, data: bytes) -> bytes:
        return struct.pack("<2I", kind, len(data)) + data + bytes(-len(data) % 8)

    def head(name: bytes = b"") -> bytes:
        return element(6, struct.pack("<2I", 1, 0)) + element(5, struct.pack("<2i", 1, 1)) + element(1, name)

    sizes = [0]
    for _ in range(depth):
        sizes.append(sizes[-1] + len(head()) + 8)
    inner = b"".join(struct.pack("<2I", 14, size) + (head() if size else b"") for size in sizes[::-1])
    whole = zlib.compress(element(14, head(b"weights") + inner))
    return b"MATLAB".ljust(124) + b"\x00\x01IM" + struct.pack("<2I", 15, len(whole)) + whole


def test_finding_3_cells_in_cells_do_not_exhaust_the_stack(tmp_path: Path) -> None:
    for depth in (5, 1000, 100_000):
        file = written(tmp_path / "model.mat", nested(depth))
        with pytest.raises(lc.UnreadableModel, match="cells in cells"):
            lc.load(file)


def test_mat_files_are_read_as_scipy_reads_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    content: dict[str, Any] = {
        f"n{kind}": (100 * rng.random((3, 4))).astype(kind) for kind in ("f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4")
    }
    content |= {"i8": np.array([[2**62, -3]]), "u8": np.array([[2**63]], dtype="u8"), "cube": rng.random((2, 3, 4))}
    content |= {"truth": rng.random((2, 2)) > 0.5, "none": np.zeros((0, 0))}
    content |= {"text": "leaky_relu(0.5)", "texts": np.array(["ab", "cd"]), "greek": "αβγ", "number": 3.5}
    content |= {"cell": cells([W[0], "relu", np.zeros((0, 0))])}
    for squeeze in (False, True):
        savemat(tmp_path / "m.mat", content, do_compression=squeeze)
        found = reader.variables((tmp_path / "m.mat").read_bytes(), list(content))
        wanted = loadmat(tmp_path / "m.mat")
        for name in content:
            one, two = found[name], wanted[name]
            if name == "cell":
                assert all(np.array_equal(a, b) for a, b in zip(one.ravel(), two.ravel(), strict=True))
            else:
                assert np.array_equal(one, two), name


def test_files_that_unpack_to_too_much(tmp_path: Path) -> None:
    body = zlib.compress(struct.pack("<2I", 14, 2**31) + bytes(2**31 // 64))
    bomb = b"MATLAB".ljust(124) + b"\x00\x01IM" + struct.pack("<2I", 15, len(body)) + body
    with pytest.raises(lc.UnreadableModel, match="middle of an element"):
        lc.load(written(tmp_path / "model.mat", bomb))
    with zipfile.ZipFile(tmp_path / "model.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("W1.npy", bytes(2**16))
    data = bytearray((tmp_path / "model.npz").read_bytes())
    for place in (22, data.rindex(b"PK\x01\x02") + 24):  # the size, in front of the member and in the directory
        data[place : place + 4] = struct.pack("<I", 2**31)
    with pytest.raises(lc.UnreadableModel, match=r"would unpack to 2147483648 bytes"):
        lc.load(written(tmp_path / "model.npz", bytes(data)))


def test_archives_with_a_member_twice(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.save(stream, W[0])
    with zipfile.ZipFile(tmp_path / "model.npz", "w") as archive:
        archive.writestr("W1.npy", stream.getvalue())
        archive.writestr("W1", stream.getvalue())
    with pytest.raises(lc.UnreadableModel, match="has 'W1' twice"):
        lc.load(tmp_path / "model.npz")


ODD_NAMES = ["W１", "W99999999999999999999", "W" + "9" * 5000, "W1\n", "W\ud800"]


@pytest.mark.parametrize("name", ODD_NAMES, ids=range(len(ODD_NAMES)))
def test_odd_names_of_arrays(name: str, tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.save(stream, W[0])
    with zipfile.ZipFile(tmp_path / "model.npz", "w") as archive:
        archive.writestr(f"{name}.npy".encode("utf-8", "replace").decode(), stream.getvalue())
    with pytest.raises(lc.UnreadableModel):
        lc.load(tmp_path / "model.npz", "relu")


def test_characters_that_do_not_exist(tmp_path: Path) -> None:
    """Numpy would make a broken text of them, on which Python's own functions fail."""
    for order in "<>":
        text = np.array("relu").astype(f"{order}U4")
        broken = np.frombuffer(np.array([0x72, 0x65, 0x6C, 0x7FFFFFFF], dtype=f"{order}u4").tobytes(), dtype=text.dtype)
        np.savez(tmp_path / "model.npz", W1=W[0], W2=np.ones((1, 2)), activation=broken)
        with pytest.raises(lc.UnreadableModel, match="a name in plain letters"):
            lc.load(tmp_path / "model.npz")
        np.savez(tmp_path / "model.npz", W1=W[0], W2=np.ones((1, 2)), activation=text)
        assert lc.load(tmp_path / "model.npz").inputs == 3


def test_a_member_that_is_no_array(tmp_path: Path) -> None:
    net = lc.Network.from_weights([W[0]])
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x", b"neither")
    with pytest.raises(lc.InvalidInput, match="no array"):
        read_points(tmp_path / "x.npz", net)


@pytest.mark.parametrize(
    "value", [10**400, [10**400], [[1.0, 10**400]], np.longdouble("1e4000")], ids=["one", "list", "matrix", "long"]
)
def test_finding_9_whole_numbers_of_400_digits(value: Any) -> None:
    net = lc.Network.from_weights([W[0]])
    with pytest.raises(lc.InvalidInput, match="x must be"):
        net(value)
    with pytest.raises(lc.InvalidInput):
        lc.Network.from_weights([[value]] if np.ndim(value) == 0 else [value])
    with pytest.raises(lc.LipcertError):
        lc.Ball([0.0, 0.0, 0.0], value)


def test_finding_9_tensors_that_require_grad() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra")
    weight = torch.ones(2, 3, requires_grad=True)
    assert lc.Network.from_weights([weight]).digest == lc.Network.from_weights([weight.detach().numpy()]).digest
    found = lc.Network.from_weights([W[0]])(torch.ones(3, requires_grad=True))
    assert np.array_equal(found, lc.Network.from_weights([W[0]])(np.ones(3)))


def test_finding_9_parameters_that_are_no_numbers(tmp_path: Path) -> None:
    for slope in (10**400, np.ma.array([1.0, 2.0], mask=[False, True])):
        with pytest.raises(lc.InvalidInput, match=r"negative_slope (must be numbers|has masked entries)"):
            lc.activation("leaky_relu", negative_slope=slope)
    net = lc.Network.from_weights([W[0]])
    with pytest.raises(lc.InvalidInput, match="clip must be a pair of numbers"):
        lc.campaign(net, np.ones((1, 3)), radii=[1.0], clip=(0, 10**400), out=tmp_path / "r.sqlite")


def test_finding_9_masked_arrays_do_not_lose_their_mask() -> None:
    hidden = np.ma.array(W[0], mask=W[0] < 0)
    for value in (hidden, list(hidden), [hidden[0], W[0][1]]):
        with pytest.raises(lc.InvalidInput, match="weight of layer 1 has masked entries; fill them"):
            lc.Network.from_weights([value])
    with pytest.raises(lc.InvalidInput, match="x has masked entries"):
        lc.Network.from_weights([W[0]])([1.0, np.ma.masked, 2.0])
    with pytest.raises(lc.InvalidInput, match="masked"):
        lc.Ball(hidden[0], 1.0)
    assert lc.Network.from_weights([np.ma.array(W[0])]).digest == lc.Network.from_weights([W[0]]).digest


def test_an_activation_on_a_wide_output_needs_no_full_identity() -> None:
    wide = sparse.csr_array((np.ones(1), ([0], [0])), shape=(10**6, 1))
    assert lc.Network.from_weights([wide], activation=["relu"]).sizes == (1, 10**6, 10**6)


def test_names_of_files_that_cannot_be(tmp_path: Path) -> None:
    net = lc.Network.from_weights([W[0]])
    for name in ("a\0b", "x" * 300, "file/"):
        with pytest.raises(lc.LipcertError):
            lc.load(tmp_path / f"{name}.npz")
        with pytest.raises(lc.LipcertError):
            read_points(tmp_path / f"{name}.csv", net)
        with pytest.raises(lc.LipcertError):
            lc.Results.read(tmp_path / name)
        with pytest.raises(lc.LipcertError):
            lc.Certificate.load(tmp_path / name)
    cert = lc.certify(net)
    (tmp_path / "plain").touch()
    for name in ("a\0b", "x" * 300, "plain/c.json", "no/c.json"):
        with pytest.raises(lc.InvalidInput, match="cannot be written"):
            cert.save(tmp_path / name)


def test_matlab_files_with_numbered_arrays(tmp_path: Path) -> None:
    file = tmp_path / "w.mat"
    arrays = {
        "W1": np.ones((3, 2)),
        "b1": np.ones((3, 1)),
        "W2": 2.0 * np.ones((1, 3)),
        "b2": 0.5,
        "activation": "tanh",
    }
    savemat(file, arrays)
    network = lc.load(file)
    assert network(np.zeros(2)) == pytest.approx(6.0 * np.tanh(1.0) + 0.5)
    savemat(file, arrays | {"V": np.ones(2)})
    with pytest.raises(UnreadableModel, match="arrays of unknown meaning: V"):
        lc.load(file)


NNET = """// a comment
2,3,2,3,
3,2,2,
0,
-1,-1,-1,
1,1,1,
0.5,0,0.25,2,
2,1,3,4,
1,-2,0.5,
0.25,1,-1,
1,
0,
2,1,
0,-1,
0.5,
0,
"""


def test_nnet_files_in_their_own_units(tmp_path: Path) -> None:
    (tmp_path / "a.nnet").write_text(NNET)
    network = lc.load(tmp_path / "a.nnet")
    assert network.sizes == (3, 2, 2)
    x = np.random.default_rng(0).standard_normal((20, 3))
    hidden = np.maximum(
        (x - [0.5, 0.0, 0.25]) / [2.0, 1.0, 3.0] @ [[1.0, 0.25], [-2.0, 1.0], [0.5, -1.0]] + [1.0, 0], 0
    )
    np.testing.assert_allclose(network(x), 4.0 * (hidden @ [[2.0, 0.0], [1.0, -1.0]] + [0.5, 0.0]) + 2.0, rtol=1e-13)
    for old, new in (
        ("3,2,2,", "3,2,9,"),
        ("2,1,3,4,", "2,1,3,"),
        ("0,-1,\n", ""),
        ("0.25,1", "nan,1"),
        ("2,1,3", "0,1,3"),
    ):
        (tmp_path / "a.nnet").write_text(NNET.replace(old, new, 1))
        with pytest.raises(lc.UnreadableModel, match=r"a\.nnet is not a \.nnet file"):
            lc.load(tmp_path / "a.nnet")
    with pytest.raises(lc.InvalidInput, match="has ReLUs"):
        lc.load(tmp_path / "a.nnet", "tanh")


def test_networks_of_matlab(tmp_path: Path) -> None:
    """IW, LW and b as a struct or as variables; what is no plain stack is refused."""
    none = np.zeros((0, 0))
    IW, LW, b = np.empty((2, 1), dtype=object), np.empty((2, 2), dtype=object), np.empty((2, 1), dtype=object)
    IW[:, 0], b[:, 0], LW[:] = [W[0], none], [B[0][:, None], B[1][:, None]], [[none, none], [W[1], none]]
    names = cells(["tansig", "purelin"])
    for content in (
        {"net": {"IW": IW, "LW": LW, "b": b, "transferFcn": names}},
        {"IW": IW, "LW": LW, "b": b, "act": names},
    ):
        savemat(tmp_path / "m.mat", content)
        np.testing.assert_allclose(lc.load(tmp_path / "m.mat")(X), by_hand(np.tanh), rtol=1e-15)
    savemat(tmp_path / "m.mat", {"IW": W[0], "b": b[:1]})
    with pytest.raises(lc.UnreadableModel, match="IW and LW must connect"):
        lc.load(tmp_path / "m.mat", "relu")
    LW[1, 1] = np.eye(4)
    savemat(tmp_path / "m.mat", {"net": {"IW": IW, "LW": LW, "b": b}})
    with pytest.raises(lc.UnreadableModel, match="each layer to the next, and nothing else"):
        lc.load(tmp_path / "m.mat", "relu")


def test_state_dicts_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(lc.UnreadableModel, match="build the module, load its state dict and pass the module"):
        lc.load(tmp_path / "model.pt")


def test_names_and_units_of_inputs_and_outputs(tmp_path: Path) -> None:
    """They go with the network, reach sets and sensitivities, their files and statements; the digest stays."""
    file = npz(tmp_path, W1=W[0], W2=W[1], activation="tanh")
    names: dict[str, Any] = {
        "inputs": ["angle [rad]", "rate [rad/s]", "wind [m/s]"],
        "outputs": ["a", "b", "c", "d [N]"],
    }
    network = lc.load(file, **names)
    assert network.digest == lc.load(file).digest
    network.save(tmp_path / "named.npz")
    network = lc.load(tmp_path / "named.npz")
    assert network.names == (tuple(names["inputs"]), tuple(names["outputs"]))
    ball = lc.Ball([0.0, 0.0, 0.0], 0.1)
    for ask, kind in ((lc.reach, lc.Reach), (lc.sensitivity, lc.Sensitivity)):
        ask(network, ball, lc.ClosedForm()).save(tmp_path / "answer.json")
        found = kind.load(tmp_path / "answer.json")
        lc.verify(network, found)
        text = " ".join(wording.statement(found, network.depth)[1])
        assert "output d [N]" in text
        assert kind is lc.Reach or "input rate [rad/s]" in text
    lc.certify(network, ball, lc.ClosedForm(), inputs=[0, 2], outputs=[3]).save(tmp_path / "answer.json")
    cert = lc.Certificate.load(tmp_path / "answer.json")
    lc.verify(network, cert)
    assert wording.restrictions(cert, network.depth) == [
        "x and y differing in coordinates angle [rad], wind [m/s] only",
        "output d [N] only",
    ]
    assert lc.certify(network, ball, lc.ClosedForm(), layers=(0, 1)).names == (tuple(names["inputs"]), ())
    for wrong in (["angle"], "abc", ["a", "b", ""], ["a", "b", "c\n"], [1, 2, 3]):
        with pytest.raises(lc.InvalidInput, match="inputs must be 3 names, such as"):
            lc.load(file, inputs=wrong)  # type: ignore[arg-type]
