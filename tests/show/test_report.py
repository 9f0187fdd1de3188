"""Reports: what the page says, that it is one file, and that wrong sources are refused."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.questions.tables import Cell, Table
from lipcert.show.report import write
from lipcert.show.report.page import Section, page
from networks import random_network
from reports import CENTER, NETWORK, Reader, save_campaign, save_certificates, save_study

pytest.importorskip("matplotlib")


def page_of(folder: Path, *sources: Path, **options: Any) -> Path:
    write(sources, folder / "report.html", **options)
    return folder / "report.html"


def test_certificates_without_the_model_are_claims(tmp_path: Path) -> None:
    (path,) = save_certificates(tmp_path, (0.1,))
    read = Reader(page_of(tmp_path, path))
    bound = lc.Certificate.load(path).bound
    assert "Not checked: no model was given" in read.text
    assert "Proved again" not in read.text
    assert NETWORK.digest in read.text
    assert "ball of radius 0.1 around [0.1, -0.2, 0.3]" in read.text
    shown = re.search(r"‖f\(x\) − f\(y\)‖₂ ≤ ([\d.]+) · ‖x − y‖₂", read.text)
    assert shown is not None
    assert bound <= float(shown[1]) <= 1.0001 * bound


def test_certificates_with_the_model_are_proved_and_measured(tmp_path: Path) -> None:
    paths = save_certificates(tmp_path)
    other = random_network(5, (3, 6, 2), "relu")
    lc.certify(other, lc.Ball(CENTER, 0.3), lc.ClosedForm()).save(tmp_path / "other.json")
    sources = [*paths, tmp_path / "other.json"]
    written = write(sources, tmp_path / "report.html", models={"model.npz": NETWORK}, title="All & sundry")
    assert [item.proved for item in written] == [True, True, True, False]
    read = Reader(tmp_path / "report.html")
    assert "Proved again for this report: 3 of 4." in read.text
    assert "none of the models given has this digest" in read.text
    assert "model.npz: 3 → 8 ×2 → 3, tanh" in read.text
    assert read.count("article") == 4
    assert read.text.startswith("All & sundry")
    lower = lc.lower_bound(NETWORK, lc.Ball(CENTER, 0.5)).value
    shown = [float(text) for text in re.findall(r"([\d.]+) ≤ true constant", read.text)]
    assert len(shown) == 3
    assert any((1.0 - 1e-5) * lower <= one <= lower for one in shown)


def test_a_witness_is_a_hint_and_may_be_nonsense(tmp_path: Path) -> None:
    certificate = lc.certify(NETWORK, lc.Ball(CENTER, 0.2), lc.ClosedForm())
    for witness in (np.zeros(7), np.full(3, 1e200), CENTER):
        replace(certificate, witness=witness).save(tmp_path / "c.json")
        (item,) = write([tmp_path / "c.json"], tmp_path / "r.html", models={"m": NETWORK})
        assert item.proved
        assert item.lower is not None
        assert 0.0 < item.lower.value <= certificate.bound


def test_a_campaign(tmp_path: Path) -> None:
    source = save_campaign(tmp_path / "run.sqlite")
    read = Reader(page_of(tmp_path, source))
    rows = lc.Results.read(source).rows
    share = sum(row.robust for row in rows if row.radius == 0.05 and row.method == "ClosedForm()") / 9
    assert "9 points" in read.text
    assert ["ClosedForm", "0.05", "9", "88.89%", f"{100 * share:.2f}%"] in [row[:5] for row in read.rows]
    assert read.count("img") == 1
    assert read.count("table") == 1
    assert "Second-order bounds were not used" not in read.text
    bare, methods = tmp_path / "bare.sqlite", [lc.Scalar(), lc.Scalar(tolerance=0.01)]
    lc.campaign(NETWORK, CENTER[None], radii=[0.1], out=bare, methods=methods, curvature=False)
    read = Reader(page_of(tmp_path, bare))
    assert "Second-order bounds were not used" in read.text
    assert "Scalar(tolerance=0.01)" in {row[0] for row in read.rows}  # methods that share a name keep their options


def test_a_reproduction(tmp_path: Path) -> None:
    read = Reader(save_study(tmp_path / "quick", machine=EVIL))
    assert "Table 1: ReLU" in read.text
    assert "Ours is smaller in 2 of 2 cells." in read.text
    assert "Estimate against depth" in read.text
    assert (read.count("img"), read.count("script")) == (1, 1)  # the figure; what the machine says is escaped
    assert ["1.235", "0.1235"] in [row[-2:] for row in read.rows]  # rounded up
    assert any(">10min" in row for row in read.rows)
    assert ["pairs", "0.1234", "0.9999"] in read.rows  # radii are rounded down


EVIL = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>\ud800"


def test_everything_is_escaped(tmp_path: Path) -> None:
    table = Table(EVIL, [EVIL], [[Cell(EVIL)]])
    out = tmp_path / "page.html"
    out.write_text(page(EVIL, [Section(EVIL, EVIL, [EVIL, table])], EVIL), encoding="utf-8")
    read = Reader(out)
    assert read.count("script") == 1
    assert read.count("img") == 0
    assert "onerror" not in {name for _, attributes in read.tags for name in attributes}
    assert read.text.count("<script>alert(1)</script>") >= 6


def test_the_page_is_one_file_that_asks_for_nothing(tmp_path: Path) -> None:
    sources = [*save_certificates(tmp_path), save_campaign(tmp_path / "run.sqlite", 2)]
    read = Reader(page_of(tmp_path, *sources))
    addresses = [a[key] for _, a in read.tags for key in ("src", "href") if key in a]
    assert all(address and address.startswith(("#", "data:image/svg+xml;base64,")) for address in addresses)
    assert not re.search(r"@import|url\(", read.source)
    (policy,) = [a["content"] for _, a in read.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]


def test_without_matplotlib_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = save_campaign(tmp_path / "run.sqlite", 2)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(lc.InvalidInput, match=r"pip install 'lipcert\[plot\]'"):
        write([source], tmp_path / "report.html")
