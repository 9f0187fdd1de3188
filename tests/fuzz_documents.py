"""Documents that are not what was saved: bytes changed, or fields changed under a checksum that fits."""

from __future__ import annotations

import hashlib
import json
import math
import random
import struct
from typing import Any

from fuzz_bytes import NUMBERS, TEXTS
from lipcert.files.documents import FORMAT, VERSION


def signed(content: Any, kind: str = "bound") -> dict[str, Any]:
    """A document whose checksum is right, as an attacker would write it."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return {"format": FORMAT, "version": VERSION, "kind": kind, "sha256": checksum, "content": content}


SPARE: list[Any] = [*NUMBERS, *TEXTS, None, True, 10**400, 0.5, 1e308, [], {}, [0], [[]], [[0.5]], "Linear", "\ud800"]


def _flip(rng: random.Random, number: float) -> float:
    """A number with one bit changed, if that leaves it finite."""
    bits = struct.unpack("<Q", struct.pack("<d", number))[0] ^ (1 << rng.randrange(64))
    (changed,) = struct.unpack("<d", struct.pack("<Q", bits))
    return float(changed) if math.isfinite(changed) else number


def _place(rng: random.Random, content: Any) -> tuple[Any, Any]:
    """A group or a list somewhere in a document, and a key or an index of it; deep places as likely as shallow ones."""
    node = content
    while True:
        key = rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
        if not isinstance(node[key], (dict, list)) or not node[key] or rng.random() < 0.1:
            return node, key
        node = node[key]


def rewritten(rng: random.Random, content: Any) -> Any:
    """Some values of the document replaced by others, lists shortened, fields swapped; to be signed afresh."""
    content = json.loads(json.dumps(content))
    for _ in range(rng.choice([1, 1, 2, 4])):
        if not content:
            break
        node, key = _place(rng, content)
        kind = rng.randrange(5)
        if kind == 0:
            node[key] = rng.choice(SPARE)
        elif kind == 1 and isinstance(node, list):
            del node[key]
        elif kind == 2:
            other, place = _place(rng, content)
            node[key] = json.loads(json.dumps(other[place]))
        elif kind == 3 and isinstance(node[key], float):
            node[key] = _flip(rng, node[key])
        elif key == "bound" and isinstance(node[key], float):
            node[key] *= 1.0 - 10.0 ** rng.uniform(-9, 0)
        elif isinstance(node[key], (int, float)) and not isinstance(node[key], bool):
            node[key] = rng.choice([node[key] + 1, -node[key], node[key] * 2, 0])
    return content
