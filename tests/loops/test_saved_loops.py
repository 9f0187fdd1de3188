"""Tubes, contractions, ellipsoids and differences on disk: what comes back is proved, what was changed is not.

Every number and name of a document is changed in turn; the rest of an answer then does not prove it, or what it claims
is still true of the loop.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from closed_loops import controller, loop, pendulum, simulated, spread_out, turning
from fuzz_documents import signed
from lipcert.answers.saved import Saved
from lipcert.errors import LipcertError

START, FORCE = lc.Box([0.4, -0.1], [0.6, 0.1]), lc.Box([-0.01, -0.02], [0.01, 0.02])
SMALL = lc.closed_loop(pendulum(), controller(5))
PUSHED = lc.feedback([[1.0, 0.05], [0.5, 1.0]], [[0.0], [0.25]], controller(), disturbance=np.eye(2))
TURNING = lc.closed_loop(turning(), controller(4))
OTHER = lc.Network.from_weights(
    [1.01 * layer.weight for layer in controller().layers], [layer.bias for layer in controller().layers], "tanh"
)
ASK: dict[str, tuple[lc.Network, Callable[[], Saved]]] = {
    "tube": (SMALL, lambda: lc.tube(SMALL, START, 3, lc.ClosedForm(), unroll=2)),
    "pushed": (PUSHED, lambda: lc.tube(PUSHED, START, 2, lc.ClosedForm(), disturbance=FORCE)),
    "products": (TURNING, lambda: lc.tube(TURNING, START, 2, lc.ClosedForm())),
    "gain": (
        PUSHED,
        lambda: lc.contraction(PUSHED, START, lc.ClosedForm(), disturbance=FORCE),
    ),
    "contraction": (loop("linear"), lambda: lc.contraction(loop("linear"), START, lc.Scalar())),
    "invariant": (loop("linear"), lambda: lc.invariant_ellipsoid(loop("linear"), seconds=1.0)),
    "error": (controller(), lambda: lc.evaluation_error(controller(), START, seconds=0.02)),
    "difference": (controller(), lambda: lc.difference(controller(), OTHER, START, seconds=0.02)),
}


@cache
def answer(case: str) -> Saved:
    return ASK[case][1]()


def again(case: str, found: Any, exact: bool = False) -> Any:
    return lc.verify(ASK[case][0], found, exact, other=OTHER if case == "difference" else None)


@pytest.mark.parametrize("case", ASK)
def test_what_is_saved_comes_back_and_is_proved_twice(case: str, tmp_path: Path) -> None:
    answer(case).save(tmp_path / "a.json")
    found = type(answer(case)).load(tmp_path / "a.json")
    assert found.rules == ()
    assert again(case, found).rules == answer(case).rules != ()
    again(case, found, exact=True)
    lc.save_answer(found, tmp_path / "b.json")
    one, two = (json.loads((tmp_path / name).read_text(encoding="utf-8")) for name in ("a.json", "b.json"))
    assert one["content"] == two["content"]
    with pytest.raises(LipcertError):
        lc.verify(loop("saturated"), tmp_path / "a.json")


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where values are; of a long list the first and the last."""
    items = list(node.items() if isinstance(node, dict) else enumerate(node))
    for key, value in items if isinstance(node, dict) or len(items) < 3 else (items[0], items[-1]):
        yield from places(value, (*path, key)) if isinstance(value, (dict, list)) else [(*path, key)]


def changed(value: Any, way: int) -> Any:
    """Another value of the same kind, or of none."""
    if isinstance(value, bool) or value is None:
        return 1
    if isinstance(value, str):
        return ("f" if value[:1] != "f" else "e") + value[1:]
    return (value * 0.98, value * 1.02 + 1e-3, -value - 1)[way] if isinstance(value, float) else value + 1


def true(case: str, claim: Any) -> bool:
    """Whether points do not contradict a claim."""
    network = ASK[case][0]
    if isinstance(claim, lc.Tube):
        rng = np.random.default_rng(0)
        start = spread_out(lc.Box(claim.region.lower, claim.region.upper), 300)  # type: ignore[attr-defined]
        forces = None
        if claim.disturbance is not None:
            forces = [claim.disturbance.sample(len(start), rng) for _ in range(claim.steps)]
        states = simulated(network, start, claim.steps, forces)
        return bool(((claim.lower[:, None] <= states) & (states <= claim.upper[:, None])).all())
    if isinstance(claim, lc.Discrepancy):
        region: Any = claim.region
        x = spread_out(region, 2000)
        apart = OTHER(x) - network(x) if claim.other else np.zeros((1, 1))
        return bool((claim.lower <= apart).all() and (apart <= claim.upper).all())
    inside: lc.Contraction = getattr(claim, "contraction", claim)
    points, n = inside.certificate.region.sample(500, np.random.default_rng(0)), network.outputs
    points[:, :n] = points[:, :n] @ inside.shape.T
    there = np.linalg.solve(inside.shape, network.jacobian(points))
    steep = np.linalg.norm(there[..., :n] @ inside.shape, 2, axis=(1, 2))
    moves = np.linalg.norm(there[..., n:], 2, axis=(1, 2)) if network.inputs > n else np.zeros(1)
    stays = inside is claim or bool(claim.contains(network(claim.edge(1000))).all())
    return stays and bool(steep.max() <= inside.rate) and bool(moves.max() <= inside.gain)


@pytest.mark.parametrize("case", ASK)
def test_every_field_that_is_changed_is_refused_or_still_true(case: str, tmp_path: Path) -> None:
    answer(case).save(tmp_path / "a.json")
    document = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    refused, ways = set(), 0
    for place in places(document["content"]):
        for way in range(3) if len(place) < 4 else (ways % 3,):
            content = json.loads(json.dumps(document["content"]))
            node = content
            for key in place[:-1]:
                node = node[key]
            node[place[-1]] = changed(node[place[-1]], way)
            (tmp_path / "b.json").write_text(json.dumps(signed(content, document["kind"])), encoding="utf-8")
            ways += 1
            try:
                found = lc.load_answer(tmp_path / "b.json")
                again(case, found)
            except LipcertError:
                refused.add(place[0])
                continue
            assert true(case, found), place
    assert ways >= 20
    assert refused >= document["content"].keys() - {"seconds", "cuts", "ulps", "disturbance", "names", "scales"}
