"""Regions on the command line: points of files, limits that are swapped, help that is true, estimates of a region."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lipcert.cli import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "m.npz", W1=rng.standard_normal((9, 20)), W2=rng.standard_normal((2, 9)), activation="relu")
    np.savez(tmp_path / "test.npz", x=rng.random((3, 4, 5)), y=np.zeros(3, int))
    np.save(tmp_path / "points.npy", rng.random((3, 20)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], text: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(text.split())
    shown = capsys.readouterr()
    return int(ended.value.code or 0), shown.out + shown.err


BOUND = "bound m.npz --radius 0.1 --method closed-form --no-lower-bound"


def test_a_point_of_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = np.load("test.npz")["x"][2].ravel().tolist()
    for how in ("--center test.npz:2",):
        code, said = run(capsys, f"{BOUND} {how} --json")
        assert code == 0
        assert json.loads(said)["region"]["center"] == expected
    assert run(capsys, f"{BOUND} --center points.npy:0")[0] == 0


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("--center test.npz:3", "there is no point 3; the file holds 3 points"),
        ("--center points.npy", "holds 3 points; say which, from 0, as in points.npy:7"),
        ("--center test.npz", "must hold one array, it holds x, y; of a file with x and y"),
        ("--center none.npy:0", "there is no file none.npy"),
        ("--center zeros --clip 1 0", "--clip 1 0: the limits are swapped"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, capsys: pytest.CaptureFixture[str], how: str, words: str) -> None:
    code, said = run(capsys, f"{BOUND} {how}")
    assert code == 2
    assert words in " ".join(said.split())


def test_help_does_not_say_that_what_is_needed_has_a_default(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("reach", "sweep"):
        assert "default region is all inputs" not in run(capsys, f"{verb} --help")[1]
    assert "default region is all inputs" in run(capsys, "bound --help")[1]


def test_a_region_in_inspect(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    near = json.loads(run(capsys, "inspect m.npz --center test.npz:0 --radius 1e-9 --json")[1])
    wide = json.loads(run(capsys, "inspect m.npz --json")[1])
    assert near["layers"][0]["open"] == 0
    assert wide["layers"][0]["open"] is None
    assert "open slopes" in run(capsys, "inspect m.npz --center test.npz:0 --radius 0.1")[1]


def test_a_table_says_what_it_leaves_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run(capsys, "sensitivity m.npz --center zeros --radius 0.1 --method closed-form")
    assert code == 0
    assert "left out: 13 of 20 inputs, those with the smallest bounds, none above" in said
