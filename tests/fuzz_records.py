"""Mutants of certificates, of results of campaigns, and of tables of points."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np

import lipcert as lc
from fuzz_arrays import W
from fuzz_bytes import mangled
from fuzz_documents import rewritten, signed
from lipcert.files.codec import encode
from lipcert.questions.campaign import store
from lipcert.questions.campaign.data import read_points

# certificates


def certificate_seeds() -> list[bytes]:
    net = lc.Network.from_weights(W, activation="tanh")
    files = []
    for region, method in (
        (lc.Ball(np.zeros(3), 0.5, clip=(-1, 1)), lc.Scalar()),
        (lc.Box(np.zeros(3), np.ones(3)), lc.ClosedForm()),
        (lc.Ball(np.zeros(3), 0.5), lc.Split(method=lc.ClosedForm(), seconds=np.inf, pieces=30)),
    ):
        made = lc.certify(net, region, method)
        files.append(json.dumps(signed(encode(lc.Certificate, made))).encode())
    return files


def change_certificate(rng: random.Random, data: bytes) -> bytes:
    if rng.random() < 0.2:
        return mangled(rng, data)
    return json.dumps(signed(rewritten(rng, json.loads(data)["content"]))).encode()


def read_certificate(path: Path) -> str:
    return repr(lc.Certificate.load(path))


# results of campaigns


def sqlite_seeds() -> list[bytes]:
    path = Path(f"/proc/self/cwd/fuzz-{random.random()}.sqlite")
    made = store.Store(path, create=True)
    made.agree({"points": "p", "clip": None, "attack": True, "curvature": None, "enclosures": "()"})
    made.add([store.Row("n" * 64, k, 0.1, "m", 0, k % 2, 1.0, 2.0, 0.1, 0.1) for k in range(40)], 1.0)
    made.close()
    data = path.read_bytes()
    path.unlink()
    return [data]


STATEMENTS = ["UPDATE about SET value = '['", "DROP TABLE about", "CREATE VIEW v AS SELECT 1", "SELECT 1", "VACUUM"]
LONG = ["UPDATE about SET value = '" + "[" * 100_000 + "'", "UPDATE batches SET seconds = 'x'", "SELECT 1"]


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
        rng.choice(STATEMENTS),
        rng.choice(LONG),
        f"PRAGMA user_version = {rng.choice([1, 2, 3, 3, 3, 3, 4])}",
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
    from lipcert.questions.campaign.results import export, summarise

    results = lc.Results.read(path)
    for suffix in (".csv", ".json"):
        export(results, path.with_suffix(suffix))
    return summarise(results)


# points


def csv_seeds() -> list[bytes]:
    plain = "\n".join(f"{k},{k + 0.5},-1e-3" for k in range(5))
    named = f"a,b,c,label\n{plain.replace('-1e-3', '-1e-3,1')}\n"
    return [plain.encode(), named.encode(), b"\xef\xbb\xbf" + plain.encode()]


ODD_CELLS = [*b'nan inf 1e999 " 1_0 0x10 \xd9\xa3 \0 \r'.split(b" "), b"", b"9" * 400, b"a" * 200_000]


def change_csv(rng: random.Random, data: bytes) -> bytes:
    parts = data.split(b",")
    for _ in range(rng.choice([0, 1, 3])):
        parts[rng.randrange(len(parts))] = rng.choice(ODD_CELLS)
    data = b",".join(parts)
    return mangled(rng, data) if rng.random() < 0.6 else data


def read_csv(path: Path) -> Any:
    return read_points(path, lc.Network.from_weights(W))
