"""Documents that are not what was saved: bytes changed, or fields changed under a checksum that fits."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from typing import Any

import numpy as np

from fuzz_bytes import NUMBERS, TEXTS, mangled


def signed(content: Any, kind: str = "bound") -> dict[str, Any]:
    """A document whose checksum is right, as an attacker would write it."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return {"format": "lipcert certificate", "version": 4, "kind": kind, "sha256": checksum, "content": content}


mutated = mangled
SPARE: list[Any] = [*NUMBERS, *TEXTS, None, True, 10**400, 0.5, 1e308, [], {}, [0], [[]]]
SPARE += ["0x1.0p-30", "AAAAAAAA8D8=", "linear", "\ud800"]


def _flip(rng: random.Random, array: dict[str, Any]) -> None:
    """Change one bit of an array, and what it says of itself in decimal notation."""
    try:
        raw = bytearray(base64.b64decode(array["float64"]))
    except ValueError:  # an earlier change put another text there
        return
    if raw:
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    array["float64"] = base64.b64encode(bytes(raw)).decode()
    if "decimal" in array and len(raw) % 8 == 0:
        array["decimal"] = ", ".join(map(repr, np.frombuffer(bytes(raw), dtype="<f8").tolist()))


def rewritten(rng: random.Random, content: dict[str, Any]) -> dict[str, Any]:
    """Some values of the document replaced by others, lists shortened, fields swapped; to be signed afresh."""
    content = json.loads(json.dumps(content))
    for _ in range(rng.choice([1, 1, 2, 4])):
        places: list[tuple[Any, Any]] = []

        def walk(node: Any, places: list[tuple[Any, Any]] = places) -> None:
            for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
                places.append((node, key))
                walk(node[key])

        walk(content)
        node, key = rng.choice(places)
        kind = rng.randrange(5)
        if kind == 0:
            node[key] = rng.choice(SPARE)
        elif kind == 1 and isinstance(node, list):
            del node[key]
        elif kind == 2:
            other, place = rng.choice(places)
            node[key] = json.loads(json.dumps(other[place]))
        elif kind == 3 and isinstance(node[key], dict) and isinstance(node[key].get("float64"), str):
            _flip(rng, node[key])
        elif isinstance(node[key], (int, float)) and not isinstance(node[key], bool):
            node[key] = rng.choice([node[key] + 1, -node[key], node[key] * 2, 0])
        elif key == "bound" and isinstance(node[key], str) and "bound_decimal" in node:
            lowered = float.fromhex(node[key]) * (1.0 - 10.0 ** rng.uniform(-9, 0)) if "p" in node[key] else 1.0
            node["bound"], node["bound_decimal"] = lowered.hex(), repr(lowered)
    return content
