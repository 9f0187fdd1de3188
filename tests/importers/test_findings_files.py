"""What an attack found in the readers of files, one test a hole, named after the finding."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.io import loadmat, savemat

import lipcert as lc
from lipcert.questions.campaign.data import read_points

W = np.array([[1.0, -2.0, 0.5], [0.25, 1.0, -1.0]])


def cells(*arrays: Any) -> np.ndarray[Any, Any]:
    row = np.empty((1, len(arrays)), dtype=object)
    row[0, :] = arrays
    return row


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


# 3: what .mat files may hold


def test_finding_3_sparse_and_complex_matrices_of_a_mat_file_are_refused(tmp_path: Path) -> None:
    """Their indices could point anywhere; MATLAB's full() is at hand."""
    for weight in (sparse.csc_matrix(W), W + 1j):
        savemat(tmp_path / "model.mat", {"weights": cells(weight)})
        with pytest.raises(lc.UnreadableModel, match=r"a sparse W is saved as full\(W\)"):
            lc.load(tmp_path / "model.mat")


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_array, sparse.csr_matrix])
def test_finding_3_sparse_weights_of_a_caller_are_checked_too(kind: Any) -> None:
    weight = kind(W)
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
    from lipcert.importers import mat

    rng = np.random.default_rng(0)
    content: dict[str, Any] = {
        f"n{kind}": (100 * rng.random((3, 4))).astype(kind) for kind in ("f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4")
    }
    content |= {"i8": np.array([[2**62, -3]]), "u8": np.array([[2**63]], dtype="u8"), "cube": rng.random((2, 3, 4))}
    content |= {"truth": rng.random((2, 2)) > 0.5, "none": np.zeros((0, 0))}
    content |= {"text": "leaky_relu(0.5)", "texts": np.array(["ab", "cd"]), "greek": "αβγ", "number": 3.5}
    content |= {"cell": cells(W, "relu", np.zeros((0, 0)))}
    for squeeze in (False, True):
        savemat(tmp_path / "m.mat", content, do_compression=squeeze)
        found = mat.variables((tmp_path / "m.mat").read_bytes(), list(content))
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
    np.save(stream, W)
    with zipfile.ZipFile(tmp_path / "model.npz", "w") as archive:
        archive.writestr("W1.npy", stream.getvalue())
        archive.writestr("W1", stream.getvalue())
    with pytest.raises(lc.UnreadableModel, match="has 'W1' twice"):
        lc.load(tmp_path / "model.npz")


ODD_NAMES = ["W１", "W99999999999999999999", "W" + "9" * 5000, "W1\n", "W\ud800"]


@pytest.mark.parametrize("name", ODD_NAMES, ids=range(len(ODD_NAMES)))
def test_odd_names_of_arrays(name: str, tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.save(stream, W)
    with zipfile.ZipFile(tmp_path / "model.npz", "w") as archive:
        archive.writestr(f"{name}.npy".encode("utf-8", "replace").decode(), stream.getvalue())
    with pytest.raises(lc.UnreadableModel):
        lc.load(tmp_path / "model.npz", "relu")


def test_characters_that_do_not_exist(tmp_path: Path) -> None:
    """Numpy would make a broken text of them, on which Python's own functions fail."""
    for order in "<>":
        text = np.array("relu").astype(f"{order}U4")
        broken = np.frombuffer(np.array([0x72, 0x65, 0x6C, 0x7FFFFFFF], dtype=f"{order}u4").tobytes(), dtype=text.dtype)
        np.savez(tmp_path / "model.npz", W1=W, W2=np.ones((1, 2)), activation=broken)
        with pytest.raises(lc.UnreadableModel, match="a name in plain letters"):
            lc.load(tmp_path / "model.npz")
        np.savez(tmp_path / "model.npz", W1=W, W2=np.ones((1, 2)), activation=text)
        assert lc.load(tmp_path / "model.npz").inputs == 3


def test_a_far_layer_number_is_no_loop(tmp_path: Path) -> None:
    np.savez(tmp_path / "model.npz", W1=W, W999999999=W)
    with pytest.raises(lc.UnreadableModel, match="has W999999999 but not W2"):
        lc.load(tmp_path / "model.npz", "relu")


def test_a_member_that_is_no_array(tmp_path: Path) -> None:
    net = lc.Network.from_weights([W])
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x", b"neither")
    with pytest.raises(lc.InvalidInput, match="no array"):
        read_points(tmp_path / "x.npz", net)


# 9: numbers


@pytest.mark.parametrize(
    "value", [10**400, [10**400], [[1.0, 10**400]], np.longdouble("1e4000")], ids=["one", "list", "matrix", "long"]
)
def test_finding_9_whole_numbers_of_400_digits(value: Any) -> None:
    net = lc.Network.from_weights([W])
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
    found = lc.Network.from_weights([W])(torch.ones(3, requires_grad=True))
    assert np.array_equal(found, lc.Network.from_weights([W])(np.ones(3)))


def test_finding_9_parameters_that_are_no_numbers(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra")
    for slope in (10**400, torch.ones(2, requires_grad=True), np.ma.array([1.0, 2.0], mask=[False, True])):
        with pytest.raises(lc.InvalidInput, match="negative_slope must be a number or one per neuron"):
            lc.activation("leaky_relu", negative_slope=slope)
    net = lc.Network.from_weights([W])
    with pytest.raises(lc.InvalidInput, match="clip must be a pair of numbers"):
        lc.campaign(net, np.ones((1, 3)), radii=[1.0], clip=(0, 10**400), out=tmp_path / "r.sqlite")


def test_finding_9_masked_arrays_do_not_lose_their_mask() -> None:
    hidden = np.ma.array(W, mask=W < 0)
    for value in (hidden, list(hidden), [hidden[0], W[1]]):
        with pytest.raises(lc.InvalidInput, match="weight of layer 1 has masked entries; fill them"):
            lc.Network.from_weights([value])
    with pytest.raises(lc.InvalidInput, match="x has masked entries"):
        lc.Network.from_weights([W])([1.0, np.ma.masked, 2.0])
    with pytest.raises(lc.InvalidInput, match="masked"):
        lc.Ball(hidden[0], 1.0)
    assert lc.Network.from_weights([np.ma.array(W)]).digest == lc.Network.from_weights([W]).digest


def test_an_activation_on_a_wide_output_needs_no_full_identity() -> None:
    wide = sparse.csr_array((np.ones(1), ([0], [0])), shape=(10**6, 1))
    assert lc.Network.from_weights([wide], activation=["relu"]).sizes == (1, 10**6, 10**6)


def test_names_of_files_that_cannot_be(tmp_path: Path) -> None:
    net = lc.Network.from_weights([W])
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


# 4 and 9: state dicts of PyTorch


def state(path: Path, content: Any) -> Path:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra")
    torch.save(content, path / "model.pt")
    return path / "model.pt"


def layer(name: str, outputs: int, inputs: int, bias: bool = True) -> dict[str, Any]:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra")
    weight = torch.arange(float(outputs * inputs)).reshape(outputs, inputs)
    return {f"{name}.weight": weight} | ({f"{name}.bias": torch.zeros(outputs)} if bias else {})


def test_finding_4_imaginary_parts_of_a_state_dict_are_not_dropped(tmp_path: Path) -> None:
    content = layer("0", 2, 3)
    content["0.weight"] = content["0.weight"] + 1j
    with pytest.raises(lc.UnreadableModel, match=r"0\.weight is complex"):
        lc.load(state(tmp_path, content), "relu")


def test_finding_4_the_order_of_the_entries_is_not_the_order_of_the_layers(tmp_path: Path) -> None:
    content = layer("head", 3, 3) | layer("body", 3, 3)
    with pytest.raises(lc.UnreadableModel, match="in which order its layers are used: head, body"):
        lc.load(state(tmp_path, content), "relu")
    content = layer("2", 3, 3) | layer("0", 3, 3)
    with pytest.raises(lc.UnreadableModel, match="in which order"):
        lc.load(state(tmp_path, content), "relu")
    content = layer("up", 4, 3) | layer("down", 3, 4)  # either could be first
    with pytest.raises(lc.UnreadableModel, match="in which order"):
        lc.load(state(tmp_path, content), "relu")


def test_state_dicts_whose_order_is_known(tmp_path: Path) -> None:
    for content in (
        layer("fc2", 3, 3) | layer("fc10", 3, 3, bias=False),
        layer("net.layers.0", 3, 3) | layer("net.layers.2", 3, 3),
        layer("body", 3, 4) | layer("head", 2, 3),
        layer("only", 3, 3),
    ):
        net = lc.load(state(tmp_path, content), "leaky_relu(0.5)")
        weights = [value.numpy() for name, value in content.items() if name.endswith("weight")]
        assert all(np.array_equal(one.weight, two) for one, two in zip(net.layers, weights, strict=True))


def test_finding_9_state_dicts_with_odd_entries(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra")
    plain = layer("0", 2, 3)
    cases = {
        r"not called by a name \(0\)": {0: plain["0.weight"]},
        "0.weight is sparse": plain | {"0.weight": plain["0.weight"].to_sparse()},
        "0.weight is of type int64": plain | {"0.weight": plain["0.weight"].long()},
        "0.weight is on the device meta": plain | {"0.weight": plain["0.weight"].to("meta")},
        "far larger than the file": plain | {"0.bias": torch.zeros(1).expand(2**40)},
        "a bias without a weight|not a plain stack": plain | {"1.bias": torch.zeros(2)},
        "bias of layer 1 must have 2 numbers": plain | {"0.bias": torch.zeros(3)},
    }
    for message, content in cases.items():
        with pytest.raises(lc.UnreadableModel, match=message):
            lc.load(state(tmp_path, content), "relu")
    torch.save(plain, tmp_path / "model.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(lc.UnreadableModel, match="save it again"):
        lc.load(tmp_path / "model.pt", "relu")
