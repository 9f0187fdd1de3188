"""Certificates on disk: what is written comes back, and nothing else is taken for a certificate."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from fuzz_documents import signed
from lipcert.answers.certificate import Certificate
from lipcert.errors import InvalidInput, UnreadableCertificate
from lipcert.files.codec import FIELDS, LEFT_OUT, encode
from lipcert.model.network import Network
from networks import random_network

CENTER = np.array([0.3, -0.2, 0.9])


def network() -> Network:
    return random_network(5, (3, 5, 4, 2), ["elu", "relu"], gain=2.5)


def certificate() -> Certificate:
    return lc.certify(network(), lc.Ball(CENTER, 0.5), lc.Scalar())


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = certificate()
    target = tmp_path / "c.json"
    made.save(target)
    before = target.read_bytes()

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(*((os, "fsync", fail) if name == "fsync" else (Path, "replace", fail)))
            with pytest.raises(InvalidInput, match=r"c\.json cannot be written: No space left"):
                made.save(target)
        assert target.read_bytes() == before
        assert os.listdir(tmp_path) == ["c.json"]
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            made.save(target)
    assert os.listdir(tmp_path) == ["c.json"]
    assert target.read_bytes() == before


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    made = certificate()
    for bound in (float("inf"), float("nan"), -1.0):
        with pytest.raises(InvalidInput, match="must have a finite bound"):
            replace(made, bound=bound).save(tmp_path / "c.json")
    assert not list(tmp_path.iterdir())


# Files that are not what was saved.


def saved() -> dict[str, Any]:
    return signed(encode(Certificate, certificate()))


def unreadable(path: Path, text: str | bytes, message: str) -> None:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UnreadableCertificate, match=message):
        Certificate.load(path)


def test_files_that_are_no_certificates(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    whole = json.dumps(saved())
    for text, message in (
        (b"", "not a certificate file"),
        (b"\x80\x04\x95", "not a certificate file"),
        (pickle.dumps({"format": "lipcert certificate"}), "not a certificate file"),
        (b"[]", "does not say so in its field 'format'"),
        (b'{"format": "another"}', "does not say so in its field 'format'"),
        (b'{"format": "lipcert certificate"}', "is of version None; this program reads version 5"),
        (b'{"format": "lipcert certificate", "version": 6}', "is of version 6"),
        (b'{"format": "lipcert certificate", "version": true}', "is of version True"),
        (b'{"format": "lipcert certificate", "version": 5}', "the field '(sha256|content)' is missing"),
        (b'{"format": "lipcert certificate", "version": [[1]]}', "is of version list"),
        (whole[: len(whole) // 2], "not a certificate file"),
        (whole + "x", "not a certificate file"),
        ("[" * 100_000 + "]" * 100_000, "not a certificate file"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "not a certificate file"),
        (whole.replace('"version": 5', '"version": 5, "version": 5'), "a field is there twice"),
        (whole.replace('"seconds": ', '"seconds": NaN, "x": '), "contains NaN"),
        (whole.replace('"seconds": ', '"seconds": -Infinity, "x": '), "contains -Infinity"),
        (whole.replace('"seconds": ', '"seconds": 1e999, "x": '), "damaged"),
        (whole.replace('"seconds": ', '"seconds": ' + "9" * 5000 + ', "x": '), "not a certificate file"),
    ):
        unreadable(file, text, message)
    with pytest.raises(UnreadableCertificate, match="no such file"):
        Certificate.load(tmp_path / "nothing.json")
    with pytest.raises(UnreadableCertificate, match="not a certificate file"):
        Certificate.load(tmp_path)


def sapling(**columns: list[float]) -> dict[str, Any]:
    """A tree of one leaf, but for the given columns."""
    plain: dict[str, Any] = {"layer": [-2], "index": [0], "value": [0.0], "child": [0], "bound": 1.0}
    return plain | {name: [] for name in ("void", "neuron", "weight", "second", "passed")} | columns


def sweep(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    """A change of the first sweep."""
    return lambda c: c["sweeps"][0].update(changes)


HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no content": (lambda c: c.clear(), "is missing"),
    "unknown field": (lambda c: c.update(extra=1), "the field 'extra' of content is unknown"),
    "bound as a text": (lambda c: c.update(bound="1.0"), r"content\.bound must be a finite number"),
    "bound negative": (lambda c: c.update(bound=-1.0), "finite bound of at least 0"),
    "digest": (lambda c: c.update(network="abc"), r"content\.network must be a digest"),
    "method that drives a terminal": (lambda c: c.update(method="\x1b[2J"), "can be printed"),
    "part a list": (lambda c: c.update(part=[0, 3]), r"content\.part must be a group of fields"),
    "norm of no size": (lambda c: c["part"]["norms"]["input"].update(scale=0.0), "scale must be a positive number"),
    "region unknown": (lambda c: c.update(region={"kind": "Torus"}), r"content\.region\.kind must be one of"),
    "region without centre": (lambda c: c["region"].pop("center"), "the field 'center' of content.region is missing"),
    "radius negative": (lambda c: c["region"].update(radius=-1.0), "at least 0"),
    "centre a stack": (lambda c: c["region"].update(center=[[0, 0, 0]]), "finite numbers"),
    "box upside down": (
        lambda c: c.update(region={"kind": "Box", "lower": [1, 1, 1], "upper": [0, 0, 0]}),
        "lower must not exceed upper",
    ),
    "giant exponent": (sweep(exponents=[10**9, 0]), "whole number from -1048576"),
    "line of one": (lambda c: c["sweeps"][0]["lines"][0].pop(), "list of length 2"),
    "second order in a row": (
        lambda c: c.update(curved={"slopes": [1.0], "balance": [1.0], "mix": [[1.0]], "weights": [1.0]}),
        r"content\.curved\.slopes must be a matrix of finite numbers",
    ),
    "tree with fractions": (lambda c: c.update(tree=sapling(layer=[-2.5])), "whole numbers"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_with_a_right_checksum(name: str, tmp_path: Path) -> None:
    change, message = HOSTILE[name]
    content = saved()["content"]
    change(content)
    unreadable(tmp_path / "c.json", json.dumps(signed(content)), message)


def test_every_exception_of_the_codec_is_about_a_field_that_exists() -> None:
    ours = [vars(module) for name, module in list(sys.modules.items()) if name.startswith("lipcert.")]
    known = {name: kind for names in ours for name, kind in names.items() if is_dataclass(kind)}
    named = [*(name.split(".") for name in FIELDS), *([kind, name] for kind in LEFT_OUT for name in LEFT_OUT[kind])]
    for kind, name in named:
        assert name in {field.name for field in fields(known[kind])}
    assert LEFT_OUT["Certificate"]["facts"] == ()


def test_each_kind_of_answer_has_its_own_files(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    certificate().save(file)
    with pytest.raises(UnreadableCertificate, match="holds a 'bound', not a reach"):
        lc.Reach.load(file)
    whole = signed(encode(Certificate, certificate()))
    wrong: list[Any] = ["", "Bound", None, 4, [], {}, ["bound"]]
    for kind in wrong:
        file.write_text(json.dumps(whole | {"kind": kind}))
        with pytest.raises(UnreadableCertificate, match="not a bound or a reach or a"):
            lc.load_answer(file)
    del whole["kind"]
    unreadable(file, json.dumps(whole), "the field 'kind' is missing")
    file.write_text(json.dumps(signed([], "sweep")))
    with pytest.raises(UnreadableCertificate, match="a sweep must have rows"):
        lc.load_answer(file)
