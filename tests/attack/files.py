"""Certificate files with changed text: reading and verifying refuse them, or the bound holds."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

import numpy as np

from attack.draw import leaky, plain, region, some
from attack.log import Log
from attack.points import steepest
from fuzz_documents import mutated, rewritten, signed
from lipcert.answers.certificate import Certificate
from lipcert.kernel.hints import Part


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
    """Bytes changed, or fields changed under a checksum that fits."""
    chance = random.Random(int(rng.integers(2**31)))
    if chance.random() < 0.3:
        return mutated(chance, text.encode())
    document = json.loads(text)
    return json.dumps(signed(rewritten(chance, document["content"]), document["kind"])).encode()
