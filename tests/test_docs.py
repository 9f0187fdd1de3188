"""The documentation: pages are in the menu, links and anchors lead somewhere, the site builds, commands print that."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

import console
from lipcert.cli import app

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("**/*.md"))
SETTINGS = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_the_menu_has_every_page_once() -> None:
    menu = re.findall(r"^ +- .*: (\S+\.md)$", SETTINGS, flags=re.MULTILINE)
    assert sorted(menu) == [page.name for page in sorted(DOCS.glob("*.md"))]


def anchors(page: Path) -> set[str]:
    """The anchors of the headings, as the site makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    plain = [
        re.sub(r"[^\w\s-]", "", heading.encode("ascii", "ignore").decode()).strip().lower() for heading in headings
    ]
    return {re.sub(r"[-\s]+", "-", heading) for heading in plain}


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("*.md")], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", page.read_text(encoding="utf-8")):
        file = page.parent / target if target else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}#{anchor}"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed")
    outcome = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    built = (tmp_path / "site" / "api.html").read_text(encoding="utf-8")
    assert "How multipliers are chosen" in built
    assert ":class:" not in built
    for page in (tmp_path / "site").glob("*.html"):
        sources = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)', page.read_text(encoding="utf-8"))
        assert sources == [], f"{page.name} takes things from elsewhere"


def test_every_verb_is_on_the_page_of_the_command_line() -> None:
    verbs = {str(command.name or getattr(command.callback, "__name__", "")) for command in app.registered_commands}
    assert verbs == set(re.findall(r"^## (\S+)$", (DOCS / "cli.md").read_text(encoding="utf-8"), flags=re.MULTILINE))


@pytest.mark.skipif(shutil.which("sh") is None, reason="there is no shell")
@pytest.mark.slow
@pytest.mark.parametrize("page", console.PAGES, ids=lambda page: page.name)
def test_commands_print_what_the_page_says(page: Path) -> None:
    pytest.importorskip("matplotlib")
    written, now = page.read_text(encoding="utf-8"), console.rerun(page)
    assert console.essence(written) == console.essence(now), "python tests/console.py brings the page up to date"


def test_the_comparison_above_can_fail() -> None:
    page = "```console\n$ lipcert bound a.npz\nbound  1.5e-05\nseconds  3\n```\n"
    assert console.essence(page) == ["$", "lipcert", "bound", "a.npz", "bound", "seconds"]
    assert console.essence(page.replace("1.5e-05", "17")) == console.essence(page)
    assert console.essence(page.replace("seconds", "minutes")) != console.essence(page)


FENCES = {"python", "console", "text", "{.python}", "{.python .no-run}"}
"""Python runs (test_frame.py), console prints (above), text is shown; {.python} takes in a script that test_examples.py
runs; no-run needs packages that are not among ours."""


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_every_block_of_code_is_of_a_kind_that_is_tried(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^ *```+ *(\S[^\n]*|)\n(.*?)^ *```+ *$", text, flags=re.MULTILINE | re.DOTALL)
    assert {kind.strip() for kind, _ in blocks} <= FENCES
    for kind, body in blocks:
        if kind == "{.python}":
            (name,) = re.findall(r"examples/(\w+\.py)", body)
            assert (ROOT / "examples" / name).is_file()
            assert len(body.strip().splitlines()) == 1


def _options() -> dict[str, set[str]]:
    """The options of every verb, as the command line itself tells them."""
    group: Any = typer.main.get_command(app)
    return {
        verb: {"--help", *(o for parameter in command.params for o in (*parameter.opts, *parameter.secondary_opts))}
        for verb, command in group.commands.items()
    }


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_commands_in_the_text_have_options_that_exist(page: Path) -> None:
    known = _options()
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for verb, rest in re.findall(r"(?:^ +|^\$ |`)lipcert ([a-z][a-z-]*)([^\n`#]*)", text, flags=re.MULTILINE):
        assert verb in known, f"{page.name}: lipcert {verb}"
        strange = [word for word in re.findall(r"(?<![\w-])(--?[a-z][\w-]*)", rest) if word not in known[verb]]
        assert strange == [], f"{page.name}: lipcert {verb}{rest}"


def missing(table: str) -> list[str]:
    """What a table of rules names that does not exist: tests, functions of the second opinion, words in bold."""
    tests = {
        name
        for path in ROOT.glob("tests/**/test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.strip().splitlines()[2:]]
    found = [cell for row in rows for cell in row if not cell or len(row) != 4]
    for rule, *tried, again in rows:
        found += [name for cell in tried for name in re.findall(r"`(.*?)`", cell) or [rule] if name not in tests]
        module, name = again.strip("`").split(".")
        if not hasattr(importlib.import_module(f"lipcert.audit.{module}"), name):
            found.append(again)
        found += [word for word in re.findall(r"\*\*(.*?)\*\*", rule) if f"\n**{word}" not in SOUNDNESS]
    return found


SOUNDNESS = (DOCS / "soundness.md").read_text(encoding="utf-8")


def test_every_rule_has_its_tests_and_its_second_opinion() -> None:
    (table,) = re.findall(r"<!-- rules: begin -->(.*?)<!-- rules: end -->", SOUNDNESS, flags=re.DOTALL)
    assert len(table.strip().splitlines()) > 20
    assert missing(table) == []
    changed = (
        table.replace("balls.image", "balls.imago").replace("`test_norms`", "").replace("**Output**", "**Outputs**")
    )
    assert set(missing(changed)) == {"`balls.imago`", "**Norms**", "", "Outputs"}
