"""Proofs while a classifier is trained: how many of some points have a certified radius, every few epochs."""

from __future__ import annotations

import csv
import time
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from lipcert.errors import InvalidInput
from lipcert.importers import load
from lipcert.questions.radius import certified_radius


@dataclass(frozen=True)
class Row:
    """One certification: shares of the points that have their own class, and that keep it within the radius, proved."""

    epoch: int
    clean: float
    certified: float
    radius: float
    seconds: float


@dataclass
class Certification:
    """A callback: ``certification(epoch)`` certifies some points every few epochs, and logs it.

    Parameters
    ----------
    module
        The classifier.
    x, y
        Points (count, ...) and labels (count,), in the precision of the module.
    radius
        The ℓ2 radius to prove.
    every
        After how many epochs.
    csv
        A file to which a line is added each time.
    figure
        A picture of both shares over the epochs, drawn anew each time; needs matplotlib.
    seconds
        Time limit for each point.

    Examples
    --------
    >>> import torch
    >>> from lipcert.training import Certification
    >>> module = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> log = Certification(module, torch.zeros(3, 2), torch.tensor([0, 1, 0]), radius=0.01)
    >>> row = log(0)  # after the first epoch
    >>> row.certified <= row.clean
    True
    """

    module: torch.nn.Module
    x: torch.Tensor
    y: torch.Tensor
    radius: float
    every: int = 1
    csv: str | Path | None = None
    figure: str | Path | None = None
    seconds: float = 2.0
    rows: list[Row] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if self.every < 1 or not self.radius > 0.0 or len(self.x) != len(self.y):
            raise InvalidInput(
                f"every must be at least 1, radius positive, and x and y of one length; got {self.every},"
                f" {self.radius}, {len(self.x)} and {len(self.y)}"
            )

    def __call__(self, epoch: int) -> Row | None:
        """Certify, if it is time; the row that was logged."""
        if epoch % self.every:
            return None
        begin = time.perf_counter()
        network = load(deepcopy(self.module).eval(), input_shape=tuple(self.x.shape[1:]))
        points = self.x.detach().cpu().double().numpy().reshape(len(self.x), -1)
        labels = self.y.cpu().numpy()
        own = network(points).argmax(axis=1) == labels
        kept = 0
        for point, label in zip(points[own], labels[own], strict=True):
            found = certified_radius(network, point, int(label), radii=[self.radius], seconds=self.seconds)
            kept += found.radius >= self.radius
        row = Row(epoch, float(own.mean()), kept / len(points), self.radius, time.perf_counter() - begin)
        self.rows.append(row)
        self._log(row)
        return row

    def _log(self, row: Row) -> None:
        if self.csv is not None:
            path = Path(self.csv)
            new = not path.exists()
            with path.open("a", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(asdict(row)))
                if new:
                    writer.writeheader()
                writer.writerow(asdict(row))
        if self.figure is not None:
            draw(self.rows, self.figure)


def draw(rows: list[Row], path: str | Path) -> None:
    """Both shares over the epochs, as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    ax = figure.subplots()
    epochs = [row.epoch for row in rows]
    ax.plot(epochs, [100 * row.clean for row in rows], marker="o", label="right")
    ax.plot(epochs, [100 * row.certified for row in rows], marker="o", label=f"certified within {rows[-1].radius:g}")
    ax.set(xlabel="epoch", ylabel="points, %", ylim=(0, 102))
    ax.grid(alpha=0.3)
    ax.legend(loc="lower right")
    figure.savefig(path)
