"""The command line: what it prints, its exit codes, and what it says to wrong use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from command import NETWORK, Command, Outcome, silent
from lipcert.cli import main
from lipcert.cli.methods import LADDER
from lipcert.methods.method import Candidate, Method, Problem
from lipcert.questions.certify import OWN
from lipcert.show.wording import upward


def same(value: float) -> Any:
    """A number computed twice: BLAS may differ in the last bits, by where in memory its arguments lie."""
    return pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("name", OWN)
def test_bound_is_what_certify_says(lipcert: Command, name: str) -> None:
    record = lipcert.json("bound", "model.npz", "--center", "0.1,-0.2,0.3", "--radius", "0.5", "--method", name)
    ball = lc.Ball([0.1, -0.2, 0.3], 0.5)
    certificate = lc.certify(NETWORK, ball, OWN[name]())
    assert record["bound"] == same(certificate.bound)
    assert record["lower"] == same(lc.lower_bound(NETWORK, ball, points=certificate.witness).value)
    assert record["ratio"] == record["bound"] / record["lower"]
    assert ball.contains(np.array(record["lower_point"]))
    assert record["method"]["name"] == type(certificate.method).__name__
    assert record["region"] == {"kind": "ball", "center": [0.1, -0.2, 0.3], "radius": 0.5, "clip": None}
    assert record["network"]["digest"] == NETWORK.digest
    assert record["network"]["sizes"] == [3, 6, 5, 3]
    assert record["network"]["activations"] == ["tanh", "tanh"]
    assert record["seconds"] > 0
    assert record["verified"] is certificate.verified


@pytest.mark.parametrize(
    ("options", "region"),
    [
        ((), lc.Everywhere()),
        (("--center", "zeros", "--radius", "0"), lc.Ball(np.zeros(3), 0.0)),
        (("--center", "-1,0,1e-1", "--radius", "2"), lc.Ball([-1.0, 0.0, 0.1], 2.0)),
        (("--center", "zeros", "--radius", "1", "--clip", "0", "1"), lc.Ball(np.zeros(3), 1.0, clip=(0, 1))),
        (("--box", "-1", "0,1,2"), lc.Box([-1.0, -1.0, -1.0], [0.0, 1.0, 2.0])),
        (("--box", "zeros", "0.5"), lc.Box(np.zeros(3), np.full(3, 0.5))),
    ],
)
def test_regions(lipcert: Command, options: tuple[str, ...], region: lc.Ball | lc.Box | lc.Everywhere) -> None:
    record = lipcert.json("bound", "model.npz", *options, "--method", "scalar")
    assert record["lower"] == same(lc.lower_bound(NETWORK, region).value)
    assert record["bound"] == same(lc.certify(NETWORK, region, lc.Scalar()).bound)


def test_parts(lipcert: Command) -> None:
    ball, options = lc.Ball(np.zeros(3), 0.5), ("--center", "zeros", "--radius", "0.5", "--method", "scalar")
    one = lipcert.json("bound", "model.npz", *options, "--outputs", "1")
    assert one["bound"] == same(lc.certify(NETWORK, ball, lc.Scalar(), outputs=[1]).bound)
    assert one["lower"] == same(lc.lower_bound(NETWORK.select(outputs=[1]), ball).value)
    part = ("--layers", "1:2", "--inputs", "0,3", "--outputs", "4")
    inner = lipcert.json("bound", "model.npz", *options, *part, "--certificate", "c.json")
    expected = lc.certify(NETWORK, ball, lc.Scalar(), layers=(1, 2), inputs=[0, 3], outputs=[4])
    assert (inner["bound"], inner["lower"]) == (same(expected.bound), None)
    assert inner["part"] == {"layers": [1, 2], "inputs": [0, 3], "outputs": [4]}
    said = lipcert("verify", "c.json", "model.npz").words
    assert "for the values x, y that layer 1 puts out for any two inputs" in said
    assert "x and y differing in coordinates 0, 3 only, up to what layer 2 computes before its activation" in said


def test_the_table_for_people(lipcert: Command) -> None:
    outcome = lipcert("bound", "model.npz", "--center", "zeros", "--radius", "0.5", "--method", "closed-form")
    assert (outcome.code, outcome.err) == (0, "")
    rows = dict(line.rstrip().split("  ", 1) for line in outcome.out.strip().split("\n"))
    certificate = lc.certify(NETWORK, lc.Ball(np.zeros(3), 0.5), lc.ClosedForm())
    assert certificate.bound <= float(rows["bound"]) < certificate.bound * 1.00001
    assert float(rows["lower bound"]) <= lc.lower_bound(NETWORK, certificate.region).value
    assert rows["region"].strip() == "ball of radius 0.5 around [0, …]"
    assert rows["network"].strip() == "3 → 6 → 5 → 3, tanh"
    assert list(rows) == ["bound", "lower bound", "ratio", "method", "region", "network", "seconds", "verified"]


def test_activation_on_the_command_line(lipcert: Command) -> None:
    silent(NETWORK)
    said = lipcert.json("bound", "silent.npz", "--activation", "tanh", "--method", "scalar")
    read = lipcert.json("bound", "model.npz", "--method", "scalar")
    assert said.pop("bound") == same(read.pop("bound"))
    assert said | {"seconds": 0} == read | {"seconds": 0}
    mixed = lipcert.json("bound", "silent.npz", "--activation", "hardtanh(-1,1),leaky_relu(0.2)")
    assert mixed["network"]["activations"] == ["hardtanh", "leaky_relu"]


def test_a_method_that_finds_nothing_and_one_with_a_bug(lipcert: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hopeless(Method):
        def solve(self, problem: Problem) -> Candidate:
            return Candidate(np.inf, ())

    class Buggy(Method):
        def solve(self, problem: Problem) -> Candidate:
            raise ZeroDivisionError

    monkeypatch.setattr("lipcert.cli.parsing.OWN", {"hopeless": Hopeless, "buggy": Buggy})
    outcome = lipcert("bound", "model.npz", "--method", "hopeless", "--json")
    assert (outcome.code, outcome.out) == (1, "")
    assert "found no finite bound" in outcome.err
    with pytest.raises(ZeroDivisionError):  # not dressed up as wrong use
        main(["bound", "model.npz", "--method", "buggy"])


def test_demo(lipcert: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LADDER, "joint", lc.Joint(seconds=0.3))  # less time than it has for readers
    monkeypatch.setitem(LADDER, "split", lc.Split(lc.Joint(seconds=0.3), seconds=1.0))
    outcome = lipcert("demo", "--save", "demo.npz")
    assert (outcome.code, outcome.err) == (0, "")
    rows = {line.split()[1]: line for line in outcome.out.split("\n") if line.startswith("│")}
    assert set(LADDER) <= set(rows)
    numbers = {name: [float(cell or "nan") for cell in map(str.strip, rows[name].split("│")[2:6])] for name in LADDER}
    trivial, lower = float(rows["trivial"].split("│")[2]), float(rows["lower"].split("│")[3])
    for name, (everywhere, local, times, _) in numbers.items():
        assert lower <= local
        assert name == "split" or local < everywhere < trivial
        assert times == pytest.approx(local / lower, rel=0.01)
    region = ("--center", "0.4,1.8,-0.5,-1.3,0.9", "--radius", "1")
    record = lipcert.json("bound", "demo.npz", *region, "--method", "scalar", "--no-lower-bound")
    assert upward(record["bound"], 4) == f"{numbers['scalar'][1]:.4g}"


def test_help_and_version(lipcert: Command) -> None:
    assert lipcert().code == 2
    assert lipcert("--version") == Outcome(0, f"lipcert {lc.__version__}\n", "")


def test_exact_meets_the_lower_bound(lipcert: Command) -> None:
    silent(NETWORK)
    where = ("--activation", "relu", "--center", "0.1,-0.2,0.3", "--radius", "0.2")
    record = lipcert.json("bound", "silent.npz", *where, "--exact", "--seconds", "30")
    assert record["bound"] <= 1.002 * record["lower"]
    assert record["method"]["seconds"] == 30.0


def test_a_certificate_is_saved_and_verified(lipcert: Command) -> None:
    silent(NETWORK)
    options = ("--center", "zeros", "--radius", "0.5", "--method", "scalar", "--no-lower-bound")
    made = lipcert.json("bound", "model.npz", *options, "--certificate", "c.json")
    assert made["verified"]
    found = lipcert.json("verify", "c.json", "model.npz")
    assert found["proved"] is True
    assert found["bound"] == made["bound"]
    assert found["derived"] <= found["bound"]
    assert found["region"] == made["region"]
    assert found["network"] == NETWORK.digest
    outcome = lipcert("verify", "c.json", "silent.npz", "--activation", "tanh")
    assert (outcome.code, outcome.err) == (0, "")
    said = " ".join(outcome.out.split())
    assert said.startswith("Proved: for any two inputs x, y in the ball of radius 0.5 around [0, 0, 0] ‖f(x) - f(y)‖₂")
    assert f"≤ {upward(made['bound'])} · ‖x - y‖₂ where f is the real-number function of the float64 weights in" in said
    assert NETWORK.digest in said


def test_what_verify_refuses(lipcert: Command) -> None:
    silent(NETWORK)
    options = ("--center", "zeros", "--radius", "0.5", "--method", "scalar", "--no-lower-bound")
    lipcert.json("bound", "model.npz", *options, "--certificate", "c.json")
    outcome = lipcert("verify", "c.json", "silent.npz", "--activation", "relu")
    assert (outcome.code, outcome.out) == (1, "")
    assert "about another network" in outcome.err
    outcome = lipcert("verify", "c.json", "silent.npz", "--activation", "relu", "--json")
    assert outcome.code == 1
    assert json.loads(outcome.out)["proved"] is False
    assert "about another network" in json.loads(outcome.out)["reason"]
    text = Path("c.json").read_text(encoding="utf-8")
    Path("edited.json").write_text(text.replace('"seconds": ', '"seconds": 1'), encoding="utf-8")
    for arguments, message in (
        (("edited.json", "model.npz"), "does not match its checksum"),
        (("none.json", "model.npz"), "none.json: no such file"),
        (("c.json",), "Missing argument 'MODEL'"),
    ):
        outcome = lipcert("verify", *arguments)
        assert (outcome.code, outcome.out) == (2, ""), arguments
        assert message in " ".join(outcome.err.replace("│", " ").split())
    outcome = lipcert("bound", "model.npz", *options, "--certificate", "nowhere/c.json")
    assert outcome.code == 2
    assert "cannot be written" in outcome.err


UNITS = (0.1, 2.0, 0.5)
SCALE = ",".join(map(str, UNITS))


def test_bound_in_units(lipcert: Command) -> None:
    ball = ("--center", "0,1,2", "--radius", "1", "--norm", "linf", "--input-scale", SCALE)
    norms = ("--input-norm", "linf", "--output-norm", "l1")
    record = lipcert.json("bound", "model.npz", *ball, *norms, "--method", "scalar", "--certificate", "bound.json")
    units = lc.LInf(scale=UNITS)
    region = lc.Ball([0.0, 1.0, 2.0], 1.0, norm=units)
    expected = lc.certify(NETWORK, region, lc.Scalar(), input_norm=units, output_norm="l1").bound
    assert record["bound"] == expected >= record["lower"]
    assert record["norms"] == {"input": {"name": "linf", "scale": list(UNITS)}, "output": {"name": "l1"}}
    told = lipcert("verify", "bound.json", "model.npz")
    assert told.code == 0
    assert "‖f(x) - f(y)‖₁ ≤" in told.out
    assert "‖x - y‖∞" in told.out
    assert "norms" not in lipcert.json("bound", "model.npz", "--method", "closed-form")
    shown = lipcert("bound", "model.npz", *ball, *norms, "--method", "closed-form")
    assert "from ℓ∞ in units of (0.1, 2, 0.5) to ℓ1" in shown.out


# wrong use: exit code 2, nothing printed, nothing written, and a message that says what to do


CASES = [
    ("bound nothing.npz", "nothing.npz does not exist"),
    ("bound model.pkl", "has the suffix '.pkl'; networks are read from"),
    ("bound silent.npz", "--activation relu"),
    ("bound silent.npz --activation rleu", "unknown activation 'rleu'; known are"),
    ("bound model.npz --activation relu", "model.npz says which activations it has"),
    ("bound model.npz --center zeros", "--center needs --radius"),
    ("bound model.npz --radius 1", "--center is missing"),
    ("bound model.npz --center zeros --radius 1 --box 0 1", "--box describes the whole region"),
    ("bound model.npz --center a,b,c --radius 1", "--center must be numbers separated by commas"),
    ("bound model.npz --center broken.npy --radius 1", "--center: broken.npy is not a NumPy file"),
    ("bound model.npz --center wide.npy --radius 1", "holds 2 points; say which, from 0, as in wide.npy:7"),
    ("bound model.npz --center data.npz:6 --radius 1", "there is no point 6; the file holds 6 points"),
    ("bound model.npz --center zeros --radius 1 --clip 1 0", "--clip 1 0: the limits are swapped"),
    ("bound model.npz --method exact", "unknown method 'exact'; known are closed-form,"),
    ("bound model.npz --inputs a", "--inputs must be whole numbers separated by commas"),
    ("bound model.npz --layers 1-2", "--layers must be P:I, as in 2:5; got '1-2'"),
    ("bound model.npz --exact --method joint", "leave out --method"),
    ("bound model.npz --input-norm l7", "--input-norm must be one of l1, l2, linf"),
    ("bound model.npz --input-scale a", "--input-scale must be numbers separated by commas"),
    ("bound model.npz --norm linf", "--clip and --norm describe a ball"),
    ("demo --save model.npz", "--save must name a new file"),
    ("reach model.npz", "bounded region"),
    ("sweep model.npz --center zeros", "Missing option '--radii'"),
    ("sweep model.npz --center zeros --radii 1 --plot curve.gif", "--plot must name a .png, .pdf or .svg file"),
    ("robust model.npz data.npz --radii 1 OUT --workers 2 --dask x", "give one of them"),
    ("robust model.npz data.npz OUT", "--radii must say how large the balls are"),
    ("robust model.npz data.npz OUT --search --points all", "--points must be a number or a range"),
    ("reproduce table9 --out x", "table9"),
    ("report model.npz -o r.html", "model.npz is not a certificate file"),
    ("report model.npz -o model.npz", "must be an .html file"),
]


@pytest.mark.parametrize(("line", "message"), CASES, ids=[line for line, _ in CASES])
def test_wrong_use_is_exit_code_2_and_a_message(lipcert: Command, line: str, message: str) -> None:
    silent(NETWORK)
    Path("broken.npy").write_bytes(b"not an array")
    np.save("wide.npy", np.ones((2, 3)))
    before = set(Path().iterdir())
    outcome = lipcert(*line.replace("OUT", "--out a.sqlite").split())
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.words
    assert set(Path().iterdir()) == before
