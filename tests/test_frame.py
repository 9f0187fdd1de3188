"""What holds the project together: a light import, the installed command, documents that are true."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import lipcert as lc

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "onnx", "onnxruntime", "matplotlib", "cvxpy", "dask", "distributed", "sklearn")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=120)


def test_import_loads_no_optional_package() -> None:
    code = f"import lipcert, lipcert.cli, sys; print(*[name for name in {HEAVY} if name in sys.modules])"
    outcome = run("-c", code)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.strip() == ""


def test_the_installed_command() -> None:
    command = Path(sys.executable).with_name("lipcert")
    outcome = subprocess.run([command, "--version"], capture_output=True, text=True, check=False, timeout=120)
    assert (outcome.returncode, outcome.stdout.strip()) == (0, f"lipcert {lc.__version__}")


def test_errors_reach_the_shell_without_a_traceback() -> None:
    outcome = run("-m", "lipcert", "bound", "nothing.npz")
    assert outcome.returncode == 2
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("lipcert: nothing.npz does not exist")
    assert "Traceback" not in outcome.stderr


def test_core_dependencies_are_few() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.split(r"[<>=~! ]", line)[0] for line in project["dependencies"]}
    assert names == {"numpy", "scipy", "typer", "rich", "threadpoolctl"}


def test_constraints_pin_every_line() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in pins)
    assert "torch==2.13.0" in pins


def test_every_public_name_exists() -> None:
    assert len(set(lc.__all__)) == len(lc.__all__)  # ruff keeps them in order
    assert all(hasattr(lc, name) for name in lc.__all__)


def snippets(document: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), flags=re.DOTALL)


DOCUMENTS = ["README.md", "CONTRIBUTING.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if snippets(name)])
def test_python_in_the_documents_runs(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lc.Auto.__init__, "__defaults__", (1.0, None))  # a second where readers have ten
    assert lc.Auto() == lc.Auto(seconds=1.0)
    code = snippets(document)
    if any("import torch" in snippet for snippet in code):
        pytest.importorskip("torch")
    names: dict[str, object] = {}
    for snippet in code:
        quick = snippet.replace("seconds=3)", "seconds=1)")  # and a second where they have three
        exec(compile(quick, document, "exec"), names)


def test_versions_agree() -> None:
    assert f"version: {lc.__version__}" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## [{lc.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
