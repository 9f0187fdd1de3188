"""Commands and their output in the documents: run again, compared, and on demand rewritten.

Run: python tests/console.py        (rewrites the ``console`` blocks of docs/cli.md with what the commands print now)

The blocks of a page share one empty folder. A line that begins with ``$ `` is a command for the shell, what follows is
its output. When a page is compared, numbers and the widths of tables do not count, since times differ by machine.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "docs" / "cli.md",)
BLOCK = re.compile(r"(```console\n)(.*?)(```)", flags=re.DOTALL)


def rerun(page: Path) -> str:
    """The page with what its commands print now."""
    with tempfile.TemporaryDirectory() as folder:
        return BLOCK.sub(lambda block: block[1] + _block(block[2], Path(folder)) + block[3], page.read_text("utf-8"))


def _block(text: str, folder: Path) -> str:
    commands = [line for line in text.splitlines() if line.startswith("$ ")]
    return "".join(f"{command}\n{_output(command[2:], folder)}" for command in commands)


def _output(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = {"PATH": path, "COLUMNS": "84", "OPENBLAS_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    shell = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        timeout=600,
        check=False,
    )
    lines = [line.rstrip() for line in shell.stdout.rstrip().splitlines()]
    return "".join(f"{line}\n" for line in lines)


def essence(page: str) -> list[str]:
    """The words of the console blocks: no numbers, no spaces, no lines of tables."""
    page = re.sub(r"\b[0-9a-f]{12,64}\b", "", page)  # digests: decompositions round differently on other processors
    text = "\n".join(block[1] for block in BLOCK.findall(page))
    return re.sub(r"[-+]?\d[\d.,]*(?:e[-+]?\d+)?|[\s│┃━─┏┓┗┛┡┩┳╇┴└┘├┤┼]", " ", text).split()


if __name__ == "__main__":
    for document in PAGES:
        document.write_text(rerun(document), encoding="utf-8")
        print(document)
