"""A wheel by itself: installed into an empty environment, it runs the Python of the README.

Run: python tests/wheel.py dist        (``make dist`` does; it needs the wheels of the core dependencies)
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def snippets(text: str) -> str:
    """The Python blocks of a document, one after the other, but for those that need PyTorch."""
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    return "\n".join(block for block in blocks if "import torch" not in block)


def try_wheel(wheel: Path, folder: Path) -> None:
    """Install the wheel alone and run the README, in a folder from which the sources cannot be seen."""
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", str(ROOT / "constraints.txt"), str(wheel)], check=True)
    script = folder / "readme.py"
    script.write_text(snippets((ROOT / "README.md").read_text(encoding="utf-8")), encoding="utf-8")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for command in ([str(python), "-W", "error", str(script)], [str(python), "-m", "lipcert", "--version"]):
        subprocess.run(command, check=True, cwd=folder, env=clean)
    where = [str(python), "-c", "import lipcert; print(lipcert.__file__)"]
    found = subprocess.run(where, check=True, cwd=folder, env=clean, capture_output=True, text=True).stdout.strip()
    assert found.startswith(str(folder)), found


def main() -> None:
    dist = Path(sys.argv[1])
    (wheel,) = dist.glob("*.whl")
    (_,) = dist.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        try_wheel(wheel.resolve(), Path(folder))
    print(f"{wheel.name} runs the README by itself")


if __name__ == "__main__":
    main()
