"""Mutants of networks stored as arrays: .npz, .mat and .nnet files."""

from __future__ import annotations

import io
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import savemat

import lipcert as lc
from fuzz_bytes import NUMBERS, mangled, unzipped, zipped

# .npz

W = [np.array([[1.0, -2.0, 0.5], [0.25, 1.0, -1.0]]), np.array([[2.0, 1.0], [0.0, -1.0], [1.0, 1.0]])]


def npz_seeds() -> list[bytes]:
    files = []
    extras: list[dict[str, Any]] = [{}, {"activation": "tanh"}, {"activation": ["leaky_relu(0.2)"], "b1": np.ones(2)}]
    for extra in extras:
        stream = io.BytesIO()
        arrays: dict[str, Any] = {"W1": W[0], "W2": W[1].astype(np.float32)} | extra
        np.savez(stream, **arrays)
        files.append(stream.getvalue())
    return files


HEADERS = [b"'<f8'", b"'<f2'", b"'<c16'", b"'|O'", b"'<M8[s]'", b"'|V0'", b"'<U0'", b"'<f16'", b"'|b1'", b"'>f8'"]
HEADERS += [b"[('a', '<f8')]", b"('<f8', (99999999,))", b"'<U999999999'", b"(3, 2)", b"(-1,)", b"(2147483648, 4)"]
HEADERS += [b"(9223372036854775807, 0)", b"(1" + b", 1" * 70 + b")", b"True", b"()", b"(0, 0)", b"(((((((1)))))))"]


def change_npz(rng: random.Random, data: bytes) -> bytes:
    if rng.random() < 0.25:
        return mangled(rng, data)
    members = unzipped(data)
    name = rng.choice(list(members))
    array = members.pop(name)
    if rng.random() < 0.6 and array[:6] == b"\x93NUMPY":
        size = struct.unpack_from("<H", array, 8)[0]
        header, rest = array[10 : 10 + size], array[10 + size :]
        old = rng.choice([header[header.index(b": ") + 2 : header.index(b", 'fort")], b"(2, 3)", b"(3, 2)", b"False"])
        header = header.rstrip().replace(old, rng.choice(HEADERS)) + b"\n"
        header = mangled(rng, header, 1) if rng.random() < 0.2 else header
        array = array[:8] + struct.pack("<H", len(header)) + header + rest
    elif rng.random() < 0.5:
        array = mangled(rng, array)
    else:
        name = rng.choice([*(f"W{n}.npy" for n in NUMBERS), "b1.npy", "activation.npy", "W1", "W０.npy", "../W3.npy"])
    return zipped(members | {name: array}, rng)


def read_npz(path: Path) -> None:
    try:
        lc.load(path, "relu")
    except lc.LipcertError:
        lc.load(path)


# .mat


def mat_seeds() -> list[bytes]:
    files = []
    for weights, extra in (
        ([W[0], W[1]], {"activation": "relu", "biases": [np.ones((2, 1)), np.zeros((0, 0))]}),
        ([W[0].astype(np.float32), W[1].astype(np.int8)], {"activation": "tanh"}),
    ):
        cells = {k: v if isinstance(v, str) else _cell(v) for k, v in ({"weights": weights} | extra).items()}
        stream = io.BytesIO()
        savemat(stream, cells)
        files.append(stream.getvalue())
    return files


def _cell(values: Any) -> Any:
    row = np.empty((1, len(values)), dtype=object)
    row[0, :] = values
    return row


def change_mat(rng: random.Random, data: bytes) -> bytes:
    """Mutants of the stream itself, and of what is inside compressed elements."""
    if rng.random() < 0.7:
        place = 8 * rng.randrange(16, len(data) // 8) + rng.choice([0, 4])
        number = struct.pack("<q", rng.choice([n for n in NUMBERS if -(2**63) <= n < 2**63]))[:4]
        data = data[:place] + number + data[place + 4 :]
    if rng.random() < 0.5:
        data = data[:128] + mangled(rng, data[128:])
    if rng.random() < 0.5:
        body = zlib.compress(data[128:])
        body = mangled(rng, body) if rng.random() < 0.1 else body
        data = data[:128] + struct.pack("<2I", 15, len(body)) + body
    return mangled(rng, data[:128], 1) + data[128:] if rng.random() < 0.1 else data


# .nnet


def nnet_seeds() -> list[bytes]:
    head = ["// a network", "2,3,2,3,", "3,2,2,", "0,", "-1,-1,-1,", "1,1,1,", "0.5,0,0,2,", "2,1,1,4,"]
    return ["\n".join([*head, "1,-2,0.5,", "0.25,1,-1,", "1,", "0,", "2,1,", "0,-1,", "0.5,", "0,"]).encode()]


def change_nnet(rng: random.Random, data: bytes) -> bytes:
    if rng.random() < 0.3:
        return mangled(rng, data)
    parts = data.split(b",")
    parts[rng.randrange(len(parts))] = rng.choice([b"1e400", b"nan", b"-3", b"99999999999", b"", b"\n", b"x", b"7"])
    return b",".join(parts)
