"""Campaigns: nothing lost, nothing computed twice, files that are not ours left alone."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from digits import classifier
from lipcert.questions.campaign import Points, Row, read_points, summarise
from lipcert.questions.campaign.results import export
from lipcert.questions.campaign.store import Store
from lipcert.questions.campaign.work import prepare, work
from lipcert.questions.prove_outputs import prove_outputs_many
from networks import random_network, spread

RADII = (0.05, 0.2, 0.8)
KILLED = (0.05, 0.1, 0.2, 0.4)


@pytest.fixture(scope="module")
def problem() -> tuple[lc.Network, Any, Any]:
    rng = np.random.default_rng(0)
    network = random_network(0, (4, 8, 7, 3), "elu", gain=2.0)
    x = rng.standard_normal((15, 4))
    y = np.where(rng.random(15) < 0.8, network(x).argmax(axis=1), 0)
    return network, x, y


def values(results: lc.Results) -> list[tuple[Any, ...]]:
    return [astuple(replace(row, seconds=0.0)) for row in results.rows]


@pytest.mark.parametrize(
    ("clip", "curvature"), spread(2, {"all": None, "clip": (0, 1)}, {str(c): c for c in (None, True, False)})
)
def test_one_question_has_one_answer(tmp_path: Path, clip: tuple[float, float] | None, curvature: bool | None) -> None:
    """Rows are what certified_radius says for one radius, and their largest what it says for all of them."""
    network, x, _ = classifier("tanh")
    x, y = x[:6], network(x[:6]).argmax(axis=1)
    y[3] = (y[3] + 1) % 10
    radii = (0.05, 0.3, 0.4, 0.5, 0.7)
    found = lc.campaign(network, x, y, radii=radii, out=tmp_path / "run.sqlite", clip=clip, curvature=curvature)
    rows: dict[int, list[Row]] = {}
    for row in found.rows:
        single = lc.certified_radius(
            network, x[row.point], y[row.point], radii=row.radius, clip=clip, curvature=curvature
        )
        assert row.certified == pytest.approx(single.radius, rel=1e-12)
        assert (row.robust, row.basis) == (single.radius == row.radius, single.basis)
        rows.setdefault(row.point, []).append(row)
    for point, mine in rows.items():
        whole = lc.certified_radius(network, x[point], y[point], radii=radii[::-1], clip=clip, curvature=curvature)
        assert max(row.certified for row in mine) == pytest.approx(whole.radius, rel=1e-12)
        assert whole.basis in {row.basis for row in mine}
    bases = {row.basis for row in found.rows}
    assert bases == {"", "lipschitz", "relaxation"} | ({"second order"} if curvature is not False else set())
    assert found.about["curvature"] is curvature


def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float, str]]:
    """Notes every row that is computed."""
    computed: list[tuple[int, float, str]] = []

    def noting(task: Any) -> Any:
        computed.extend((q.point, radius, repr(q.method)) for q in task.questions for radius in q.radii)
        return work(task)

    monkeypatch.setattr(sys.modules["lipcert.questions.campaign.run"], "work", noting)
    return computed


def test_nothing_is_computed_twice(
    problem: tuple[lc.Network, Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, x, y = problem
    out = tmp_path / "run.sqlite"
    computed = counted(monkeypatch)
    lc.campaign(network, x, y, radii=RADII[:2], out=out, points=6)
    assert len(computed) == 12
    lc.campaign(network, x, y, radii=RADII[:2], out=out)
    assert len(computed) == 30
    lc.campaign(network, x, y, radii=RADII, out=out, methods=[lc.ClosedForm(), lc.Scalar(), lc.ClosedForm()])
    assert len(computed) == len(set(computed)) == 90
    again = lc.campaign(network, x, y, radii=RADII, out=out)
    assert len(computed) == 90
    whole = lc.campaign(
        network, x, y, radii=RADII, methods=[lc.ClosedForm(), lc.Scalar()], out=tmp_path / "whole.sqlite"
    )
    assert len(again.rows) == len(whole.rows)
    for one, two in zip(again.rows, whole.rows, strict=True):  # balls that were computed together round differently
        assert (one.point, one.radius, one.method, one.basis) == (two.point, two.radius, two.method, two.basis)
        assert (one.bound, one.certified) == pytest.approx((two.bound, two.certified), rel=1e-9)
    other = random_network(1, (4, 5, 3), "tanh")
    both = lc.campaign(other, x, y, radii=RADII, out=out)  # another network, same points: same file
    assert {row.network for row in both.rows} == {network.digest, other.digest}


@pytest.mark.parametrize("kind", ["threads", pytest.param("processes", marks=pytest.mark.slow), "workers"])
def test_any_executor_gives_the_same_table(problem: tuple[lc.Network, Any, Any], tmp_path: Path, kind: str) -> None:
    network, x, y = problem[0], problem[1][:4], problem[2][:4]
    alone = lc.campaign(network, x, y, radii=RADII, out=tmp_path / "alone.sqlite", attack=True)
    out = tmp_path / "many.sqlite"
    if kind == "workers":
        found = lc.campaign(network, x, y, radii=RADII, out=out, attack=True, workers=2)
    else:
        context = __import__("multiprocessing").get_context("spawn")
        pool: Executor = (
            ThreadPoolExecutor(3)
            if kind == "threads"
            else ProcessPoolExecutor(2, mp_context=context, initializer=prepare)
        )
        with pool:
            found = lc.campaign(network, x, y, radii=RADII, out=out, attack=True, executor=pool)
    assert values(found) == values(alone)


def test_a_lost_worker_is_said_and_the_rest_is_kept(problem: tuple[lc.Network, Any, Any], tmp_path: Path) -> None:
    class Failing(ThreadPoolExecutor):
        count = 0

        def submit(self, fn: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
            Failing.count += 1
            if Failing.count == 5:
                raise BrokenExecutor("gone")
            return super().submit(fn, *arguments, **named)

    network, x, y = problem
    with Failing(1) as pool, pytest.raises(lc.CampaignStopped, match="the same command resumes"):
        lc.campaign(network, x, y, radii=RADII, out=tmp_path / "run.sqlite", executor=pool)
    assert values(again(problem, tmp_path / "run.sqlite")) == values(again(problem, tmp_path / "alone.sqlite"))


def command(folder: Path, out: str, *more: str) -> list[str]:
    model, data = folder / "model.npz", folder / "data.npz"
    start = [sys.executable, "-m", "lipcert", "robust", str(model), str(data)]
    return [*start, "--radii", ",".join(map(str, KILLED)), "--out", str(folder / out), "--json", *more]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of digits and some of them, as files."""
    network, x, y = classifier()
    folder = tmp_path_factory.mktemp("digits")
    arrays: dict[str, Any] = {"activation": "relu"}
    for number, layer in enumerate(network.layers, 1):
        arrays |= {f"W{number}": layer.weight, f"b{number}": layer.bias}
    np.savez(folder / "model.npz", **arrays)
    np.savez(folder / "data.npz", x=x[:40].reshape(40, 8, 8), y=y[:40])
    return folder


def count_rows(path: Path) -> int:
    """Rows in a results file that another process may be writing."""
    if not path.exists() or not path.stat().st_size:
        return 0
    connection = sqlite3.connect(path, timeout=30.0)
    try:
        return int(connection.execute("SELECT COUNT(*) FROM results").fetchone()[0])
    except sqlite3.OperationalError:  # the tables are not there yet
        return 0
    finally:
        connection.close()


def children(process: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


@pytest.mark.parametrize(
    ("workers", "times"), [("2", 1), *(pytest.param(workers, 3, marks=pytest.mark.slow) for workers in ("1", "2"))]
)
def test_killed_and_resumed(folder: Path, workers: str, times: int) -> None:
    """kill -9 at random moments: the table of the last run is that of an undisturbed one, row for row."""
    network, x, y = classifier()
    undisturbed = lc.campaign(network, x[:40], y[:40], radii=KILLED, out=folder / f"undisturbed{workers}{times}.sqlite")
    out, chance = folder / f"killed{workers}{times}.sqlite", random.Random(int(workers))
    seen = [0]
    for _ in range(times):
        running = subprocess.Popen(
            command(folder, out.name, "--workers", workers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        # at some moment after it has stored something new, so that it has come to different places
        target = seen[-1] + chance.randint(1, 20)
        while running.poll() is None and count_rows(out) < target:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 0.1))
        offspring = children(running.pid)
        running.send_signal(signal.SIGKILL)
        running.wait(timeout=60)
        seen.append(count_rows(out))
        assert seen[-1] >= seen[-2]
        end = time.monotonic() + 30
        while any(Path(f"/proc/{child}").exists() for child in offspring) and time.monotonic() < end:
            time.sleep(0.05)
        assert not any(Path(f"/proc/{child}").exists() for child in offspring), "workers outlived their parent"
    finished = subprocess.run(
        command(folder, out.name, "--workers", workers), check=True, capture_output=True, text=True, timeout=300
    )
    assert json.loads(finished.stdout)["rows"] == 160
    assert values(lc.Results.read(out)) == values(undisturbed)


@pytest.mark.slow
def test_dask_loses_a_worker(folder: Path) -> None:
    distributed: Any = pytest.importorskip("distributed")
    network, x, y = classifier()
    plain = lc.campaign(network, x[:200], y[:200], radii=RADII, out=folder / "plain.sqlite")
    out = folder / "dask.sqlite"
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        pids = list(client.run(os.getpid).values())

        class Killing(Executor):
            """Kills one of the workers when the tenth batch is done, with many still to do."""

            inner, count = client.get_executor(), 0

            def submit(self, fn: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
                self.count += 1
                future: Future[Any] = self.inner.submit(fn, *arguments, **named)
                if self.count == 10:
                    future.add_done_callback(lambda _: os.kill(pids[0], signal.SIGKILL))
                return future

        found = lc.campaign(network, x[:200], y[:200], radii=RADII, out=out, executor=Killing())
        assert pids[0] not in client.run(os.getpid).values()
    assert values(found) == values(plain)


@pytest.fixture(scope="module")
def finished(problem: tuple[lc.Network, Any, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    network, x, y = problem
    return lc.campaign(network, x, y, radii=RADII, out=tmp_path_factory.mktemp("finished") / "run.sqlite").path


@pytest.fixture
def written(finished: Path, tmp_path: Path) -> Path:
    """A results file to do something to."""
    return Path(shutil.copy(finished, tmp_path / "run.sqlite"))


def again(problem: tuple[lc.Network, Any, Any], out: Path) -> lc.Results:
    network, x, y = problem
    return lc.campaign(network, x, y, radii=RADII, out=out)


def test_damage_anywhere_is_noticed(problem: tuple[lc.Network, Any, Any], written: Path) -> None:
    """Bytes changed at random: the file is refused, or holds the same rows as before."""
    whole, before = written.read_bytes(), values(lc.Results.read(written))
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(12):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), size=4):
            damaged[place] ^= int(rng.integers(1, 256))
        written.write_bytes(damaged)
        try:
            assert values(lc.Results.read(written)) == before
        except lc.UnreadableResults:
            refused += 1
            with pytest.raises(lc.UnreadableResults, match=str(written)):
                again(problem, written)
            assert written.read_bytes() == damaged  # not touched
    assert refused > 3


def test_files_of_others_are_left_alone(problem: tuple[lc.Network, Any, Any], tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.sqlite"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE results (network TEXT, point INTEGER)")
    connection.commit()
    connection.close()
    text = tmp_path / "notes.sqlite"
    text.write_text("not a database, but longer than the header of one would be " * 5)
    for path in (foreign, text):
        before = path.read_bytes()
        with pytest.raises(lc.UnreadableResults, match=r"not a file of lipcert's results|not a results file"):
            again(problem, path)
        assert path.read_bytes() == before
    with pytest.raises(lc.UnreadableResults, match="does not exist"):
        lc.Results.read(tmp_path / "nothing.sqlite")
    with pytest.raises(lc.UnreadableResults, match="folder"):
        again(problem, tmp_path / "nowhere" / "run.sqlite")


@pytest.mark.parametrize("version", [1, 4, 6])
def test_other_versions_are_refused(problem: tuple[lc.Network, Any, Any], written: Path, version: int) -> None:
    """Their rows would be answers to another question."""
    connection = sqlite3.connect(written)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    before = written.read_bytes()
    uses: list[Callable[[], lc.Results]] = [lambda: lc.Results.read(written), lambda: again(problem, written)]
    for use in uses:
        with pytest.raises(lc.UnreadableResults, match=f"version {version}.*run the campaign again, into another file"):
            use()
    assert written.read_bytes() == before


def test_results_about_something_else_are_refused(problem: tuple[lc.Network, Any, Any], written: Path) -> None:
    network, x, y = problem
    others: list[tuple[str, dict[str, Any]]] = [
        ("points", {"x": x + 1e-9}),
        ("clip", {"clip": (-9, 9)}),
        ("attack", {"attack": True}),
        ("curvature", {"curvature": True}),
        ("curvature", {"curvature": False}),
    ]
    for name, changed in others:
        with pytest.raises(lc.UnreadableResults, match=f"other {name}"):
            lc.campaign(**{"network": network, "x": x, "y": y, "radii": RADII, "out": written} | changed)


def test_a_batch_is_stored_whole_or_not_at_all(tmp_path: Path) -> None:
    store = Store(tmp_path / "run.sqlite", create=True)
    rows = [Row("n", k, 0.1, "m", 0, 0, 1.0, 2.0, 0.1, 0.1) for k in range(3)]
    with pytest.raises(sqlite3.IntegrityError):
        store.add([*rows, Row("n", 9, 0.1, "m", None, 0, 1.0, 2.0, 0.1, 0.1)], 1.0)  # type: ignore[arg-type]
    assert store.rows() == []
    assert store.add(rows, 1.0) == 3
    changed = Row("n", 1, 0.1, "m", 0, 0, 5.0, 6.0, 0.1, 0.1)
    assert store.add([changed], 1.0) == 0  # what is there stays
    assert store.rows() == rows
    store.close()


def test_rows_without_a_bound_say_why(
    problem: tuple[lc.Network, Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def brittle(network: lc.Network, balls: list[lc.Ball], *rest: Any) -> Any:
        found = prove_outputs_many(network, balls, *rest)
        return [lc.ProofFailed("too large") if float(ball.radius) > 0.5 else one for ball, one in zip(balls, found)]

    monkeypatch.setattr("lipcert.questions.radius.prove_outputs_many", brittle)
    found = again(problem, tmp_path / "run.sqlite")
    assert {row.problem for row in found.rows if row.radius > 0.5} == {"too large"}
    largest = summarise(found)[-1]
    assert (largest.radius, largest.bound, largest.problems, largest.certified) == (0.8, None, 15, 0.0)


def test_summary_and_export(problem: tuple[lc.Network, Any, Any], tmp_path: Path) -> None:
    network, x, y = problem
    found = lc.campaign(network, x, y, radii=RADII, out=tmp_path / "run.sqlite", attack=True)
    first = summarise(found)[0]
    rows = [row for row in found.rows if row.radius == 0.05]
    assert (first.radius, first.points, first.method) == (0.05, 15, "ClosedForm()")
    assert first.correct == np.mean(network(x).argmax(axis=1) == y)
    assert first.certified == np.mean([row.certified >= 0.05 for row in rows])
    assert first.unbroken is not None
    assert first.certified <= first.unbroken <= first.correct
    assert first.mean_plain <= first.mean_radius <= 0.05
    export(found, tmp_path / "run.csv")
    with (tmp_path / "run.csv").open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert [float(line["bound"]) for line in lines] == [row.bound for row in found.rows]
    export(found, tmp_path / "run.json")
    record = json.loads((tmp_path / "run.json").read_text())
    assert [Row(**row) for row in record["rows"]] == list(found.rows)
    with pytest.raises(lc.InvalidInput, match=r"\.csv or \.json"):
        export(found, tmp_path / "run.xlsx")


def test_points_from_files(tmp_path: Path) -> None:
    network = random_network(0, (4, 5, 3))
    x, y = np.arange(8.0).reshape(2, 4), np.array([2, 0])
    np.savez(tmp_path / "both.npz", x=x.reshape(2, 2, 2), y=y)
    np.savez(tmp_path / "bare.npz", x=x)
    (tmp_path / "bare.csv").write_text("0,1,2,3\n4,5,6,7\n")
    (tmp_path / "named.csv").write_text("a,b,label,c,d\n0,1,2,2,3\n4,5,0,6,7\n")
    for name, labelled in (("both.npz", True), ("bare.npz", False), ("bare.csv", False), ("named.csv", True)):
        found = read_points(tmp_path / name, network)
        np.testing.assert_array_equal(found.x, x)
        assert (found.y is not None) == labelled
        if labelled:
            np.testing.assert_array_equal(found.y, y)
    assert Points.of(network, x, y).digest == read_points(tmp_path / "both.npz", network).digest
    assert Points.of(network, x).digest != Points.of(network, x, y).digest


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("five.csv", "0,1,2,3,1\n4,5,6,7,0\n", "name it y in a first line of names"),
        ("ragged.csv", "0,1,2,3\n4,5,6\n", "columns changed"),
        ("empty.csv", "", "holds no points"),
        ("words.csv", "a,b,c,d\n0,1,x,3\n", "could not convert string 'x'"),
        ("two.csv", "y,label,a,b,c,d\n0,0,0,1,2,3\n", "one for labels at most"),
        ("class.csv", "a,b,c,d,y\n0,1,2,3,7\n", "whole numbers from 0 to 2; got 7"),
        ("text.txt", "0,1,2,3", r"must be an \.npz file"),
        ("typo.csv", "1.0,O.5,0,0\n0,1,2,3\n", r"first line has numbers and words: 1.0, o.5"),
        ("broken.npz", "PK nonsense", "broken.npz"),
    ],
)
def test_points_that_make_no_sense(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(lc.InvalidInput, match=message):
        read_points(tmp_path / name, random_network(0, (4, 5, 3)))


def test_wrong_use(problem: tuple[lc.Network, Any, Any], tmp_path: Path) -> None:
    network, x, y = problem
    out = tmp_path / "run.sqlite"
    for message, named in {
        "radii must be positive": {"radii": []},
        "x must be": {"x": x[:, :2]},
        "one label a point": {"y": y[:3]},
        "methods: 'scaler' is unknown": {"methods": ["scaler"]},
        "workers must be at least 1": {"workers": 0},
        "points must be a number or a slice, of at least one of the 15 points": {"points": 0},
        "of at least one of the 15 points, got 'few'": {"points": "few"},
        "restarts must be at least 1": {"restarts": 0},
        "seconds must be": {"seconds_per_point": -1},
        "points lie outside": {"clip": (0, 1)},
        "clip must be a pair": {"clip": 3},
        "whole numbers from 0 to 1": {"network": random_network(0, (x.shape[1], 3, 1)), "y": [2] * len(x)},
    }.items():
        arguments: dict[str, Any] = {"network": network, "x": x, "y": y, "radii": [0.1], "out": out} | named
        with pytest.raises(lc.InvalidInput, match=message):
            lc.campaign(**arguments)
    assert not out.exists()


def test_a_search_finds_what_single_calls_find(problem: tuple[lc.Network, Any, Any], tmp_path: Path) -> None:
    network, x, y = problem[0], problem[1][:2], problem[2][:2]
    told: list[str] = []
    options: dict[str, Any] = {"out": tmp_path / "run.sqlite", "search": True, "progress": told.append}
    found = lc.campaign(network, x, y, attack=True, **options)
    assert len(found.rows) == len(x)
    for row in found.rows:
        single = lc.certified_radius(network, x[row.point], int(y[row.point]))
        assert (row.radius, row.certified, row.basis) == (0.0, single.radius, single.basis)
        assert row.robust == (single.radius > 0.0)
        assert row.broken is None or row.broken >= row.certified
        assert row.plain <= single.ball
    assert f"{len(x)} of {len(x)} rows" in told
    (summary,) = summarise(found)
    assert summary.certified == pytest.approx(np.mean([row.correct for row in found.rows]))
    both = lc.campaign(network, x, y, attack=True, radii=[0.1], **options)
    assert [row for row in both.rows if row.radius == 0.0] == list(found.rows)


def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import lipcert as lc\n"
        "net = lc.Network.from_weights([[[1.0, 0.0], [0.0, 1.0]]])\n"
        "lc.campaign(net, [[1.0, 0.0]], radii=[0.1], out='run.sqlite', workers=2)\n"
    )
    ran = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    assert 'put what it does under the line if __name__ == "__main__":' in ran.stderr
    assert "workers were lost" not in ran.stderr
