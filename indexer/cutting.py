"""The second step of a build: documents, in order, become passages with their terms and tokens.

What the snapshot before holds of an unchanged document is copied; the files are the same bytes either way.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from indexer.bm25 import Bm25Builder
from indexer.chunking import chunk
from indexer.documents import Document, passage_text
from indexer.layout import BM25_FOLDER, METADATA_FOLDER, STORE_FILE, TOKENS_FILE
from indexer.metadata_writer import MetadataBuilder
from indexer.previous import Previous
from indexer.recipe import BuildSettings, IndexModels
from indexer.store import StoreWriter
from indexer.tokens import TokenWriter


def cut(
    documents: Iterable[Document],
    folder: Path,
    recipe: tuple[IndexModels, BuildSettings],
    previous: Previous | None,
    report: Callable[[int], None],
) -> int:
    """Write the store, the BM25 index, the metadata and the token file; return how many documents were unchanged.

    Args:
        documents: in the order of their ids.
        folder: of the snapshot under way.
        recipe: the models and settings of the build.
        previous: what to copy from, None for nothing.
        report: is told how many documents are done after each.
    """
    models, settings = recipe
    cutter = _Cutter(folder, models, settings)
    n_unchanged = 0
    try:
        with TokenWriter(
            folder / TOKENS_FILE,
            vocabulary_size=models.passage_tokenizer.vocabulary_size,
            tokenizer_fingerprint=models.passage_tokenizer_fingerprint,
        ) as tokens:
            for done, document in enumerate(documents, 1):
                if previous is not None and cutter.copy(document, previous, tokens):
                    n_unchanged += 1
                else:
                    cutter.cut(document, tokens)
                report(done)
        cutter.finish(folder)
    finally:
        cutter.close()
    return n_unchanged


class _Cutter:
    def __init__(self, folder: Path, models: IndexModels, settings: BuildSettings) -> None:
        self._models, self._settings = models, settings
        self._analyzer = settings.analyzer
        self._store = StoreWriter(folder / STORE_FILE)
        self._metadata = MetadataBuilder(folder / "metadata.sqlite")
        self._bm25 = Bm25Builder(k1=settings.k1, b=settings.b)

    def cut(self, document: Document, tokens: TokenWriter) -> None:
        passages = chunk(document, self._models.dual_encoder.tokenizer, self._settings.chunking)
        self._store.add(document, passages)
        self._metadata.add(document, len(passages))
        texts = [passage_text(document, passage) for passage in passages]
        for text, tokenized in zip(texts, self._models.passage_tokenizer.encode_batch(texts), strict=True):
            self._bm25.add(self._analyzer.analyze(text))
            tokens.add(tokenized.ids)

    def copy(self, document: Document, previous: Previous, tokens: TokenWriter) -> bool:
        """Return whether the document was unchanged, and then added."""
        found = previous.unchanged(document)
        if found is None:
            return False
        passages, rows = found
        self._store.add(document, passages)
        self._metadata.add(document, len(passages))
        for row, ids in zip(rows.tolist(), previous.tokens(rows), strict=True):
            self._bm25.adopt(previous.forward, row)
            tokens.add(ids)
        return True

    def finish(self, folder: Path) -> None:
        self._store.finish()
        self._metadata.write(folder / METADATA_FOLDER)
        self._bm25.write(folder / BM25_FOLDER)

    def close(self) -> None:
        self._store.close()
        self._metadata.close()
