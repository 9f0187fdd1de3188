"""The scripts in ``examples/``: each runs, and what it prints makes sense.

Some run in this process, which has loaded their packages already, and those that take long on fewer images.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def printed(name: str, *needs: str) -> str:
    for package in needs:
        pytest.importorskip(package)
    outcome = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
    )
    assert (outcome.returncode, outcome.stderr) == (0, "")
    return outcome.stdout


def printed_here(name: str, capsys: pytest.CaptureFixture[str], *needs: str, **numbers: Any) -> str:
    """The same in this process, with other numbers in the place of the script's own."""
    for package in needs:
        pytest.importorskip(package)
    spec: Any = importlib.util.spec_from_file_location(f"example_{Path(name).stem}", EXAMPLES / name)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert set(numbers) <= set(vars(script))
    vars(script).update(numbers)
    getattr(script, "main", lambda: None)()
    outcome = capsys.readouterr()
    assert outcome.err == ""
    return outcome.out


def rows(text: str, pattern: str) -> list[list[float]]:
    """The numbers of the lines that begin with a pattern."""
    lines = [line for line in text.splitlines() if re.match(pattern, line)]
    return [[float(number) for number in re.findall(r"-?\d+\.?\d*(?:e[+-]?\d+)?", line)] for line in lines]


def test_controller(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed_here("controller.py", capsys, "sklearn")
    (seen,), (proved,) = rows(text, " +seen "), rows(text, " +proved ")
    assert all(one <= other <= 1.05 * one for one, other in zip(seen[:3], proved[:3], strict=True))
    assert proved[3] <= seen[3] < seen[4] <= proved[4]
    assert proved[4] - proved[3] <= 1.05 * (seen[4] - seen[3])
    assert "is enough" in text


def test_classifier(capsys: pytest.CaptureFixture[str]) -> None:
    images = rows(printed_here("classifier.py", capsys, "sklearn", IMAGES=2), r" +\d+ +\d+ +\d+\.")
    assert len(images) == 2
    assert all(plain <= proved <= broken for _, _, proved, plain, broken, _ in images)


@pytest.mark.slow
def test_cnn() -> None:
    text = printed("cnn.py", "torch", "sklearn")
    radii, ((overall,),) = rows(text, r" +0\.\d+ "), rows(text, "global bound")
    assert [row[0] for row in radii] == [0.05, 0.2, 0.5]
    assert all(lower <= bound <= overall for _, bound, lower, *_ in radii)


@pytest.mark.slow
def test_resnet() -> None:
    radii = rows(printed("resnet.py", "torch"), r" +[01]\.\d+ ")
    assert [row[0] for row in radii] == [1.0, 0.3, 0.1, 0.01]
    assert all(bound >= lower for _, lower, bound, *_ in radii)
    assert [row[2] for row in radii] == sorted((row[2] for row in radii), reverse=True)


def test_units() -> None:
    text = printed("units.py").replace("one unit of", "1 unit of")
    ((_, proved),), ((seen, *_),) = rows(text, "proved:"), rows(text, "seen:")
    assert seen <= proved <= 1.3 * seen


def test_pixels(capsys: pytest.CaptureFixture[str]) -> None:
    images = rows(printed_here("pixels.py", capsys, "sklearn"), r" +\d+ +\d+ +\d")
    assert len(images) == 5
    assert all(0.0 < certified <= broken for _, _, certified, broken, _ in images)


def test_own_method() -> None:
    text = printed("own_method.py")
    ((lower,),) = rows(text, "lower bound")
    bounds = {line.split()[0]: float(line.split()[1]) for line in text.splitlines()[1:]}
    assert set(bounds) == {"dominant", "careless", "closed-form", "joint"}
    assert all(lower <= bound for bound in bounds.values())
    assert "enlarged" in next(line for line in text.splitlines() if line.startswith("careless"))


@pytest.mark.slow
def test_train_certified(capsys: pytest.CaptureFixture[str]) -> None:
    """In the same steps the local bound certifies more than norms alone, and both more than plain training."""
    text = printed_here("train_certified.py", capsys, "torch", "sklearn", "matplotlib")
    certified = {name: float(share) for name, share in re.findall(r"(\w+) +epoch 12: .* certified ([0-9.]+)%", text)}
    assert certified["plain"] < certified["norms"] < certified["local"]
    left = {name: float(share) for name, share in re.findall(r"(\w+) +within .* leaves ([0-9.]+)%", text)}
    assert all(certified[name] <= left[name] for name in left)


@pytest.mark.slow
def test_train_contracting(capsys: pytest.CaptureFixture[str]) -> None:
    """The proved contraction falls below one through training, while the torque stays near the law."""
    text = printed_here("train_contracting.py", capsys, "torch")
    before, after = (float(rate) for rate in re.findall(r"at most ([0-9.]+), proved", text))
    assert after < 1.0 < before
    assert float(re.findall(r"steps, ([0-9.]+) N·m away", text)[0]) < 1.0


def test_an_activation_of_ones_own() -> None:
    text = printed("own_activation.py", "flint")
    ((bound, lower),) = re.findall(r"bound: (\S+) \(declared\), at least (\S+)", text)
    assert float(lower) <= float(bound)
    assert "turning points checked by ball arithmetic" in text
    assert "refused: turning_points lacks a point" in text


def test_one_lipschitz(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed_here("one_lipschitz.py", capsys, "torch")
    (proved,), ((low, high),) = (
        re.findall(r"at most (\S+) over all inputs", text),
        re.findall(r"at least (\S+), at most (\S+)", text),
    )
    assert float(proved) <= 1.000001
    assert 1.0 < float(low) <= float(high)


def test_every_example_is_tested() -> None:
    tested = Path(__file__).read_text(encoding="utf-8")
    tested += '"independent_checker.py" is tested in files/test_format.py'
    assert [path.name for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in tested] == []
