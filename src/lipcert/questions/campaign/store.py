"""The SQLite file of a campaign: one row per point, radius and method, written in whole batches.

The file records its format, the points, and the settings that results depend on. A file of another format, a damaged
file, or a file about other points or settings is refused before anything is written. Every row has a checksum.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, Final, get_args, get_type_hints

from lipcert.errors import UnreadableResults
from lipcert.files.whole import is_file

APPLICATION: Final = 0x4C435254  # "LCRT"
VERSION: Final = 5


@dataclass(frozen=True)
class Row:
    """The result for one point, radius and method.

    Attributes
    ----------
    network : digest of the network.
    point : position in the data, from 0.
    radius : ε, of the ball. 0 means that the largest radius was searched; the other columns are about the best ball.
    method : the method, as Python writes it.
    label, predicted : the class that counts, and the class computed.
    margin : a lower bound of f_label - f_j at the point, for the closest other class j.
    bound : proved Lipschitz bound over the ball; None if there is none.
    certified : no input closer than this is of another class, as by :func:`certified_radius` with this radius.
    plain : the same by the rule min(ε, margin/(√2·bound)).
    basis : the proof behind ``certified``: "lipschitz", "relaxation", "second order" and so on, as in
        :class:`CertifiedRadius`; empty where it is 0. With "lipschitz" it is min(ε, m_j/L_j) for the margin and the
        bound of a pair of classes.
    broken : distance of a counterexample within ε, from an attack or from the search for a proof; None if there is
        none.
    problem : why there is no bound.
    seconds : time that a worker took, with its share of what several rows have in common; not compared by ``==``.
    """

    network: str
    point: int
    radius: float
    method: str
    label: int
    predicted: int
    margin: float
    bound: float | None
    certified: float
    plain: float
    basis: str = ""
    broken: float | None = None
    problem: str | None = None
    seconds: float = field(default=0.0, compare=False)

    @property
    def correct(self) -> bool:
        """Whether the point is classified correctly."""
        return self.label == self.predicted

    @property
    def robust(self) -> bool:
        """Whether the whole ball is certified; after a search, whether any ball is."""
        return self.certified >= self.radius if self.radius > 0.0 else self.certified > 0.0


COLUMNS: Final = tuple(column.name for column in fields(Row))
_SQL: Final = {int: "INTEGER", float: "REAL", str: "TEXT"}
_KINDS: Final = {name: (get_args(kind) or (kind,)) for name, kind in get_type_hints(Row).items() if name in COLUMNS}
_TYPES: Final = {name: _SQL[kind[0]] + " NOT NULL" * (NoneType not in kind) for name, kind in _KINDS.items()}
_SCHEMA: Final = (
    "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE results ("
    + ", ".join(f"{name} {_TYPES[name]}" for name in COLUMNS)
    + ", checksum INTEGER NOT NULL, PRIMARY KEY (network, point, radius, method)) WITHOUT ROWID",
    "CREATE TABLE batches (number INTEGER PRIMARY KEY, rows INTEGER NOT NULL, seconds REAL NOT NULL)",
)


def _fits(name: str, value: Any) -> bool:
    """Whether a value has its column's type, which SQLite does not check, and is one that a campaign stores."""
    if type(value) is float:
        sane = name == "margin" or (math.isfinite(value) and value >= 0.0)
    else:
        sane = not isinstance(value, int) or abs(value) < 2**53
    return type(value) in _KINDS[name] and sane


def _checksum(values: tuple[Any, ...]) -> int:
    return zlib.crc32(repr(values).encode())


class Store:
    """An open results file."""

    def __init__(self, path: str | os.PathLike[str], *, create: bool = False) -> None:
        self.path = Path(path)
        if not is_file(self.path) and (not create or os.path.lexists(self.path)):
            raise UnreadableResults(f"{self.path} does not exist or is no file")
        if not self.path.parent.is_dir():
            raise UnreadableResults(f"the folder of {self.path} does not exist")
        with ExitStack() as failed:
            try:
                self.connection = sqlite3.connect(self.path, timeout=60.0, isolation_level=None)
                failed.callback(self.close)
                self._open(create)
            except (sqlite3.OperationalError, ValueError) as error:  # ValueError: a name that no file can have
                raise UnreadableResults(f"{self.path} cannot be used: {error}") from None
            except sqlite3.Error as error:
                raise UnreadableResults(f"{self.path} is damaged or not a results file: {error}") from None
            failed.pop_all()

    def _open(self, create: bool) -> None:
        run = self.connection.execute
        if create:
            with self._transaction():  # another process may do the same
                if not self._tables() and run("PRAGMA application_id").fetchone()[0] == 0:
                    run(f"PRAGMA application_id = {APPLICATION}")
                    run(f"PRAGMA user_version = {VERSION}")
                    for statement in _SCHEMA:
                        run(statement)
        if run("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise UnreadableResults(f"{self.path} is not a file of lipcert's results; it is left alone")
        (version,) = run("PRAGMA user_version").fetchone()
        if version != VERSION:
            raise UnreadableResults(
                f"{self.path} is of version {version}, this program reads version {VERSION}; run the campaign again,"
                " into another file"
            )
        self._check()

    def _tables(self) -> set[str]:
        """The SQL of the tables."""
        return {sql for (sql,) in self.connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}

    def _check(self) -> None:
        """Raise if the file or a row is damaged."""
        (status,) = self.connection.execute("PRAGMA quick_check(1)").fetchone()
        if status != "ok":
            raise UnreadableResults(f"{self.path} is damaged: {status}")
        if self._tables() != set(_SCHEMA):
            raise UnreadableResults(
                f"{self.path} is damaged or was changed: its tables are not those of a results file"
            )
        for *values, checksum in self.connection.execute(f"SELECT {', '.join(COLUMNS)}, checksum FROM results"):
            place = f"point {ascii(values[1])[:20]}, radius {ascii(values[2])[:20]}"
            if _checksum(tuple(values)) != checksum:
                raise UnreadableResults(f"{self.path} is damaged: the row of {place} does not match its checksum")
            wrong = [name for name, value in zip(COLUMNS, values, strict=True) if not _fits(name, value)]
            if wrong:
                raise UnreadableResults(
                    f"{self.path} is damaged: in the row of {place}, {wrong[0]} is not of the kind that belongs there"
                )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Make all changes of the block, or none."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    def agree(self, about: Mapping[str, Any]) -> None:
        """Store the settings, or raise if the file has other settings."""
        with self._transaction():
            known = dict(self.connection.execute("SELECT name, value FROM about"))
            for name, value in about.items():
                text = json.dumps(value, sort_keys=True)
                if known.get(name, text) != text:
                    raise UnreadableResults(
                        f"{self.path} holds results with other {name} ({_short(known[name])}, now {_short(text)}); name"
                        " another file for these"
                    )
                self.connection.execute("INSERT OR IGNORE INTO about VALUES (?, ?)", (name, text))

    def note(self, names: Mapping[str, str]) -> None:
        """Store names for reports; later names replace earlier ones."""
        with self._transaction():
            rows = [(name, json.dumps(value)) for name, value in names.items()]
            self.connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", rows)

    def about(self) -> dict[str, Any]:
        """Settings and names."""
        return {name: json.loads(value) for name, value in self.connection.execute("SELECT name, value FROM about")}

    def done(self, network: str) -> set[tuple[int, float, str]]:
        """Point, radius and method of each row."""
        query = "SELECT point, radius, method FROM results WHERE network = ?"
        return set(self.connection.execute(query, (network,)))

    def add(self, rows: Iterable[Row], seconds: float) -> int:
        """Add a batch in one transaction; return the number of new rows. A row that exists is kept."""
        places = ", ".join("?" * (len(COLUMNS) + 1))
        with self._transaction():
            before = self.connection.total_changes
            self.connection.executemany(
                f"INSERT INTO results VALUES ({places}) ON CONFLICT (network, point, radius, method) DO NOTHING",
                [(*values, _checksum(values)) for values in map(astuple, rows)],
            )
            new = self.connection.total_changes - before
            self.connection.execute("INSERT INTO batches (rows, seconds) VALUES (?, ?)", (new, seconds))
        return new

    def rows(self) -> list[Row]:
        """All rows, in the order of their key."""
        query = f"SELECT {', '.join(COLUMNS)} FROM results ORDER BY network, method, radius, point"
        return [Row(*values) for values in self.connection.execute(query)]

    def seconds(self) -> float:
        """Total time of the workers."""
        return float(self.connection.execute("SELECT TOTAL(seconds) FROM batches").fetchone()[0])

    def close(self) -> None:
        """Close the file."""
        self.connection.close()


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:16]}…"
