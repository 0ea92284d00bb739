"""The demo provider's memory: one SQLite file, so that its own kill -9 loses no response and no line of the ledger.

One connection, one lock, one process a file: nothing here is worth more machinery. Money and status are not stored;
they follow from a response's times and the clock.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agentruns.demo.faults import Fault, parse
from agentruns.demo.response import Response

TABLES = """
CREATE TABLE IF NOT EXISTS response (
    id TEXT PRIMARY KEY, key TEXT, created_at REAL NOT NULL, cancelled_at REAL, deleted_at REAL, rest TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS response_key ON response (key);
CREATE TABLE IF NOT EXISTS post (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, response_id TEXT, idempotency_key TEXT,
    metadata TEXT NOT NULL, prompt_sha256 TEXT NOT NULL, answer TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS prefix (digest BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fault (
    number INTEGER PRIMARY KEY AUTOINCREMENT, directive TEXT NOT NULL, word TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS webhook (
    response_id TEXT PRIMARY KEY, tries INTEGER NOT NULL, next_at REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS struck (what TEXT PRIMARY KEY, times INTEGER NOT NULL) WITHOUT ROWID;
"""


class State:
    """Opens or creates the file. Raises sqlite3.OperationalError when another process has it, or it is not writable."""

    def __init__(self, path: Path) -> None:
        self.lock = threading.RLock()
        self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1)
        self.db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = NORMAL")
        self.db.executescript(TABLES)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self.lock:
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self.db.execute("ROLLBACK")
                raise
            self.db.execute("COMMIT")

    def close(self) -> None:
        with self.lock:
            self.db.close()

    # --- responses ---

    def add(self, response: Response) -> None:
        self.db.execute(
            "INSERT INTO response (id, key, created_at, rest) VALUES (?, ?, ?, ?)",
            (response.id, response.key, response.created_at, json.dumps(response.stored_fields())),
        )

    def response(self, response_id: str) -> Response | None:
        return self._first("WHERE id = ?", response_id)

    def response_with_key(self, key: str) -> Response | None:
        return self._first("WHERE key = ? ORDER BY created_at", key)

    def responses(self) -> list[Response]:
        return self._responses("ORDER BY created_at, rowid")

    def cancelled_at(self, response_id: str) -> float | None:
        with self.lock:
            row = self.db.execute("SELECT cancelled_at FROM response WHERE id = ?", (response_id,)).fetchone()
        return row[0] if row else None

    def mark(self, response_id: str, column: str, at: float) -> None:
        """Sets `cancelled_at` or `deleted_at` once."""
        if column not in {"cancelled_at", "deleted_at"}:
            raise ValueError(column)
        with self.lock:
            self.db.execute(f"UPDATE response SET {column} = ? WHERE id = ? AND {column} IS NULL", (at, response_id))  # noqa: S608

    def _first(self, where: str, value: str) -> Response | None:
        found = self._responses(f"{where} LIMIT 1", value)
        return found[0] if found else None

    def _responses(self, clause: str, *values: str | float) -> list[Response]:
        query = f"SELECT id, key, created_at, cancelled_at, deleted_at, rest FROM response {clause}"  # noqa: S608
        with self.lock:
            rows = self.db.execute(query, values).fetchall()
        return [Response.stored(*row[:5], **json.loads(row[5])) for row in rows]

    # --- webhooks ---

    def unannounced(self, now: float) -> list[Response]:
        """Those whose end, when it comes, is to be told (again) now."""
        told = "SELECT response_id FROM webhook WHERE next_at IS NULL OR next_at > ?"
        return self._responses(f"WHERE id NOT IN ({told}) ORDER BY created_at", now)

    def tries(self, response_id: str) -> int:
        with self.lock:
            row = self.db.execute("SELECT tries FROM webhook WHERE response_id = ?", (response_id,)).fetchone()
        return row[0] if row else 0

    def tried(self, response_id: str, next_at: float | None) -> None:
        """Counts a try to tell of it; `next_at` None: no other is needed."""
        with self.lock:
            self.db.execute(
                "INSERT INTO webhook VALUES (?, 1, ?) "
                "ON CONFLICT (response_id) DO UPDATE SET tries = tries + 1, next_at = excluded.next_at",
                (response_id, next_at),
            )

    # --- posts: one row for each POST, never changed ---

    def post(self, response_id: str | None, key: str | None, metadata: dict, prompt_sha256: str, answer: str) -> None:
        self.db.execute(
            "INSERT INTO post (at, response_id, idempotency_key, metadata, prompt_sha256, answer) VALUES (?,?,?,?,?,?)",
            (time.time(), response_id, key, json.dumps(metadata), prompt_sha256, answer),
        )

    def posts(self) -> list[dict]:
        names = ("at", "id", "idempotency_key", "metadata", "prompt_sha256", "answer")
        query = "SELECT at, response_id, idempotency_key, metadata, prompt_sha256, answer FROM post ORDER BY number"
        with self.lock:
            rows = self.db.execute(query).fetchall()
        return [dict(zip(names, row, strict=True)) | {"metadata": json.loads(row[3])} for row in rows]

    # --- prompts seen before ---

    def cached_blocks(self, digests: Iterable[bytes]) -> int:
        """How many leading blocks an earlier prompt began with; remembers them all for later ones."""
        known = 0
        unknown: list[tuple[bytes]] = []
        for digest in digests:
            if not unknown and self.db.execute("SELECT 1 FROM prefix WHERE digest = ?", (digest,)).fetchone():
                known += 1
            else:
                unknown.append((digest,))
        self.db.executemany("INSERT OR IGNORE INTO prefix VALUES (?)", unknown)
        return known

    # --- faults ---

    def add_fault(self, fault: Fault, word: str) -> int:
        with self.transaction():
            row = self.db.execute("INSERT INTO fault (directive, word) VALUES (?, ?)", (fault.directive, word))
            return int(row.lastrowid or 0)

    def faults(self) -> list[tuple[int, Fault, str]]:
        """Those that tests have set, as (number, fault, word to match)."""
        with self.lock:
            rows = self.db.execute("SELECT number, directive, word FROM fault ORDER BY number").fetchall()
        return [(number, parse(directive), word) for number, directive, word in rows]

    def clear_faults(self) -> None:
        with self.lock:
            self.db.execute("DELETE FROM fault")

    def strike(self, what: str, times: int | None) -> bool:
        """Counts one use of a fault; False when it has been used `times` times already."""
        query = "SELECT times FROM struck WHERE what = ?"
        used = (self.db.execute(query, (what,)).fetchone() or (0,))[0]
        if times is not None and used >= times:
            return False
        self.db.execute("INSERT OR REPLACE INTO struck VALUES (?, ?)", (what, used + 1))
        return True
