"""What the models said of recent queries: their vectors, and the rerank logits of passages of one snapshot.

Neither depends on anything but the texts (ADR 1), the tokens to read and the snapshot, so what is kept is what would
be computed again. The least recently asked go first when it grows beyond its bytes. Used on the event loop only.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from indexer.ranking import Rows
from service.metrics import Metrics

Vector: TypeAlias = NDArray[np.float32]  # (dimension,), of length 1
Logits: TypeAlias = NDArray[np.float32]  # (n,)

_NO_ROWS: Rows = np.empty(0, np.int64)
_NO_LOGITS: Logits = np.empty(0, np.float32)
_OVERHEAD_BYTES = 1400  # of an entry besides its text and arrays, as measured


@dataclass(frozen=True, slots=True, eq=False)
class QueryVector:
    """A query's vector, and how many of its tokens did not fit the encoder."""

    vector: Vector
    cut_tokens: int


class Asked(NamedTuple):
    """A query, and how many tokens of a passage are read with it at most, 0 for all that fit."""

    query: str
    rerank_tokens: int = 0


@dataclass(slots=True, eq=False)
class _Entry:
    """Of what was asked: the query's vector, None if it was not asked for, and logits by row, rows ascending."""

    vector: QueryVector | None
    rows: Rows
    logits: Logits

    def n_bytes(self, asked: Asked) -> int:
        vector = self.vector.vector.nbytes if self.vector is not None else 0
        return _OVERHEAD_BYTES + len(asked.query) * 4 + vector + self.rows.nbytes + self.logits.nbytes


class QueryCache:
    """Keeps at most max_bytes; with 0 it keeps nothing."""

    def __init__(self, max_bytes: int, metrics: Metrics) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Asked, _Entry] = OrderedDict()
        self._snapshot = ""
        self._lookups = metrics.cache_lookups
        self.n_bytes = 0
        metrics.cache_bytes.set_function(lambda: self.n_bytes)

    def vector(self, query: str) -> QueryVector | None:
        """Return the vector of a query, None if it is not known."""
        entry = self._entries.get(Asked(query))
        if entry is not None:
            self._entries.move_to_end(Asked(query))
        found = entry.vector if entry is not None else None
        self._count("vector", n_hits=int(found is not None), n=1)
        return found

    def logits(self, snapshot: str, asked: Asked, rows: Rows) -> Logits:
        """Return the (n,) rerank logits of the rows (n,) of a snapshot, NaN for those that are not known."""
        found = np.full(rows.size, np.nan, np.float32)
        entry = self._entries.get(asked) if snapshot == self._snapshot else None
        if entry is not None and entry.rows.size:
            self._entries.move_to_end(asked)
            places = np.minimum(np.searchsorted(entry.rows, rows), entry.rows.size - 1)
            is_known = entry.rows[places] == rows
            found[is_known] = entry.logits[places[is_known]]
        self._count("logit", n_hits=int(np.isfinite(found).sum()), n=rows.size)
        return found

    def keep_vector(self, query: str, vector: QueryVector) -> None:
        """Keep the vector of a query."""
        entry = self._entries.get(Asked(query), _Entry(None, _NO_ROWS, _NO_LOGITS))
        self._put(Asked(query), replace(entry, vector=vector))

    def keep_logits(self, snapshot: str, asked: Asked, rows: Rows, logits: Logits) -> None:
        """Keep rerank logits of rows of a snapshot; those of another than the current one, and NaN, are not kept."""
        if snapshot != self._snapshot:
            return
        entry = self._entries.get(asked, _Entry(None, _NO_ROWS, _NO_LOGITS))
        is_new = np.isfinite(logits) & ~np.isin(rows, entry.rows)
        all_rows = np.concatenate([entry.rows, rows[is_new]])
        order = np.argsort(all_rows)
        self._put(asked, _Entry(entry.vector, all_rows[order], np.concatenate([entry.logits, logits[is_new]])[order]))

    def serve(self, snapshot: str) -> None:
        """Forget all that is kept, and keep logits of this snapshot from now on."""
        self._snapshot = snapshot
        self._entries.clear()
        self.n_bytes = 0

    def _put(self, asked: Asked, entry: _Entry) -> None:
        before = self._entries.pop(asked, None)
        self._entries[asked] = entry
        self.n_bytes += entry.n_bytes(asked) - (before.n_bytes(asked) if before is not None else 0)
        while self.n_bytes > self._max_bytes:
            oldest, dropped = self._entries.popitem(last=False)
            self.n_bytes -= dropped.n_bytes(oldest)

    def _count(self, what: str, *, n_hits: int, n: int) -> None:
        self._lookups.labels(what, "hit").inc(n_hits)
        self._lookups.labels(what, "miss").inc(n - n_hits)
