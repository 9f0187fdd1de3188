"""The study of two classifiers: images, training, bounds, attacks, radii, and what is written of them."""

from __future__ import annotations

import csv
import gzip
import struct
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.model.arrays import Array
from lipcert.reproduce import classifiers as keeping
from lipcert.reproduce.classifiers import FILES, Classifier, Images, Recipe, classifiers, read_images, train
from lipcert.reproduce.documents import study_summary, write_study
from lipcert.reproduce.figures import draw_study
from lipcert.reproduce.mnist import PAPER_METHOD, Study, Work, best_radii, choose, failure_rate, local_bound, run
from lipcert.reproduce.printed import PAPER_RADII
from lipcert.reproduce.store import Store
from lipcert.runtime.clock import timed
from networks import random_network

SMALL = {
    "baseline": Recipe(hidden=(16, 16), rate=5e-3, batch=32, epochs=12),
    "regularised": Recipe(hidden=(16, 16), rate=5e-3, batch=32, epochs=12, penalty=0.05),
}
POINTS = 1


def idx(array: Array) -> bytes:
    return b"\x00\x00\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four files as MNIST has them, one of them not compressed; 30 and 12 images of 2 × 3 pixels."""
    rng = np.random.default_rng(0)
    for count, (images, labels) in zip((30, 12), FILES.values(), strict=True):
        (tmp_path / f"{images}.gz").write_bytes(gzip.compress(idx(rng.integers(0, 256, (count, 2, 3), dtype=np.uint8))))
        (tmp_path / labels).write_bytes(idx(rng.integers(0, 10, count, dtype=np.uint8)))
    return tmp_path


@pytest.fixture(scope="module")
def digits() -> Images:
    pytest.importorskip("sklearn")
    return read_images()


@pytest.fixture(scope="module")
def few(digits: Images) -> Images:
    """The same with a part of the images to test on."""
    return Images(digits.name, digits.train, (digits.test[0][:20], digits.test[1][:20]))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, digits: Images) -> tuple[Path, list[Classifier]]:
    pytest.importorskip("torch")
    out = tmp_path_factory.mktemp("trained")
    return out, classifiers(out, digits, Store(out / "trained.jsonl"), SMALL)


@pytest.fixture(scope="module")
def study(trained: tuple[Path, list[Classifier]], few: Images) -> Study:
    work = Work(Store(trained[0] / "results.jsonl"), POINTS, ("closed-form", "joint", PAPER_METHOD))
    with pytest.MonkeyPatch.context() as patch:  # few starts are enough for attacks on few images
        patch.setattr("lipcert.reproduce.mnist.attack", partial(lc.attack, restarts=3))
        return run(few, trained[1], work)


def test_images_from_files(folder: Path) -> None:
    found = read_images(folder)
    assert found.name == "mnist"
    assert found.train[0].shape == (30, 6)
    assert found.test[1].shape == (12,)
    assert 0.0 <= found.test[0].min() < found.test[0].max() <= 1.0
    assert found.digest == read_images(folder).digest != Images("mnist", found.train, found.train).digest


def test_what_is_wrong_with_files_is_said(folder: Path) -> None:
    images, labels = FILES["test"]
    content = (folder / labels).read_bytes()
    for damage, word in (
        (content[:-1], "cannot reshape"),
        (b"PK" + content, "not an idx file"),
        (idx(np.zeros(3, np.uint8)), "3 labels"),
    ):
        (folder / labels).write_bytes(damage)
        with pytest.raises(lc.InvalidInput, match=word):
            read_images(folder)
    (folder / labels).write_bytes(content)
    packed = (folder / f"{images}.gz").read_bytes()
    (folder / f"{images}.gz").write_bytes(packed[:40])
    with pytest.raises(lc.InvalidInput, match="damaged"):
        read_images(folder)
    with pytest.raises(lc.InvalidInput, match="lacks train-images"):
        read_images(folder / "nowhere")


def test_training(digits: Images) -> None:
    pytest.importorskip("torch")
    told: list[str] = []
    quick = Recipe(batch=32, epochs=2, target=1.0)
    with timed(progress=told.append):
        plain = train(digits, quick)
    assert plain.network.sizes == (64, 128, 128, 128, 10)
    assert plain.accuracy > 0.8
    assert plain.epochs == len(told) == 2
    assert train(digits, quick).network.digest == plain.network.digest
    smooth = train(digits, Recipe(penalty=1.0, batch=32, epochs=2, target=1.0)).network
    x = digits.test[0][:50]
    steep = [np.linalg.norm(network.jacobian(x), axis=(1, 2)).mean() for network in (plain.network, smooth)]
    assert steep[1] < 0.5 * steep[0]


def test_the_penalty_is_the_squared_norm_of_the_jacobian() -> None:
    torch: Any = pytest.importorskip("torch")
    from lipcert.reproduce.classifiers import _loss

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ELU(), torch.nn.Linear(6, 3)).double()
    x, y = torch.randn(1, 4, dtype=torch.float64), torch.tensor([1])
    exact = float(torch.autograd.functional.jacobian(model, x).square().sum())
    plain = _loss(torch, model, x, y, 0.0).item()
    probes = [_loss(torch, model, x.clone(), y, 2.0).item() - plain for _ in range(4000)]
    assert np.mean(probes) == pytest.approx(2.0 * exact, rel=0.1)


def test_classifiers_are_trained_once(
    trained: tuple[Path, list[Classifier]], digits: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    (out, first), store = trained, Store(trained[0] / "trained.jsonl")
    assert [one.name for one in first] == ["baseline", "regularised"]
    assert min(one.accuracy for one in first) > 0.9

    def refuse(*_: Any) -> Any:
        raise lc.InvalidInput("trained again")

    monkeypatch.setattr(keeping, "train", refuse)
    again = classifiers(out, digits, store, SMALL)
    assert [one.network.digest for one in again] == [one.network.digest for one in first]
    assert [one.accuracy for one in again] == [one.accuracy for one in first]
    other = Images("digits", digits.train, digits.train)
    with pytest.raises(lc.InvalidInput, match="trained again"):
        classifiers(out, other, store, SMALL)


def test_fewer_inputs_leave_the_published_number_as_it_is() -> None:
    network = random_network(5, (40, 6, 6, 3), "elu")
    ball = lc.Ball(np.full(40, 0.5), 0.3)
    plain = lc.published.EclipseGenLocal("Fast").value(network, ball)
    assert local_bound(network, ball, PAPER_METHOD) == pytest.approx(plain, rel=1e-6)
    assert local_bound(network, ball, "scalar") == lc.certify(network, ball, lc.Scalar()).bound


def test_the_papers_rule() -> None:
    bounds = np.full((2, len(PAPER_RADII)), 4.0)
    bounds[1, -1] = 1.0
    radii = best_radii(np.sqrt(2.0) * np.array([1.0, 0.004]), bounds)
    assert radii.tolist() == pytest.approx([0.25, 1 / 256])


@pytest.mark.slow
def test_the_study_is_in_order(study: Study, few: Images) -> None:
    x, y = few.test
    still = {one.name: failure_rate(one.network, few, 1e-9) for one in {sample.classifier for sample in study.samples}}
    assert len(study.samples) == 4
    for sample in study.samples:
        network, name = sample.classifier.network, sample.classifier.name
        points = choose(few, POINTS)[sample.choice]
        steepest = np.linalg.norm(network.jacobian(points), 2, axis=(1, 2))
        for bounds in sample.bounds.values():
            assert (bounds[:, -1] >= steepest).all()
            assert (np.diff(bounds, axis=1) <= 1e-9 * bounds[:, 1:]).all()  # smaller balls, smaller bounds
        radii = sample.radii
        assert radii["trivial"] == pytest.approx(sample.margins / (np.sqrt(2.0) * study.trivial[name]))
        assert (radii["plain"] >= 0.999 * radii["paper"]).all()
        assert (radii["search"] <= radii["curved"]).all()
        assert (radii["curved"] <= 1.01 * radii["valid"]).all()
        assert (radii["valid"] <= sample.broken).all()
        rates = study.failures[name]
        wrong = 100.0 * float(np.mean(network(x).argmax(axis=1) != y))
        assert (np.diff(rates) <= 0).all()
        assert rates[-1] >= wrong
        assert still[name] == pytest.approx(wrong)
    low = {one.classifier.name: one.bounds["joint"].mean() for one in study.samples if one.choice == "images"}
    assert low["regularised"] < low["baseline"]


def test_the_study_is_written_and_kept(
    study: Study, trained: tuple[Path, list[Classifier]], few: Images, tmp_path: Path
) -> None:
    write_study(tmp_path, study)
    assert "certified radii are" in study_summary(study)
    (tmp_path / "figures").mkdir()
    drawn = draw_study(tmp_path, study)
    assert [one["file"] for one in drawn] == ["figures/mnist_random.svg", "figures/mnist_images.svg"]
    assert all((tmp_path / one["file"]).read_text().count("<svg") == 1 for one in drawn)
    rows, radii = (
        list(csv.DictReader((tmp_path / name).read_text(encoding="utf-8").splitlines()))
        for name in ("mnist.csv", "mnist_radii.csv")
    )
    assert len(rows) == 4 * 3 * 8
    assert all("paper_mean" not in row for row in rows)  # these are no MNIST images
    assert [float(row["ratio"]) for row in radii if row["rule"] == "trivial"] == [1.0] * 4
    stored = (trained[0] / "results.jsonl").read_bytes()
    work = Work(Store(trained[0] / "results.jsonl"), POINTS, ("closed-form", "joint", PAPER_METHOD))
    again = run(few, trained[1], work)
    assert (trained[0] / "results.jsonl").read_bytes() == stored
    for one, other in zip(study.samples, again.samples, strict=True):
        assert all((one.radii[rule] == other.radii[rule]).all() for rule in one.radii)
