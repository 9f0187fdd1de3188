"""What people see and hand in: one-line reprs, tables for notebooks, images, tensors, names for methods."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import lipcert as lc
from lipcert.arguments.words import downward, upward
from lipcert.questions.certify import METHODS
from lipcert.questions.compare import Comparison, Row
from lipcert.questions.tables import Cell, Table
from networks import random_network

NET = random_network(3, (4, 6, 3), "tanh")
CENTER = [0.1, 0.2, 0.3, 0.4]


def text_of(markup: str) -> str:
    """The words of a fragment, whose tags must be balanced."""
    return "\n".join(ElementTree.fromstring(f"<div>{markup}</div>").itertext())


def results(tmp_path: Path) -> lc.Results:
    x = np.random.default_rng(0).standard_normal((3, 4))
    return lc.campaign(NET, x, radii=[0.05, 0.1], out=tmp_path / "run.sqlite", names={"model": "m.npz", "other": "no"})


def test_reprs_are_one_line(tmp_path: Path) -> None:
    ball = lc.Ball(CENTER, 0.1, clip=(0, 1))
    things = {
        NET: "Network(4 → 6 → 3, tanh, 51 parameters, digest ",
        ball: "Ball([0.1, 0.2, 0.3, 0.4], 0.1, clip=([0, …], [1, …]))",
        lc.Ball(np.arange(8.0), 2): "Ball([0, 1, 2, 3, 4, 5, …], 2.0)",
        lc.Ball(np.zeros((1, 28, 28)), 1): "Ball([0, …] of shape (1, 28, 28), 1.0)",
        lc.Box(-1, 1): "Box(-1.0, 1.0)",
        lc.Box([0, 1], [2, 3]): "Box([0, 1], [2, 3])",
        lc.Everywhere(): "Everywhere()",
        lc.attack(NET, CENTER, int(NET(CENTER).argmax()), 50.0): "Attack(1 of 1 broken, the nearest at distance ",
        lc.certify(NET, ball, "closed-form"): "Certificate(bound=",
        results(tmp_path): "Results(",
        Comparison((), None): "Comparison(0 methods, none has a bound)",
    }
    for thing, begin in things.items():
        assert repr(thing).startswith(begin)
        assert "\n" not in repr(thing)
        assert len(repr(thing)) < 300
    assert repr(results(tmp_path)).endswith("6 rows: 3 points, 2 radii, 1 method)")


def test_printed_bounds_are_rounded_up() -> None:
    cert = lc.certify(NET, lc.Ball(CENTER, 0.1), "closed-form")
    rng = np.random.default_rng(0)
    for value in (2.0000000000018, *np.exp(rng.uniform(-600, 600, 200)), *rng.random(200)):
        shown = re.search(r"bound=([^,]+),", repr(replace(cert, bound=float(value))))
        assert shown is not None
        assert Decimal(shown[1]) >= Decimal(float(value))
        assert Decimal(upward(float(value), 3)) >= Decimal(float(value)) >= Decimal(downward(float(value), 3))
    assert "bound=2.00001," in repr(replace(cert, bound=2.0000000000018))


def test_notebooks_get_tables(tmp_path: Path) -> None:
    cert = lc.certify(NET, lc.Ball(CENTER, 0.1), "closed-form")
    row = Row("<b>mine</b>", "certified", 2.0000001, 1.5, 0.1, True, note="a & b")
    shown = text_of(Comparison((row,), lc.lower_bound(NET, cert.region))._repr_html_())
    assert "<b>mine</b>" in shown
    assert "a & b" in shown
    assert "%" in text_of(results(tmp_path)._repr_html_())
    assert "… and 30 rows more" in text_of(Table("t", ["k"], [[Cell(str(k))] for k in range(50)]).html())


def test_rows_and_columns_have_names(tmp_path: Path) -> None:
    found = results(tmp_path)
    assert found["certified"].tolist() == [row.certified for row in found]
    assert found.about["model"] == "m.npz"
    assert "other" not in found.about
    assert len(found) == 6
    with pytest.raises(lc.InvalidInput, match="no column 'certifed'; columns are network, point"):
        found["certifed"]
    frame = pytest.importorskip("pandas").DataFrame(found.columns())
    assert found.to_pandas().equals(frame)


def test_images_keep_their_shape() -> None:
    net = replace(NET, input_shape=(1, 2, 2))
    image = np.array(CENTER).reshape(1, 2, 2)
    flat = lc.certify(net, lc.Ball(CENTER, 0.1, clip=(0, 1)), "closed-form")
    radius = lc.certified_radius(net, CENTER, curvature=False).radius
    wide = lc.certify(NET, lc.Box(-1, 1), "closed-form")  # one number stands for all coordinates
    assert wide.bound == lc.certify(NET, lc.Box(-np.ones(4), np.ones(4)), "closed-form").bound
    for center in (image, image[0], image[None]):  # with its channel, without, a batch of one
        assert lc.certify(net, lc.Ball(center, 0.1, clip=(0, 1)), "closed-form").bound == flat.bound
        assert lc.certified_radius(net, center, curvature=False).radius == radius
    assert net(np.stack([image] * 5)).shape == (5, 3)
    assert net.jacobian(image).shape == (3, 4)
    for wrong in (image.reshape(2, 2, 1), image.reshape(4, 1), np.zeros((1, 2, 3))):
        with pytest.raises(lc.InvalidInput, match=r"in the shape \(1, 2, 2\) or flat; got shape"):
            lc.certify(net, lc.Ball(wrong, 0.1))
    with pytest.raises(lc.InvalidInput, match="one number for one center"):
        lc.certify(net, lc.Ball(image, [[0.1, 0.2]]))
    assert net.digest == NET.digest
    assert net.slice(0, 1).input_shape == (1, 2, 2)
    assert net.slice(1, 2).input_shape is None


def test_tensors_bytes_and_masks() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(CENTER, dtype=torch.float64, requires_grad=True)
    flat = lc.certify(NET, lc.Ball(CENTER, 0.1), "closed-form").bound
    assert lc.certify(NET, lc.Ball(tensor, 0.1), "closed-form").bound == flat
    assert lc.Ball(torch.ones(4, dtype=torch.bfloat16), 0.1).center.tolist() == [1.0] * 4
    weights = [torch.nn.Linear(4, 3).weight, torch.nn.Linear(3, 2).weight]
    assert lc.Network.from_weights(weights).sizes == (4, 3, 2)
    for image in (np.zeros(4, np.uint8), torch.zeros(4, dtype=torch.uint8)):
        with pytest.warns(UserWarning, match=r"center is uint8 .* give center / 255.0"):
            lc.Ball(image, 0.1)
        with pytest.warns(UserWarning, match="x is uint8"):
            NET(image)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lc.Ball(np.zeros(4, np.int64), 0.1)


def test_methods_have_names() -> None:
    ball = lc.Ball(CENTER, 0.1)
    for name in ("scalar", "Scalar", "closed-form", "closed_form", "ClosedForm", "trivial"):
        cert = lc.certify(NET, ball, name)
        assert repr(cert.method).lower().startswith(name.replace("-", "").replace("_", "").lower())
    assert lc.certify_many(NET, [ball], "scalar")[0].method == lc.Scalar()
    for ask in (lc.certify, lc.reach, lc.sensitivity):
        with pytest.raises(lc.InvalidInput, match=f"'jont' is unknown; known are {', '.join(METHODS)}"):
            ask(NET, ball, "jont")
    assert lc.Network.from_weights([[[1.0]], [[1.0]]], activation="leaky_relu(0.2)")([-1.0]) == [-0.2]
    assert lc.activation("hardtanh(-2, max_val=3)").parameters == (-2.0, 3.0)


def test_files_are_verified_by_their_names(tmp_path: Path) -> None:
    cert = lc.certify(NET, lc.Ball(CENTER, 0.125, clip=(0, 1)), "closed-form")
    cert.save(tmp_path / "bound.json")
    written = (tmp_path / "bound.json").read_text(encoding="utf-8")
    assert '"center": [0.1, 0.2, 0.3, 0.4], "radius": 0.125' in written
    assert lc.verify(NET, tmp_path / "bound.json") == lc.verify(NET, str(tmp_path / "bound.json")) <= cert.bound
    with pytest.raises(lc.UnreadableCertificate):
        lc.verify(NET, str(tmp_path / "none.json"))
