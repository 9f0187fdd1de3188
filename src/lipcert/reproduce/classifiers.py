"""The two classifiers of the MNIST study in a folder: trained once, read again afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from lipcert.importers import load
from lipcert.importers.arrays import write_npz
from lipcert.model.files import write_whole
from lipcert.model.network import Network
from lipcert.reproduce.images import Images
from lipcert.reproduce.training import Recipe, train
from lipcert.runtime.clock import Progress

_NARROW: Final = (64, 64, 64)
RECIPES: Final[dict[str, dict[str, Recipe]]] = {
    "mnist": {"baseline": Recipe(), "regularised": Recipe(penalty=1.0)},
    "digits": {"baseline": Recipe(_NARROW, batch=16), "regularised": Recipe(_NARROW, penalty=0.05, batch=16)},
}
"""By name of the images. The digits are few, so batches are small; and they are small themselves, so that narrower
layers will do, and a penalty of 1 would leave little to learn.
"""
_LEDGER: Final = "models.json"


@dataclass(frozen=True, eq=False)
class Classifier:
    """A trained network with its accuracy on the test set and the epochs it took."""

    name: str
    network: Network
    accuracy: float
    epochs: int


def classifiers(
    folder: Path, images: Images, report: Progress, recipes: Mapping[str, Recipe] | None = None
) -> list[Classifier]:
    """Both classifiers: from the folder if they were trained on these images by the same recipe, else trained now.

    They are kept as NAME.npz, which ``lipcert.load`` reads, and described in models.json. The recipes are those for
    the images, unless others are given.
    """
    ledger = folder / _LEDGER
    known: dict[str, Any] = json.loads(ledger.read_text(encoding="utf-8")) if ledger.exists() else {}
    found = []
    for name, recipe in (recipes or RECIPES[images.name]).items():
        about = {"images": images.digest, "recipe": {**asdict(recipe), "hidden": list(recipe.hidden)}}
        path = folder / f"{name}.npz"
        note = known.get(name, {})
        if not path.exists() or {key: note.get(key) for key in about} != about:
            trained = train(images, recipe, partial(_say, report, name))
            write_npz(path, trained.network, "elu")
            note = {**about, "accuracy": trained.accuracy, "epochs": trained.epochs, "data": images.name}
            known[name] = note
            write_whole(ledger, json.dumps(known, indent=1) + "\n")
        found.append(Classifier(name, load(path), note["accuracy"], note["epochs"]))
    return found


def _say(report: Progress, name: str, text: str) -> None:
    report(f"mnist: training the {name} model, {text}")
