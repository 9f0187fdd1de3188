"""The format as docs/certificate-format.md, the schema and a checker of its own state it.

``python tests/files/test_format.py`` writes the schema again, from the types that the codec reads and writes.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.files import codec, documents
from lipcert.questions.verify import _KINDS
from networks import random_network

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "src" / "lipcert" / "files" / "certificate.schema.json"
PAGE = (ROOT / "docs" / "certificate-format.md").read_text(encoding="utf-8")
CENTER = [0.3, -0.2, 0.9]
BALL = lc.Ball(CENTER, 0.3)


class Schema:
    """A JSON schema (draft 2020-12) of what the codec writes."""

    def __init__(self) -> None:
        self.classes: dict[str, Any] = {}

    def document(self) -> dict[str, Any]:
        contents = [
            {"properties": {"kind": {"const": name}, "content": self.of(kind)}} for name, kind in _KINDS.items()
        ]
        fixed: dict[str, Any] = {"format": {"const": documents.FORMAT}, "version": {"const": documents.VERSION}}
        fields = {
            **fixed,
            "kind": {"enum": [*_KINDS]},
            "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            "content": {},
        }
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "A lipcert certificate",
            **self._object(fields),
            "oneOf": contents,
            "$defs": dict(sorted(self.classes.items())),
        }

    def of(self, kind: Any) -> dict[str, Any]:
        if isinstance(kind, codec.Maybe):
            return {"anyOf": [{"type": "null"}, self.of(kind.kind)]}
        if isinstance(kind, codec.Numbers):
            number: dict[str, Any] = {"type": "integer" if kind.whole else "number"}
            if kind.axes is None:
                return {"anyOf": [number, {"type": "array", "items": number}]}
            for _ in range(kind.axes):
                number = {"type": "array", "items": number}
            return number
        if isinstance(kind, list):
            return {"type": "array", "items": self.of(kind[0])}
        if isinstance(kind, tuple):
            return {"type": "array", "prefixItems": [*map(self.of, kind)], "minItems": len(kind), "maxItems": len(kind)}
        if isinstance(kind, range):
            return {"type": "integer", "minimum": kind[0], "maximum": kind[-1]}
        if isinstance(kind, set):
            return {"enum": sorted(kind)}
        if isinstance(kind, re.Pattern):
            return {"type": "string", "pattern": f"^{kind.pattern}$"}
        if kind in (float, bool):
            return {"type": {float: "number", bool: "boolean"}[kind]}
        if kind in (str, object):
            return {"type": "string"}
        members = codec.FAMILIES.get(kind, (kind,))
        named = [self._class(member, len(members) > 1) for member in members]
        return named[0] if len(named) == 1 else {"oneOf": named}

    def _class(self, kind: type, named: bool) -> dict[str, Any]:
        name, named = kind.__name__, named or any(kind in family for family in codec.FAMILIES.values())
        if name not in self.classes:
            self.classes[name] = {}
            fields = {field: self.of(part) for field, part in codec._entries(kind).items()}
            self.classes[name] = self._object(({"kind": {"const": name}} if named else {}) | fields)
        return {"$ref": f"#/$defs/{name}"}

    @staticmethod
    def _object(fields: dict[str, Any]) -> dict[str, Any]:
        return {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}


def written(schema: dict[str, Any]) -> str:
    """One class a line."""
    lines = [f'"{name}": {json.dumps(part)}' for name, part in schema.items() if name != "$defs"]
    classes = ",\n".join(f'  "{name}": {json.dumps(part)}' for name, part in schema["$defs"].items())
    return "{\n" + ",\n".join([*lines, f'"$defs": {{\n{classes}\n}}']) + "\n}\n"


TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "null": type(None),
}


def valid(schema: dict[str, Any], value: Any, root: dict[str, Any]) -> bool:
    """Whether a value is what a schema says; only the words that ours uses."""
    if "$ref" in schema:
        return valid(root["$defs"][schema["$ref"].rpartition("/")[2]], value, root)
    kind = schema.get("type")
    if kind == "number" and (isinstance(value, bool) or not isinstance(value, (int, float))):
        return False
    if kind in TYPES and (not isinstance(value, TYPES[kind]) or (kind == "integer" and isinstance(value, bool))):
        return False
    fields, items = schema.get("properties", {}), schema.get("prefixItems", [])
    if fields and not all(valid(part, value[name], root) for name, part in fields.items() if name in value):
        return False
    if "items" in schema and not all(valid(schema["items"], item, root) for item in value):
        return False
    if kind == "object" and not set(schema["required"]) == set(value) == set(fields):
        return False
    if items and (len(value) != len(items) or not all(map(valid, items, value, [root] * len(items)))):
        return False
    if kind == "integer" and not schema.get("minimum", -np.inf) <= value <= schema.get("maximum", np.inf):
        return False
    return (
        value in schema.get("enum", [value])
        and value == schema.get("const", value)
        and ("pattern" not in schema or re.search(schema["pattern"], value) is not None)
        and ("anyOf" not in schema or any(valid(part, value, root) for part in schema["anyOf"]))
        and ("oneOf" not in schema or sum(valid(part, value, root) for part in schema["oneOf"]) == 1)
    )


RELU, TANH = random_network(3, (3, 6, 5, 3), gain=2.0), random_network(4, (3, 6, 5, 3), "tanh", gain=2.0)
PIECES = lc.Split(lc.ClosedForm(), np.inf, pieces=12)


def answers() -> list[Any]:
    """Every kind of answer, with hints of every class."""
    norms: dict[str, Any] = {"input_norm": lc.LInf([1.0, 2.0, 0.5]), "output_norm": lc.L1()}
    return [
        lc.certify(RELU, lc.Everywhere(), lc.Scalar()),
        lc.certify(RELU, lc.Ball(CENTER, 0.3, clip=(-1, 1)), PIECES),
        lc.certify(RELU, lc.Box([-1.0] * 3, [1.0] * 3), lc.ClosedForm(), **norms),
        lc.certify(RELU, BALL, lc.ClosedForm(), inputs=[0, 2], outputs=[1]),
        lc.certify(TANH, lc.Ball(CENTER, 0.05)),
        *(lc.reach(network, BALL, method) for network in (RELU, TANH) for method in (None, PIECES)),
        lc.sensitivity(RELU, BALL, PIECES, outputs=[2]),
        *(lc.certified_radius(network, CENTER) for network in (RELU, TANH)),
        lc.sweep(RELU, CENTER, [0.3, 0.1], lc.ClosedForm()),
        lc.tube(TANH, BALL, 2, lc.ClosedForm()),
        lc.contraction(TANH, BALL, lc.ClosedForm(), shape=np.eye(3)),
        lc.invariant_ellipsoid(random_network(4, (3, 5, 3), "tanh", gain=0.5), seconds=0.5),
        lc.evaluation_error(TANH, BALL, seconds=0.0),
    ]


def test_real_files_are_valid_and_forged_ones_are_not(tmp_path: Path) -> None:
    schema, seen = json.loads(SCHEMA.read_text(encoding="utf-8")), set()
    for answer in answers():
        lc.save_answer(answer, tmp_path / "a.json")
        document = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
        assert valid(schema, document, schema)
        seen.add(document["kind"])
        content = document["content"] if isinstance(document["content"], dict) else document["content"][0]
        for name in content:
            without = {key: value for key, value in content.items() if key != name}
            for forged in (without, content | {name: {"odd": 1}}, content | {f"{name}_": 1}):
                told = forged if isinstance(document["content"], dict) else [forged]
                assert not valid(schema, document | {"content": told}, schema)
    assert seen == set(_KINDS)


def test_the_schema_is_what_the_codec_reads_and_the_page_names_every_field() -> None:
    schema = Schema().document()
    assert SCHEMA.read_text(encoding="utf-8") == written(schema), "run python tests/files/test_format.py"
    for name, kind in schema["$defs"].items():
        for field in kind["properties"]:
            assert f"`{field}`" in PAGE, f"{name}.{field}"


def checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("independent_checker", ROOT / "examples" / "independent_checker.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_independent_checker_is_short_and_alone() -> None:
    text = (ROOT / "examples" / "independent_checker.py").read_text(encoding="utf-8")
    assert text.count("\n") <= 150
    imported = {line.split()[1] for line in text.splitlines() if line.startswith(("import ", "from "))}
    assert imported <= {"numpy", *sys.stdlib_module_names}


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "tanh", "sigmoid", "softplus", "identity"])
def test_the_independent_checker_agrees_and_refuses(
    activation: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, file, stored = checker(), tmp_path / "a.json", tmp_path / "network.npz"
    deep = 27 if activation == "relu" else 3  # back-substitution goes back 24 layers
    network = random_network(5, (3, *([6] * deep), 2), activation, gain=2.0)
    network.save(stored)
    for region, method in ((BALL, lc.Joint(iterations=5)), (lc.Everywhere(), lc.ClosedForm())):
        certificate = lc.certify(network, region, method)
        certificate.save(file)
        script.main(str(file), str(stored))
        claimed, found = re.findall(r"(?:claimed|derived) (\S+?),?(?:\n|\s)", capsys.readouterr().out)
        assert float(claimed) == certificate.bound
        assert float(found) == pytest.approx(certificate.bound, rel=1e-8)
    (sweep,) = certificate.sweeps
    halves = tuple(0.4 * T for T in sweep.multipliers)
    for forged, why in (
        (replace(certificate, bound=0.999 * certificate.bound), "prove no such bound"),
        (replace(certificate, sweeps=(replace(sweep, multipliers=halves),)), "are too small|prove no such bound"),
        (replace(certificate, network="0" * 64), "about another network"),
    ):
        if activation == "identity" and "small" in why:
            continue
        forged.save(file)
        with pytest.raises(SystemExit, match=why):
            script.main(str(file), str(stored))
    file.write_text(file.read_text(encoding="utf-8").replace(" ", "", 1).replace('"seconds": ', '"seconds": 1'))
    with pytest.raises(SystemExit, match="damaged"):
        script.main(str(file), str(stored))


if __name__ == "__main__":
    SCHEMA.write_text(written(Schema().document()), encoding="utf-8")
