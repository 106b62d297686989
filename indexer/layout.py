"""The names of a snapshot's files."""

STORE_FILE = "documents.sqlite"
DENSE_FILE = "dense.faiss"
ANN_FILE = "ann.faiss"
TOKENS_FILE = "tokens.bin"
KEYS_FILE = "passage_keys.npy"
BM25_FOLDER = "bm25"
METADATA_FOLDER = "metadata"
