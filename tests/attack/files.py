"""Certificate files with changed text: reading and verifying refuse them, or the bound holds."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from attack.draw import leaky, plain, region, some
from attack.log import Log
from attack.points import steepest
from lipcert.files.documents import checksum
from lipcert.proof.certificate import Certificate
from lipcert.proof.hints import Part


def files(rng: np.random.Generator, log: Log) -> None:
    """One file, several mutants of it, with a checksum that fits or not."""
    d = int(rng.integers(1, 3))
    net = plain(rng, (d, int(rng.integers(1, 4)), int(rng.integers(1, 4)), 1), some(rng, "relu", "tanh", leaky(-0.5)))
    where = region(rng, d)
    how = some(rng, "lc.Scalar()", "lc.Split(lc.ClosedForm(), np.inf, 0.0, pieces=20)")
    cert = log.ask(f"lc.certify(net, region, {how})", net=net, region=where)
    if cert is None:
        return
    witness = steepest(net, where, rng, 6)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bound.json"
        cert.save(path)
        text = path.read_text(encoding="utf-8")
    for _ in range(8):
        found = log.ask("loaded(content)", content=_mutant(rng, text), loaded=loaded)
        if found is None:
            continue
        bound = log.ask("lc.verify(net, cert)", net=net, cert=found)
        if bound is not None and found.part == Part((0, net.depth)):
            log.bound(bound, witness if _same(found, cert) else steepest(net, found.region, rng, 6))


def loaded(content: bytes) -> Certificate:
    """The certificate in a file with that content."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bound.json"
        path.write_bytes(content)
        return Certificate.load(path)


def _same(one: Certificate, two: Certificate) -> bool:
    return all(
        np.array_equal(getattr(one.region, name, 0), getattr(two.region, name, 0))
        for name in ("center", "radius", "lower", "upper")
    )


def _mutant(rng: np.random.Generator, text: str) -> bytes:
    if rng.random() < 0.3:  # bytes, whatever they are
        data = bytearray(text.encode())
        for _ in range(int(rng.integers(1, 6))):
            data[int(rng.integers(len(data)))] = int(rng.integers(256))
        return bytes(data)
    document = json.loads(text)
    content = document["content"]
    for _ in range(int(rng.integers(1, 4))):
        _change(rng, content)
    with suppress(ValueError):  # what is no number has no checksum, and the reader has to see it first
        document["sha256"] = checksum(content)
    return json.dumps(document).encode()


def _change(rng: np.random.Generator, value: Any) -> None:
    """One field somewhere in a document becomes something else."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = keys[int(rng.integers(len(keys)))]
        if isinstance(value[key], (dict, list)) and rng.random() < 0.9:
            value = value[key]
            continue
        value[key] = _other(rng, value[key])
        return


def _other(rng: np.random.Generator, old: Any) -> Any:
    if isinstance(old, bool) or old is None:
        return some(rng, True, False, None, 0, [])
    if isinstance(old, int):
        return some(rng, old + 1, old - 1, -old, 2**31 - 1, 2**70, 10**400, 0.5, float("nan"), str(old))
    if isinstance(old, float) and rng.random() < 0.8:
        return old * float(some(rng, 0.5, -1.0, 1e300, 1e-300, 0.0, 1.0 + 2.0**-52))
    if isinstance(old, float):
        return some(rng, 1e308, float("inf"), str(old), 10**400)
    if isinstance(old, str):
        return some(rng, old[:-1], old + "0", "", 7, old.upper())
    return some(rng, [], {}, None, old * 2 if isinstance(old, list) else 1)
