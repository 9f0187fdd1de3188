"""A mutator for every kind of file that is read, and a process that reads the mutants under limits.

Run as ``python fuzzing.py READER SEED COUNT FOLDER``: reads that many mutants, one after the other, and prints how many
were read and refused. Anything else that happens ends it: another exception, a crash, too much memory, or a case that
does not end. The mutant at hand is in FOLDER then.
"""

from __future__ import annotations

import base64
import faulthandler
import hashlib
import io
import json
import random
import resource
import signal
import sqlite3
import struct
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.io import savemat

import lipcert as lc
from lipcert import storage
from lipcert.campaign import store
from lipcert.campaign.data import read_points

MEMORY = 3 * 2**30
"""Bytes that reading one small file may need on top of what the process has."""

SECONDS = 120
"""After so long a case counts as one that does not end; the machine may be slow."""

NUMBERS = [0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**24, 2**30, 2**31 - 1, 2**31, 2**32 - 1]
NUMBERS += [2**40, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -1, -2, -5, -128, -(2**31), -(2**63)]
TEXTS = ["", "x", "W1", "y", "relu", "-1", "1e999", "nan", "é", "\0", "\x1b[2J", "a" * 300, "0", "ai.onnx", "９"]


@dataclass(frozen=True)
class Kind:
    """A kind of file: its suffix, some good files, ways to change one, and what reads it."""

    suffix: str
    seeds: Callable[[], list[bytes]]
    change: Callable[[random.Random, bytes], bytes]
    read: Callable[[Path], Any]


# Any bytes


def mangled(rng: random.Random, data: bytes, times: int | None = None) -> bytes:
    """Some bytes changed, cut out, repeated, moved, or numbers put in."""
    content = bytearray(data)
    for _ in range(times or rng.choice([1, 1, 1, 2, 4, 30])):
        if not content:
            break
        place = rng.randrange(len(content))
        kind = rng.randrange(8)
        if kind == 0:
            content[place] = rng.randrange(256)
        elif kind == 1:
            content[place] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del content[place : place + rng.choice([1, 4, 8, 60, 4000])]
        elif kind == 3:
            content[place:place] = content[place : place + rng.choice([1, 8, 64, 300])]
        elif kind == 4:
            width = rng.choice([1, 2, 4, 8])
            number = rng.choice(NUMBERS) % 256**width
            place -= place % width if rng.random() < 0.7 else 0
            content[place : place + width] = number.to_bytes(width, rng.choice(["little", "little", "big"]))
        elif kind == 5:
            other, size = rng.randrange(len(content)), rng.choice([4, 8, 40])
            content[place : place + size] = content[other : other + size]
        elif kind == 6:
            del content[place:]
        else:
            content[place:place] = rng.choice(TEXTS).encode()
    return bytes(content)


def zipped(members: dict[str, bytes], rng: random.Random) -> bytes:
    stream = io.BytesIO()
    method = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", method) as archive:
        warnings.simplefilter("ignore")
        for name, data in members.items():
            archive.writestr(name, data)
            if rng.random() < 0.02:
                archive.writestr(name, data)
    return stream.getvalue()


def unzipped(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


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
        ([sparse.csc_matrix(W[0]), W[1].astype(np.int8)], {"activation": "tanh"}),
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


# .pt


def pt_seeds() -> list[bytes]:
    import torch

    first = {"0.weight": torch.ones(2, 3), "0.bias": torch.zeros(2), "2.weight": torch.ones(3, 2)}
    cases: list[Any] = [first, first | {"0.bias": torch.zeros(1).expand(2)}, {0: torch.ones(2)}, {"a": {"b": 1}}]
    cases += [first | {"0.weight": torch.ones(2, 3).to_sparse()}, first | {"0.weight": torch.ones(2, 3) + 1j}]
    files = []
    for case in cases:
        stream = io.BytesIO()
        torch.save(case, stream)
        files.append(stream.getvalue())
    return files


def change_pt(rng: random.Random, data: bytes) -> bytes:
    if rng.random() < 0.25:
        return mangled(rng, data)
    members = unzipped(data)
    name = next(n for n in members if n.endswith("data.pkl")) if rng.random() < 0.7 else rng.choice(list(members))
    members[name] = mangled(rng, members[name])
    if rng.random() < 0.05:
        members.pop(rng.choice(list(members)))
    return zipped(members, rng)


# .onnx


def onnx_seeds() -> list[bytes]:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)

    def model(nodes: list[Any], shape: list[int], constants: dict[str, Any]) -> bytes:
        stored = [
            numpy_helper.from_array(np.asarray(v, np.float32 if np.asarray(v).dtype.kind == "f" else None), k)
            for k, v in constants.items()
        ]
        ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        graph = helper.make_graph(
            nodes, "g", ends, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], stored
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        return bytes(made.SerializeToString())

    def node(kind: str, inputs: str, outputs: str = "y", **attributes: Any) -> Any:
        return helper.make_node(kind, inputs.split(" "), outputs.split(" "), **attributes)

    image = [
        node("Sub", "x c", "a"),
        node("Conv", "a w b", "d", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "d s t m v", "e"),
        node("Relu", "e", "f"),
        node("MaxPool", "f", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("AveragePool", "p", "q", kernel_shape=[2, 2]),
        node("Flatten", "q", "r"),
        node("Gemm", "r g h", "o", transB=1),
        node("Clip", "o low high"),
    ]
    vector = {name: np.abs(rng.standard_normal(2)) for name in "bstmv"}
    constants = {"c": 0.5, "w": rng.standard_normal((2, 1, 3, 3)), "g": rng.standard_normal((3, 2)), "h": np.ones(3)}
    moves = [
        node("Shape", "x", "a"),
        node("Gather", "a zero", "n"),
        helper.make_node("Constant", [], ["k"], value_ints=[-1]),
        node("Concat", "n k", "s", axis=0),
        node("Reshape", "x s", "r"),
        node("Slice", "r i j", "t"),
        node("Pad", "t p", "u"),
        node("Split", "u q", "v w", axis=1),
        node("Max", "v w", "z"),
        node("Transpose", "z", "e", perm=[1, 0]),
        node("Unsqueeze", "e i", "f"),
        node("ReduceMean", "f", "h", axes=[1]),
        node("Expand", "h m", "o"),
        node("Sigmoid", "o"),
    ]
    whole = {"zero": [0], "i": [0], "j": [9], "p": [0, 1, 0, 1], "q": [4, 4], "m": [1, 1, 2]}
    function = onnx.ModelProto.FromString(model([node("F", "x", domain="local")], [1, 3], {}))
    body = [node("Relu", "a", "t"), node("Elu", "t", "b")]
    function.functions.append(helper.make_function("local", "F", ["a"], ["b"], body, [helper.make_opsetid("", 17)]))
    function.opset_import.append(helper.make_opsetid("local", 1))
    return [
        model(image, [1, 1, 4, 4], vector | constants | {"low": -1.0, "high": 2.0}),
        model(moves, [1, 2, 3], {name: np.array(value) for name, value in whole.items()}),
        bytes(function.SerializeToString()),
    ]


def change_onnx(rng: random.Random, data: bytes) -> bytes:
    """Fields of the message changed, swapped, removed or repeated."""
    import onnx

    if rng.random() < 0.15:
        return mangled(rng, data)
    model = onnx.ModelProto.FromString(data)
    for _ in range(rng.choice([1, 1, 2, 3])):
        places = list(_fields(model))
        message, field = rng.choice(places)
        _change_field(rng, message, field, places)
    return bytes(model.SerializeToString())


def _fields(message: Any) -> Any:
    """Every field that is set, anywhere inside."""
    for field, value in message.ListFields():
        yield message, field
        if field.type == field.TYPE_MESSAGE:
            for part in value if field.is_repeated else [value]:
                yield from _fields(part)


def _change_field(rng: random.Random, message: Any, field: Any, places: Any) -> None:
    value = getattr(message, field.name)
    if field.is_repeated and len(value):
        place, action = rng.randrange(len(value)), rng.randrange(4)
        if action == 0:
            del value[place]
        elif action == 1:
            value.append(value[rng.randrange(len(value))])
        elif field.type == field.TYPE_MESSAGE:
            one, two = type(value[place])(), type(value[place])()
            other = rng.randrange(len(value))
            one.CopyFrom(value[place])
            two.CopyFrom(value[other])
            value[place].CopyFrom(two)
            value[other].CopyFrom(one)
        else:
            value[place] = _scalar(rng, field, value[place], places)
    elif field.type == field.TYPE_MESSAGE:
        if rng.random() < 0.3:
            message.ClearField(field.name)
    elif not field.is_repeated:
        setattr(message, field.name, _scalar(rng, field, value, places))


def _scalar(rng: random.Random, field: Any, value: Any, places: Any) -> Any:
    """Another value that the field can hold."""
    if isinstance(value, str):
        others = [getattr(m, f.name) for m, f in places if f.name in ("name", "op_type")]
        names = [
            "Clip",
            "Add",
            "Mul",
            "MatMul",
            "Cast",
            "Tile",
            "ConstantOfShape",
            "Range",
            "If",
            "Loop",
            "Erf",
            "Selu",
        ]
        return rng.choice([*others, *names, *(text for text in TEXTS if "\0" not in text)])
    if isinstance(value, bytes):
        return mangled(rng, value, 1)
    if isinstance(value, float):
        return rng.choice([0.0, 1.0, -1.0, 1e30, 3.4e38, float("nan"), float("inf"), 1e-40])
    if field.enum_type is not None:
        return rng.choice([v.number for v in field.enum_type.values])
    bits = 31 if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_ENUM) else 63
    return rng.choice([n for n in NUMBERS if -(2**bits) <= n < 2**bits])


# certificates


def certificate_seeds() -> list[bytes]:
    net = lc.Network.from_weights(W, activation="tanh")
    files = []
    for region, method in (
        (lc.Ball(np.zeros(3), 0.5, clip=(-1, 1)), lc.Scalar()),
        (lc.Box(np.zeros(3), np.ones(3)), lc.ClosedForm()),
        (lc.Ball(np.zeros(3), 0.5), lc.Split(method=lc.ClosedForm(), seconds=0.1)),
    ):
        made = lc.certify(net, region, method)
        content = storage._content(made)
        files.append(json.dumps(_signed(content)).encode())
    return files


def _signed(content: Any) -> dict[str, Any]:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return {"format": storage.FORMAT, "version": storage.VERSION, "sha256": checksum, "content": content}


def change_certificate(rng: random.Random, data: bytes) -> bytes:
    if rng.random() < 0.2:
        return mangled(rng, data)
    content = json.loads(data)["content"]
    for _ in range(rng.choice([1, 1, 2, 4])):
        places: list[tuple[Any, Any]] = []
        _walk(content, places)
        node, key = rng.choice(places)
        action = rng.randrange(5)
        if action == 0:
            node[key] = rng.choice([*NUMBERS, *TEXTS, 10**400, 0.5, 1e308, None, True, [], {}, [[]], "\ud800"])
        elif action == 1 and isinstance(node, list):
            del node[key]
        elif action == 2:
            other, place = rng.choice(places)
            node[key] = json.loads(json.dumps(other[place]))
        elif isinstance(node[key], dict) and isinstance(node[key].get("float64"), str):
            raw = mangled(rng, struct.pack("<4d", *(rng.choice([0.0, 1.0, -1.0, 2.0, 1e300]) for _ in range(4))), 1)
            node[key]["float64"] = base64.b64encode(raw).decode()
            node[key]["shape"] = [len(raw) // 8] if rng.random() < 0.7 else node[key]["shape"]
        elif isinstance(node[key], str):
            node[key] = mangled(rng, node[key].encode(errors="replace"), 1).decode(errors="surrogateescape")
    return json.dumps(_signed(content)).encode()


def _walk(node: Any, places: list[tuple[Any, Any]]) -> None:
    for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
        places.append((node, key))
        _walk(node[key], places)


def read_certificate(path: Path) -> str:
    return repr(lc.Certificate.load(path))


# results of campaigns


def sqlite_seeds() -> list[bytes]:
    path = Path(f"/proc/self/cwd/fuzz-{random.random()}.sqlite")
    made = store.Store(path, create=True)
    made.agree({"points": "p", "clip": None, "attack": True, "enclosures": "()"})
    made.add([store.Row("n" * 64, k, 0.1, "m", 0, k % 2, 1.0, 2.0, 0.1, 0.1) for k in range(40)], 1.0)
    made.close()
    data = path.read_bytes()
    path.unlink()
    return [data]


STATEMENTS = ["UPDATE about SET value = '['", "DROP TABLE about", "CREATE VIEW v AS SELECT 1", "VACUUM", "SELECT 1"]
STATEMENTS += ["UPDATE about SET value = '" + "[" * 100_000 + "'", "UPDATE batches SET seconds = 'x'", "SELECT 1"]


def change_sqlite(rng: random.Random, data: bytes) -> bytes:
    """Mutants of the pages, and of rows, with a checksum that fits."""
    if rng.random() < 0.5:
        return mangled(rng, data)
    base = sqlite3.connect(":memory:")
    base.deserialize(data)
    names = ", ".join(store.COLUMNS)
    (row,) = base.execute(f"SELECT {names} FROM results ORDER BY random() LIMIT 1")
    values = list(row)
    odd = [None, "x", b"\xff", 0, -1, 2**62, 1e308, -1.0, float("inf"), "\x1b[2J"]
    values[rng.randrange(len(values))] = rng.choice(odd)
    for text in (
        f"INSERT OR REPLACE INTO results VALUES ({', '.join('?' * (len(values) + 1))})",
        rng.choice(
            ["UPDATE about SET value = '['", "DROP TABLE about", "CREATE VIEW v AS SELECT 1", "SELECT 1", "VACUUM"]
        ),
        rng.choice(
            ["UPDATE about SET value = '" + "[" * 100_000 + "'", "UPDATE batches SET seconds = 'x'", "SELECT 1"]
        ),
        f"PRAGMA user_version = {rng.choice([1, 2, 2, 2, 3])}",
    ):
        try:
            full = (*values, store._checksum(tuple(values))) if "?" in text else ()
            base.execute(text, full)
            base.commit()
        except sqlite3.Error:
            base.rollback()
    changed = base.serialize()
    base.close()
    return mangled(rng, changed, 1) if rng.random() < 0.2 else changed


def read_sqlite(path: Path) -> Any:
    from lipcert.campaign.summary import export, summarise

    results = lc.Results.read(path)
    for suffix in (".csv", ".json"):
        export(results, path.with_suffix(suffix))
    return summarise(results)


# points


def csv_seeds() -> list[bytes]:
    plain = "\n".join(f"{k},{k + 0.5},-1e-3" for k in range(5))
    return [
        plain.encode(),
        f"a,b,c,label\n{plain.replace('-1e-3', '-1e-3,1')}\n".encode(),
        b"\xef\xbb\xbf" + plain.encode(),
    ]


def change_csv(rng: random.Random, data: bytes) -> bytes:
    parts = data.split(b",")
    for _ in range(rng.choice([0, 1, 3])):
        odd = [
            b"nan",
            b"inf",
            b"1e999",
            b"9" * 400,
            b'"',
            b"1_0",
            b"\xd9\xa3",
            b"0x10",
            b"\0",
            b"a" * 200_000,
            b"",
            b"\r",
        ]
        parts[rng.randrange(len(parts))] = rng.choice(odd)
    data = b",".join(parts)
    return mangled(rng, data) if rng.random() < 0.6 else data


def read_csv(path: Path) -> Any:
    return read_points(path, lc.Network.from_weights(W))


def read_load(path: Path) -> Any:
    return lc.load(path)


KINDS = {
    "npz": Kind(".npz", npz_seeds, change_npz, read_npz),
    "mat": Kind(".mat", mat_seeds, change_mat, read_npz),
    "pt": Kind(".pt", pt_seeds, change_pt, read_npz),
    "onnx": Kind(".onnx", onnx_seeds, change_onnx, read_load),
    "certificate": Kind(".lip", certificate_seeds, change_certificate, read_certificate),
    "sqlite": Kind(".sqlite", sqlite_seeds, change_sqlite, read_sqlite),
    "csv": Kind(".csv", csv_seeds, change_csv, read_csv),
}


def limit() -> None:
    """From now on, so much more memory and no more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main(reader: str, seed: int, count: int, folder: Path) -> None:
    faulthandler.enable()
    warnings.simplefilter("ignore")
    kind = KINDS[reader]
    seeds = kind.seeds()
    path = folder / f"mutant{kind.suffix}"
    for data in seeds:  # loads all that is needed, before memory is limited
        path.write_bytes(data)
        try:
            kind.read(path)
        except lc.LipcertError:
            assert reader == "pt"
    limit()
    rng = random.Random(f"{reader} {seed}")
    counts = {"read": 0, "refused": 0}
    for case in range(count):
        path.write_bytes(kind.change(rng, rng.choice(seeds)))
        signal.alarm(SECONDS)
        try:
            kind.read(path)
            counts["read"] += 1
        except lc.LipcertError as error:
            counts["refused"] += 1
            if not str(error).encode().strip():
                raise ValueError("an error says nothing") from error
        except BaseException:
            print(f"case {case} of seed {seed}, in {path}", file=sys.stderr)
            raise
        finally:
            signal.alarm(0)
    print(json.dumps(counts))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
