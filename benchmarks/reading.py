"""How much there is to read: lines, code, files and numeric constants by package, and the path of one ``certify`` call.

Run: python benchmarks/reading.py
     python benchmarks/reading.py --sources ../older/src/lipcert   (the sizes of another version)
     python benchmarks/reading.py --path                           (the files that a default call enters, in order)
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.append(str(Path(__file__).parent.parent / "tests"))
import architecture

PLAIN = {0, 1, 2, -1, 0.5, 4.0}
"""Numbers that are parts of formulas, not choices."""


def constants(tree: ast.Module) -> int:
    """Numbers that a module gives a name to, without those that formulas consist of."""
    named = [node.value for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) and node.value]
    numbers = [one.value for top in named for one in ast.walk(top) if isinstance(one, ast.Constant)]
    return sum(isinstance(one, int | float) and not isinstance(one, bool) and one not in PLAIN for one in numbers)


def sizes(sources: Path) -> None:
    rows: dict[str, Counter[str]] = {}
    for path in sorted(sources.rglob("*.py")):
        module = architecture.Module(".".join(path.relative_to(sources.parent).with_suffix("").parts), path)
        package = path.relative_to(sources).parts[0].removesuffix(".py")
        row = rows.setdefault(package if package != "__init__" else "lipcert", Counter())
        row["lines"] += len(path.read_text(encoding="utf-8").splitlines())
        row.update(code=module.code, files=1, constants=constants(module.tree))
    rows["together"] = sum(rows.values(), Counter())
    print(f"{'package':14s}{'lines':>8s}{'code':>8s}{'files':>7s}{'constants':>11s}")
    for name, row in rows.items():
        print(f"{name:14s}{row['lines']:8,d}{row['code']:8,d}{row['files']:7d}{row['constants']:11d}")


def path() -> None:
    """The files that ``certify(net, Ball)`` runs functions of, in the order in which each is entered first."""
    import lipcert as lc
    from networks import random_network

    network, ball = random_network(0, (4, 20, 20, 3), "relu"), lc.Ball([0.1, 0.2, 0.3, 0.4], 0.3)
    root, entered = Path(lc.__file__).parent, Counter[str]()
    last = ""

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal last
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(root)):
            name = str(Path(file).relative_to(root))
            entered[name] += name != last
            last = name

    sys.setprofile(watch)
    lc.certify(network, ball)
    sys.setprofile(None)
    print(f"{len(entered)} files, and how often another file called into each:")
    for name, times in entered.items():
        print(f"  {name:40s}{times:8,d}")


def main() -> None:
    parser = argparse.ArgumentParser(description="How much there is to read.")
    parser.add_argument("--sources", type=Path, default=architecture.SOURCES, help="the package's folder")
    parser.add_argument("--path", action="store_true", help="the files of one certify call")
    options = parser.parse_args()
    if options.path:
        path()
    else:
        sizes(options.sources)


if __name__ == "__main__":
    main()
