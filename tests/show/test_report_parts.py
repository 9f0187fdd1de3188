"""What reports say of files: whether claims hold, where bounds hold, and which folders are studies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lipcert as lc
from lipcert.errors import UnreadableResults
from lipcert.show.report.examined import Examined, examine, in_words, region_of, standing, verdict
from lipcert.show.report.studies import study_sections
from networks import random_network

NETWORK = random_network(1, (2, 4, 2), "relu")


def test_a_claim_is_proved_again_or_refuted(tmp_path: Path) -> None:
    certificate = lc.certify(NETWORK, lc.Ball(np.zeros(2), 0.5), lc.ClosedForm())
    certificate.save(tmp_path / "true.json")
    replace(certificate, bound=0.5 * certificate.bound).save(tmp_path / "false.json")
    paths = [tmp_path / "true.json", tmp_path / "false.json"]
    good, bad = examine(paths, {"mine": NETWORK})
    assert (good.proved, standing(good), verdict(good, True).standing) == (True, "yes", "good")
    assert (bad.proved, standing(bad), verdict(bad, True).standing) == (False, "no", "bad")
    assert "1 of 2" in in_words([good, bad], models=True)
    assert "Not provable: 1" in in_words([good, bad], models=True)
    (other,) = examine(paths[:1], {"other": random_network(2, (2, 4, 2), "relu")})
    assert (other.network, standing(other)) == (None, "not checked")
    assert verdict(Examined(paths[0], certificate), False).standing == "open"


def test_a_row_is_believed_no_farther_than_its_certificate() -> None:
    (row,) = lc.sweep(NETWORK, np.zeros(2), [0.5], lc.ClosedForm())

    def radius(claimed: float) -> float:
        region = region_of(replace(row, radius=claimed))
        assert isinstance(region, lc.Ball)
        return float(region.radius)

    assert [radius(r) for r in (0.1, 0.5, 7.0, -1.0)] == [0.1, 0.5, 0.5, 0.5]


def test_a_folder_is_a_study_only_if_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(UnreadableResults, match=r"no run\.json"):
        study_sections(tmp_path)
    part = {"title": "t", "summary": "s", "csv": ["../secret.csv"], "markdown": "t.md", "figures": []}
    run = {"kind": "lipcert reproduce", "format": 1, "sections": {"table1": part}}
    (tmp_path / "secret.csv").write_text("a\n1\n")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(run))
    with pytest.raises(UnreadableResults):  # a file outside the folder
        study_sections(folder)
