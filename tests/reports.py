"""Sources for reports: certificates, a campaign, and a folder as ``lipcert reproduce`` writes it; and a reader."""

from __future__ import annotations

import csv
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

import lipcert as lc
from lipcert.reproduce.documents import write_page
from networks import random_network

NETWORK = random_network(4, (3, 8, 8, 3), "tanh", gain=2.0)
CENTER = np.array([0.1, -0.2, 0.3])


def save_model(path: Path) -> Path:
    NETWORK.save(path)
    return path


def save_certificates(folder: Path, radii: tuple[float, ...] = (1.0, 0.1, 0.5)) -> list[Path]:
    paths = [folder / f"radius{radius:g}.json" for radius in radii]
    for path, radius in zip(paths, radii, strict=True):
        lc.certify(NETWORK, lc.Ball(CENTER, radius), lc.ClosedForm()).save(path)
    return paths


def save_campaign(path: Path, points: int = 9) -> Path:
    x = np.random.default_rng(1).uniform(0.1, 0.9, (points, 3))
    y = NETWORK(x).argmax(axis=1)
    y[0] = (y[0] + 1) % 3  # one point that is classified wrongly
    methods = [lc.ClosedForm(), lc.Scalar()]
    lc.campaign(NETWORK, x, y, radii=[0.05, 0.5], out=path, methods=methods, clip=(0, 1), attack=True)
    return path


SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 20"><rect width="40" height="20" fill="#345"/></svg>'
COLUMNS = (
    *("table", "width", "layers", "radius", "method", "origin", "paper", "value", "difference", "agrees"),
    *("paper_seconds", "seconds", "status", "lower", "best_paper", "ours", "ratio"),
)
CELLS: list[dict[str, str]] = [
    {"width": "10", "method": "trivial", "origin": "published", "paper": "88.5", "value": "88.5", "agrees": "yes"},
    {"width": "10", "method": "geolip", "origin": "published", "paper": ">10min", "status": "timeout"},
    {"width": "10", "method": "joint", "origin": "lipcert", "value": "1.23456", "seconds": "0.5"},
    {"width": "100", "method": "trivial", "origin": "published", "paper": "99.5", "value": "99", "agrees": "no"},
    {"width": "100", "method": "joint", "origin": "lipcert", "value": "2.5", "seconds": "1.5"},
]
SAME = {"table": "1a", "layers": "5", "radius": "1", "lower": "1", "best_paper": "10", "ratio": "0.123456"}


def save_study(folder: Path, machine: str = "some machine") -> Path:
    """A folder with a page as ``lipcert reproduce`` writes it; returns the page."""
    (folder / "figures").mkdir(parents=True)
    (folder / "figures" / "table1_depth.svg").write_text(SVG, encoding="utf-8")
    with (folder / "table1.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, COLUMNS, restval="")
        writer.writeheader()
        for cell in CELLS:
            ours = "1.23456" if cell["width"] == "10" else "2.5"
            writer.writerow({"status": "ok", **SAME, "ours": ours, **cell})
    (folder / "radii.csv").write_text("rule,attacked,mean\npairs,0.123456789012,0.99999999\n", encoding="utf-8")
    section = {
        "title": "Table 1: ReLU",
        "summary": "Ours is smaller in 2 of 2 cells.",
        "csv": ["table1.csv", "radii.csv"],
        "figures": [{"file": "figures/table1_depth.svg", "caption": "Estimate against depth"}],
    }
    run = {"started": "2026-01-01", "finished": "2026-01-02", "quick": True, "timeout": 60, "data": None}
    write_page(folder, {**run, "versions": {"python": "3.11"}, "machine": machine, "sections": {"table1": section}})
    return folder / "report.html"


class Reader(HTMLParser):
    """Text, tags and attributes of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.pieces: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(self.source)
        self.text = " ".join(" ".join(self.pieces).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)
        if self.rows and self.tags[-1][0] in ("td", "th") and not self.rows[-1][-1]:
            self.rows[-1][-1] = data.strip()

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)
