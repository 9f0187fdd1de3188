"""Mutants of any bytes, and archives of changed members."""

from __future__ import annotations

import io
import random
import warnings
import zipfile

NUMBERS = [0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**24, 2**30, 2**31 - 1, 2**31, 2**32 - 1]
NUMBERS += [2**40, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -1, -2, -5, -128, -(2**31), -(2**63)]
TEXTS = ["", "x", "W1", "y", "relu", "-1", "1e999", "nan", "é", "\0", "\x1b[2J", "a" * 300, "0", "ai.onnx", "９"]


def mangled(rng: random.Random, data: bytes) -> bytes:
    """Some bytes changed, cut out, repeated, moved, or numbers put in."""
    content = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 30])):
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
