"""Reports in a real browser: tables sort and are searched, figures show, narrow windows and printers get along."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.show.report import write
from networks import random_network
from reports import NETWORK, save_campaign, save_certificates, save_study

pytest.importorskip("matplotlib")
CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("chromium is not installed", allow_module_level=True)

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking")
HELPERS = """
const table = n => document.querySelectorAll('table')[n];
const column = (n, cell) => [...table(n).tBodies[0].rows].map(row => row.cells[cell].textContent);
const sorts = n => [...table(n).tHead.rows[0].cells].map(head => head.getAttribute('aria-sort'));
const press = (n, cell) => table(n).tHead.rows[0].cells[cell].querySelector('button').click();
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    sources = [*save_certificates(folder), save_campaign(folder / "run.sqlite")]
    wide = random_network(2, (20, 20), "relu")
    lc.sensitivity(wide, lc.Ball(np.zeros(20), 0.1), "closed-form").save(folder / "sensitivity.json")
    write([*sources, folder / "sensitivity.json"], folder / "report.html", models={"model.npz": NETWORK})
    return folder / "report.html"


def run(*arguments: str, folder: Path) -> str:
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={folder / 'profile'}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def evaluated(report: Path, folder: Path, script: str, width: int = 1280) -> Any:
    """What a script returns that runs on the page; for that the page does without its policy."""
    text = re.sub(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>", "", report.read_text(encoding="utf-8"))
    keep = "document.documentElement.dataset.found = JSON.stringify(found)"
    probe = (
        f"<script>addEventListener('load', () => {{{HELPERS} const found = (() => {{{script}}})(); {keep}}})</script>"
    )
    (folder / "probe.html").write_text(text.replace("</body>", f"{probe}</body>"), encoding="utf-8")
    shown = run(f"--window-size={width},900", "--dump-dom", (folder / "probe.html").as_uri(), folder=folder)
    found = re.search(r'data-found="([^"]*)"', shown)
    assert found is not None, shown[:2000]
    return json.loads(html.unescape(found[1]))


def test_a_click_sorts_and_a_second_click_turns_it_around(report: Path, tmp_path: Path) -> None:
    script = """const seen = [];
    for (const cell of [1, 1, 0]) { press(0, cell); seen.push([column(0, 1).map(Number), column(0, 0), sorts(0)]); }
    return seen;"""
    (up, names, rising), (down, _, falling), (_, _, last) = evaluated(report, tmp_path, script)
    assert up == sorted(up) == down[::-1]
    assert rising[:2] == ["none", "ascending"]
    assert len(names) == len(up) > 10
    assert falling[1] == "descending"
    assert last[:2] == ["ascending", "none"]


def test_numbers_sort_as_numbers_and_empty_cells_stay_last(tmp_path: Path) -> None:
    script = """const names = [...document.querySelectorAll('table')].map(one => one.parentElement.ariaLabel);
    const whole = names.indexOf('table1.csv');
    const heads = [...table(whole).tHead.rows[0].cells].map(cell => cell.textContent);
    return ['width', 'value', 'value'].map(name => {
        press(whole, heads.indexOf(name));
        return column(whole, heads.indexOf(name));
    });"""
    assert evaluated(save_study(tmp_path / "quick"), tmp_path, script) == [
        ["10", "10", "10", "100", "100"],
        ["1.235", "2.5", "88.5", "99", ""],
        ["99", "88.5", "2.5", "1.235", ""],
    ]


def test_long_tables_can_be_searched(report: Path, tmp_path: Path) -> None:
    script = """const long = document.querySelector('details'), input = document.querySelector('.filter input');
    long.open = true;
    input.value = '19';
    input.dispatchEvent(new Event('input', {bubbles: true}));
    const rows = [...long.querySelector('table').tBodies[0].rows];
    return [rows.length, rows.filter(row => row.offsetHeight).length,
        rows.filter(row => row.offsetHeight && !row.textContent.includes('19')).length];"""
    rows, shown, others = evaluated(report, tmp_path, script)
    assert 0 < shown < rows == 300
    assert others == 0


@pytest.mark.parametrize("width", [1280, 500])
def test_figures_show_and_the_page_fits(report: Path, tmp_path: Path, width: int) -> None:
    script = """[...document.querySelectorAll('details')].forEach(one => one.open = true);
    const boxes = [...document.querySelectorAll('.scroll')];
    return [[...document.images].map(one => [one.naturalWidth, one.clientWidth, one.clientHeight]),
            document.documentElement.scrollWidth - document.documentElement.clientWidth,
            boxes.some(box => box.scrollWidth > box.clientWidth)];"""
    sizes, over, scrolls = evaluated(report, tmp_path, script, width)
    assert len(sizes) == 2
    assert all(natural > 0 and wide > 200 and high > 50 for natural, wide, high in sizes)
    assert over <= 0
    assert scrolls or width > 1000  # what is wide scrolls on its own


def test_it_prints(report: Path, tmp_path: Path) -> None:
    run(f"--print-to-pdf={tmp_path / 'page.pdf'}", report.as_uri(), folder=tmp_path)
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
