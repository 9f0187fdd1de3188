"""Reports in a real browser: tables sort, figures show, nothing is fetched, phones and printers get along."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from browser import CHROMIUM, Tab, browser
from lipcert.model.arrays import Array
from lipcert.show.report import write
from reports import NETWORK, save_campaign, save_certificates, save_study

pytest.importorskip("matplotlib")
if CHROMIUM is None:
    pytest.skip("chromium is not installed", allow_module_level=True)

DESKTOP, PHONE = 1280, 390


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    sources = [*save_certificates(folder), save_campaign(folder / "run.sqlite"), save_study(folder / "quick")]
    return write(sources, folder / "report.html", models={"model.npz": NETWORK}).path


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("profile") / "empty") as opened:
        yield opened


def column(tab: Tab, table: int, cell: int) -> list[str]:
    rows = f"[...document.querySelectorAll('table')[{table}].tBodies[0].rows]"
    values: list[str] = tab.evaluate(f"{rows}.map(row => row.cells[{cell}].textContent)")
    return values


def sorts(tab: Tab, table: int) -> list[str]:
    heads = f"[...document.querySelectorAll('table')[{table}].tHead.rows[0].cells]"
    found: list[str] = tab.evaluate(f"{heads}.map(head => head.getAttribute('aria-sort'))")
    return found


def button(table: int, cell: int) -> str:
    return f"document.querySelectorAll('table')[{table}].tHead.rows[0].cells[{cell}].querySelector('button')"


def colours(image: Array) -> int:
    """How many colours a picture has."""
    bits = np.rint(255.0 * image[..., :3]).astype(int)
    return len(np.unique(bits @ [65536, 256, 1]))


def test_a_click_sorts_and_a_second_click_turns_it_around(tab: Tab, report: Path) -> None:
    tab.open(report, DESKTOP)
    before = [float(bound) for bound in column(tab, 0, 1)]
    assert before != sorted(before)
    tab.click(button(0, 1))
    assert [float(bound) for bound in column(tab, 0, 1)] == sorted(before)
    assert sorts(tab, 0) == ["none", "ascending", *["none"] * 7]
    assert column(tab, 0, 0) == ["radius0.1.json", "radius0.5.json", "radius1.json"]  # whole rows move
    tab.click(button(0, 1))
    assert [float(bound) for bound in column(tab, 0, 1)] == sorted(before, reverse=True)
    assert sorts(tab, 0)[1] == "descending"
    tab.click(button(0, 0))
    assert sorts(tab, 0)[:2] == ["ascending", "none"]


def test_the_keyboard_sorts_too(tab: Tab, report: Path) -> None:
    tab.open(report, DESKTOP)
    tab.evaluate(f"{button(0, 1)}.focus()")
    tab.press_enter()
    assert column(tab, 0, 0) == ["radius0.1.json", "radius0.5.json", "radius1.json"]
    assert sorts(tab, 0)[1] == "ascending"


def test_numbers_sort_as_numbers_and_empty_cells_stay_last(tab: Tab, report: Path) -> None:
    tab.open(report, DESKTOP)
    tables = "[...document.querySelectorAll('table')]"
    captions = tab.evaluate(f"{tables}.map(table => table.parentElement.getAttribute('aria-label'))")
    whole = captions.index("table1.csv")
    cells = f"[...document.querySelectorAll('table')[{whole}].tHead.rows[0].cells]"
    heads = tab.evaluate(f"{cells}.map(cell => cell.textContent)")
    value, width = heads.index("value"), heads.index("width")
    tab.click(button(whole, width))
    assert column(tab, whole, width) == ["10", "10", "10", "100", "100"]
    tab.click(button(whole, value))
    assert column(tab, whole, value) == ["1.2346", "2.5", "88.5", "99", ""]
    tab.click(button(whole, value))
    assert column(tab, whole, value) == ["99", "88.5", "2.5", "1.2346", ""]


def test_long_tables_can_be_searched(tab: Tab, report: Path) -> None:
    tab.open(report, DESKTOP)
    table = "document.querySelector('details table')"
    tab.click("document.querySelector('details summary')")
    assert tab.evaluate("document.querySelector('details').open")
    assert tab.evaluate(f"{table}.tBodies[0].rows.length") == 36
    tab.click("document.querySelector('.filter input')")
    tab.type("scalar")
    visible = f"[...{table}.tBodies[0].rows].filter(row => row.offsetHeight)"
    shown = tab.evaluate(f"{visible}.map(row => row.cells[1].textContent)")
    assert shown == ["Scalar"] * 18


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
def test_figures_show_and_the_page_fits(tab: Tab, report: Path, tmp_path: Path, width: int) -> None:
    from matplotlib.image import imread

    tab.open(report, width)
    sizes = tab.evaluate("[...document.images].map(i => [i.naturalWidth, i.clientWidth, i.clientHeight])")
    assert len(sizes) == 2
    assert all(natural > 0 and wide > 200 and high > 50 for natural, wide, high in sizes)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.evaluate("[...document.querySelectorAll('details')].forEach(d => d.open = true)")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    boxes = "[...document.querySelectorAll('.scroll')]"
    assert tab.evaluate(f"{boxes}.some(box => box.scrollWidth > box.clientWidth)")  # what is wide scrolls on its own
    tab.screenshot(tmp_path / "page.png")
    image = imread(tmp_path / "page.png")
    assert image.shape[0] > 2000
    assert colours(image) > 100  # not blank
    top = tab.evaluate("document.images[0].getBoundingClientRect().top + scrollY")
    figure = image[int(top) : int(top) + sizes[0][2]]
    assert colours(figure) > 20


def test_nothing_is_fetched_and_nothing_is_amiss(tab: Tab, report: Path) -> None:
    tab.open(report, DESKTOP)
    assert {address.split(":")[0] for address in tab.fetched()} == {"file", "data"}
    assert tab.complaints() == []


def test_the_policy_keeps_a_page_from_fetching(tab: Tab, report: Path) -> None:
    tab.open(report, DESKTOP)
    tab.evaluate("document.body.append(Object.assign(new Image(), {src: 'http://localhost:9/x.png'}))")
    script = "Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'})"
    tab.evaluate(f"document.body.append({script})")
    assert tab.evaluate("window.ran") is None
    assert any("Content Security Policy" in complaint for complaint in tab.complaints())


def test_it_prints(tab: Tab, report: Path, tmp_path: Path) -> None:
    tab.open(report, DESKTOP)
    tab.pdf(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    tab.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert tab.evaluate("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
        assert tab.evaluate("getComputedStyle(document.querySelector('.filter')).display") == "none"
    finally:
        tab.call("Emulation.setEmulatedMedia", media="")
