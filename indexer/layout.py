"""The names of a snapshot's files."""

from indexer.bm25 import BM25_FILES
from indexer.metadata import METADATA_FILES

STORE_FILE = "documents.sqlite"
DENSE_FILE = "dense.faiss"
ANN_FILE = "ann.faiss"
TOKENS_FILE = "tokens.bin"
KEYS_FILE = "passage_keys.npy"
BM25_FOLDER = "bm25"
METADATA_FOLDER = "metadata"


def snapshot_files(*, has_ann: bool) -> frozenset[str]:
    """Return every file of a snapshot but its manifest, relative to its folder; one with has_ann is not flat."""
    own = {STORE_FILE, DENSE_FILE, TOKENS_FILE, KEYS_FILE, *([ANN_FILE] if has_ann else [])}
    parts = {f"{BM25_FOLDER}/{name}" for name in BM25_FILES} | {f"{METADATA_FOLDER}/{name}" for name in METADATA_FILES}
    return frozenset(own | parts)
