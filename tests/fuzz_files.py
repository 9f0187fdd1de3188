"""Good files of every kind but ONNX, and ways to change them that get past checksums."""

from __future__ import annotations

import io
import json
import random
import sqlite3
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import savemat

import lipcert as lc
from fuzz_bytes import NUMBERS, mangled, unzipped, zipped
from fuzz_documents import rewritten, signed
from lipcert.files.codec import encode
from lipcert.questions.campaign import store

Change = Callable[[random.Random, bytes], bytes]
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
    """Headers and contents of arrays, and their names; the archive itself is sound."""
    members = unzipped(data)
    name = rng.choice(list(members))
    array = members.pop(name)
    if rng.random() < 0.6 and array[:6] == b"\x93NUMPY":
        size = struct.unpack_from("<H", array, 8)[0]
        header, rest = array[10 : 10 + size], array[10 + size :]
        old = rng.choice([header[header.index(b": ") + 2 : header.index(b", 'fort")], b"(2, 3)", b"(3, 2)", b"False"])
        header = header.rstrip().replace(old, rng.choice(HEADERS)) + b"\n"
        array = array[:8] + struct.pack("<H", len(header)) + header + rest
    elif rng.random() < 0.5:
        array = mangled(rng, array)
    else:
        name = rng.choice([*(f"W{n}.npy" for n in NUMBERS), "b1.npy", "activation.npy", "W1", "W０.npy", "../W3.npy"])
    return zipped(members | {name: array}, rng)


def mat_seeds() -> list[bytes]:
    cases: list[tuple[list[Any], dict[str, Any]]] = [
        ([W[0], W[1]], {"activation": "relu", "biases": _cell([np.ones((2, 1)), np.zeros((0, 0))])}),
        ([W[0].astype(np.float32), W[1].astype(np.int8)], {"activation": "tanh"}),
    ]
    streams = [io.BytesIO() for _ in cases]
    for stream, (weights, extra) in zip(streams, cases, strict=True):
        savemat(stream, {"weights": _cell(weights)} | extra)
    return [stream.getvalue() for stream in streams]


def _cell(values: list[Any]) -> Any:
    row = np.empty((1, len(values)), dtype=object)
    row[0, :] = values
    return row


def change_mat(rng: random.Random, data: bytes) -> bytes:
    """Numbers of the stream, which may then be compressed."""
    place = 8 * rng.randrange(16, len(data) // 8) + rng.choice([0, 4])
    number = struct.pack("<q", rng.choice([n for n in NUMBERS if -(2**63) <= n < 2**63]))[:4]
    data = data[:place] + number + data[place + 4 :]
    if rng.random() < 0.5:
        body = zlib.compress(data[128:])
        data = data[:128] + struct.pack("<2I", 15, len(body)) + body
    return data


def nnet_seeds() -> list[bytes]:
    head = ["// a network", "2,3,2,3,", "3,2,2,", "0,", "-1,-1,-1,", "1,1,1,", "0.5,0,0,2,", "2,1,1,4,"]
    return ["\n".join([*head, "1,-2,0.5,", "0.25,1,-1,", "1,", "0,", "2,1,", "0,-1,", "0.5,", "0,"]).encode()]


def csv_seeds() -> list[bytes]:
    plain = "\n".join(f"{k},{k + 0.5},-1e-3" for k in range(5))
    named = f"a,b,c,label\n{plain.replace('-1e-3', '-1e-3,1')}\n"
    return [plain.encode(), named.encode(), b"\xef\xbb\xbf" + plain.encode()]


CELLS = [*b"nan inf 1e999 1e400 -3 99999999999 7 x 1_0 0x10 \xd9\xa3 \0 \r".split(b" ")]
CELLS += [b"", b"\n", b'"', b"9" * 400, b"a" * 200_000]


def change_cells(rng: random.Random, data: bytes) -> bytes:
    """Cells between commas."""
    parts = data.split(b",")
    for _ in range(rng.choice([1, 1, 3])):
        parts[rng.randrange(len(parts))] = rng.choice(CELLS)
    return b",".join(parts)


def certificate_seeds() -> list[bytes]:
    net, ball = lc.Network.from_weights(W, activation="tanh"), lc.Ball(np.zeros(3), 0.5, clip=(-1, 1))
    made = [
        lc.certify(net, ball, lc.Scalar()),
        lc.certify(net, lc.Box(np.zeros(3), np.ones(3)), lc.Split(method=lc.ClosedForm(), seconds=np.inf, pieces=30)),
    ]
    return [json.dumps(signed(encode(lc.Certificate, one))).encode() for one in made]


def change_certificate(rng: random.Random, data: bytes) -> bytes:
    return json.dumps(signed(rewritten(rng, json.loads(data)["content"]))).encode()


def sqlite_seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.sqlite"
        made = store.Store(path, create=True)
        made.agree({"points": "p", "clip": None, "attack": True, "curvature": None, "enclosures": "()"})
        made.add([store.Row("n" * 64, k, 0.1, "m", 0, k % 2, 1.0, 2.0, 0.1, 0.1) for k in range(40)], 1.0)
        made.close()
        return [path.read_bytes()]


STATEMENTS = ["UPDATE about SET value = '['", "DROP TABLE about", "CREATE VIEW v AS SELECT 1", "VACUUM"]
STATEMENTS += [
    "UPDATE about SET value = '" + "[" * 100_000 + "'",
    "UPDATE batches SET seconds = 'x'",
    *["SELECT 1"] * 5,
]


def change_sqlite(rng: random.Random, data: bytes) -> bytes:
    """A row with odd values under a checksum that fits, and perhaps another table or version."""
    base = sqlite3.connect(":memory:")
    base.deserialize(data)
    (row,) = base.execute(f"SELECT {', '.join(store.COLUMNS)} FROM results ORDER BY random() LIMIT 1")
    values = list(row)
    odd = [None, "x", b"\xff", 0, -1, 2**62, 1e308, -1.0, float("inf"), "\x1b[2J"]
    values[rng.randrange(len(values))] = rng.choice(odd)
    insert = f"INSERT OR REPLACE INTO results VALUES ({', '.join('?' * (len(values) + 1))})"
    version = f"PRAGMA user_version = {rng.choice([1, 2, 3, 3, 3, 3, 4])}"
    for text in (insert, rng.choice(STATEMENTS), version):
        try:
            base.execute(text, (*values, store._checksum(tuple(values))) if text is insert else ())
            base.commit()
        except sqlite3.Error:
            base.rollback()
    changed = base.serialize()
    base.close()
    return changed
