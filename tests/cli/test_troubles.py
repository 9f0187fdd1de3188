"""What can go wrong around an answer: files, pipes, memory, interrupts. The answer is printed, then a sentence."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

import lipcert as lc
from command import BALL, NETWORK, Command
from lipcert.answers.certificate import Certificate
from lipcert.errors import Interrupted
from networks import named, spread


def refused(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("work began before the files were looked at")


def replaced(monkeypatch: pytest.MonkeyPatch, name: str, by: Any) -> None:
    """Verbs hide the modules of the same name, which are replaced in here."""
    module, _, attribute = name.rpartition(".")
    monkeypatch.setattr(importlib.import_module(module), attribute, by)


BEFORE: dict[str, tuple[str, str]] = {
    "certificate": ("lipcert.cli.answers.certify", "bound model.npz --certificate FILE"),
    "plot of a sweep": ("lipcert.cli.answers.bounds", "sweep model.npz --center zeros --radii 1 --plot FILE.png"),
    "plot of a comparison": ("lipcert.cli.methods.run_all", "compare model.npz --plot FILE.svg"),
    "export": ("lipcert.cli.campaigns.Results", "results run.sqlite --export FILE.csv"),
    "network": ("lipcert.cli.methods.lower_bound", "demo --save FILE.npz"),
    "folder": ("lipcert.reproduce.tables.run", "reproduce table1 --quick --out FILE"),
    "report": ("lipcert.show.report.writing.examine", "report model.npz -o FILE.html"),
}


@pytest.mark.parametrize("case", BEFORE)
def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    lipcert: Command, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    work, line = BEFORE[case]
    replaced(monkeypatch, work, refused)
    Path("file").write_text("", encoding="utf-8")
    outcome = lipcert(*(part.replace("FILE", "file/inside") for part in line.split()))
    assert (outcome.code, outcome.out) == (2, "")
    assert "inside" in outcome.err
    assert "Traceback" not in outcome.err
    if case in ("certificate", "report", "plot of a sweep"):
        name = {"certificate": "out", "report": "out.html", "plot of a sweep": "out.png"}[case]
        Path(name).mkdir()
        outcome = lipcert(*(part.replace("FILE", "out") for part in line.split()))
        assert outcome.code == 2
        assert f"{name} cannot be written: Is a directory" in outcome.err


def test_a_certificate_does_not_replace_the_model(lipcert: Command) -> None:
    outcome = lipcert("bound", "model.npz", "--certificate", "model.npz")
    assert outcome.code == 2
    assert "would overwrite its source" in outcome.err
    assert lipcert("bound", "model.npz", "--method", "scalar").code == 0


def full(*_: Any) -> NoReturn:
    raise OSError(28, "No space left on device")


AFTER: dict[str, tuple[str, ...]] = {
    "certificate": ("bound", "model.npz", *BALL, "--method", "scalar", "--certificate", "out.json"),
    "sweep": ("sweep", "model.npz", "--center", "zeros", "--radii", "1", "--method", "scalar", "--plot", "out.png"),
    "comparison": ("compare", "model.npz", *BALL, "--methods", "scalar", "--plot", "out.png"),
}


@pytest.mark.parametrize(("case", "as_json"), spread(2, named(*AFTER), {"table": False, "json": True}))
def test_a_full_disk_does_not_cost_the_answer(
    lipcert: Command, monkeypatch: pytest.MonkeyPatch, case: str, as_json: bool
) -> None:
    monkeypatch.setattr(os, "fsync", full)
    outcome = lipcert(*AFTER[case], *(["--json"] if as_json else []))
    assert outcome.code == 2
    assert "cannot be written: No space left on device" in outcome.err
    assert "bound" in (json.loads(outcome.out) if as_json and case == "certificate" else outcome.out)
    assert not [name for name in os.listdir() if name.startswith(("out", ".out"))]


def test_an_interrupt_shows_and_saves_the_best_so_far(lipcert: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    proved = lc.certify(NETWORK, lc.Ball([0.1, -0.2, 0.3], 0.5), lc.ClosedForm())

    def stopped(*_: Any, **__: Any) -> NoReturn:
        raise Interrupted(proved)

    replaced(monkeypatch, "lipcert.cli.answers.certify", stopped)
    replaced(monkeypatch, "lipcert.cli.answers.lower_bound_of", refused)
    outcome = lipcert("bound", "model.npz", *BALL, "--json", "--certificate", "c.json")
    assert outcome.code == 130
    assert json.loads(outcome.out)["bound"] == proved.bound
    assert outcome.err == "lipcert: interrupted; this is the best answer so far\n"
    assert Certificate.load("c.json").bound == proved.bound


@pytest.mark.parametrize(
    ("error", "function", "code", "told"),
    [
        (Interrupted(), "certify", 130, "lipcert: interrupted\n"),
        (KeyboardInterrupt(), "certify", 130, "lipcert: interrupted\n"),
        (KeyboardInterrupt(), "lower_bound_of", 130, "interrupted"),
        (MemoryError(), "certify", 1, "memory ran out"),
        (lc.ProofFailed("no such luck"), "lower_bound_of", 1, "no such luck"),
    ],
)
def test_an_end_before_the_answer_is_complete(
    lipcert: Command, monkeypatch: pytest.MonkeyPatch, error: BaseException, function: str, code: int, told: str
) -> None:
    """If the lower bound is what is missing, the bound is printed all the same."""

    def fail(*_: Any, **__: Any) -> NoReturn:
        raise error

    replaced(monkeypatch, f"lipcert.cli.answers.{function}", fail)
    outcome = lipcert("bound", "model.npz", *BALL, "--method", "scalar", "--json")
    assert outcome.code == code
    assert told in outcome.err
    assert json.loads(outcome.out)["verified"] if function == "lower_bound_of" else outcome.out == ""


@pytest.mark.parametrize(
    "arguments", [["--help"], ["inspect", "model.npz"], ["bound", "model.npz", "--method", "scalar", "--json"]]
)
def test_nobody_reads_the_output(lipcert: Command, arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        ended = subprocess.run([sys.executable, "-m", "lipcert", *arguments], stdout=closed, stderr=subprocess.PIPE)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_standard_output_on_a_full_disk(lipcert: Command) -> None:
    command = [sys.executable, "-m", "lipcert", "bound", "model.npz", "--method", "scalar"]
    with open("/dev/full", "wb") as device:
        ended = subprocess.run(command, stdout=device, stderr=subprocess.PIPE)
    assert (ended.returncode, ended.stderr) == (2, b"lipcert: No space left on device\n")


def test_a_script_that_asks_again_when_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import numpy as np, lipcert as lc\n"
        "from lipcert.questions.compare import compare\n"
        "net = lc.Network.from_weights([np.eye(3), np.ones((2, 3))], activation='relu')\n"
        "compare(net, None, ['trivial'])\n",
        encoding="utf-8",
    )
    ended = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.count("Traceback") == 1
    assert 'put what it does under the line if __name__ == "__main__":' in ended.stderr


def test_places_that_are_no_regular_files(tmp_path: Path) -> None:
    """They are written to, not replaced."""
    made = lc.certify(NETWORK, lc.Ball(np.zeros(3), 0.5), lc.ClosedForm())
    os.mkfifo(tmp_path / "queue")
    reader = subprocess.Popen(["cat", "queue"], cwd=tmp_path, stdout=subprocess.PIPE)
    made.save(tmp_path / "queue")
    text, _ = reader.communicate()
    assert json.loads(text)["content"]["bound"] == made.bound
    assert os.listdir(tmp_path) == ["queue"]
    assert (tmp_path / "queue").is_fifo()


SAVED: dict[str, tuple[str, str, str]] = {
    "reach": (f"reach model.npz {' '.join(BALL)}", "lower", "Proved: for every input x in the ball of radius 0.5"),
    "sweep": ("sweep model.npz --center zeros --radii 1,0.5", "rows", "Proved: for any two inputs"),
    "sensitivity": (f"sensitivity model.npz {' '.join(BALL)}", "matrix", "changes by at most"),
}


@pytest.mark.parametrize("case", SAVED)
def test_saved_answers_are_verified(lipcert: Command, case: str) -> None:
    line, key, words = SAVED[case]
    made = lipcert.json(*line.split(), "--method", "closed-form", "--certificate", "a.json")
    found = lipcert.json("verify", "a.json", "model.npz")
    assert found["proved"] is True
    if case == "sweep":
        assert [row["bound"] for row in found[key]] == [row["bound"] for row in made[key]]
    else:
        assert found[key] == made[key] == lipcert.json("verify", "--exact", "a.json", "model.npz")[key]
        assert "Derived in ball arithmetic" in lipcert("verify", "--exact", "a.json", "model.npz").out
    assert words in lipcert("verify", "a.json", "model.npz").words


def test_a_saved_radius_is_verified(lipcert: Command) -> None:
    found = lc.certified_radius(NETWORK, [0.1, -0.2, 0.3])
    found.save("p.json")
    assert lipcert.json("verify", "p.json", "model.npz")["radius"] == found.radius
    assert f"is of class {found.label}" in lipcert("verify", "p.json", "model.npz").out
