"""The last step of a build before it is published: the manifest, and whether it says anything new."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

from indexer.ann import DenseWish
from indexer.bm25 import Bm25Index
from indexer.embedding import Embedded
from indexer.layout import BM25_FOLDER, STORE_FILE
from indexer.manifest import MANIFEST_FILE, Bm25Record, EncoderRecord, Manifest, record_files
from indexer.publish import snapshots_folder
from indexer.recipe import BuildSettings, IndexModels
from indexer.store import Store


def describe(folder: Path, index_path: Path, recipe: tuple[IndexModels, BuildSettings], embedded: Embedded) -> Manifest:
    """Write the manifest of the snapshot whose other files lie in a folder, and return it."""
    models, settings = recipe
    store = Store(folder / STORE_FILE)
    store.close()
    files = record_files(folder)
    encoder = models.dual_encoder
    created_at = datetime.now(UTC).replace(microsecond=0)
    content = hashlib.sha256("".join(record.sha256 for record in files.values()).encode()).hexdigest()
    manifest = Manifest(
        snapshot_id=_new_id(index_path, f"{created_at:%Y%m%dT%H%M%SZ}-{content[:8]}"),
        created_at=created_at,
        n_documents=store.n_documents,
        n_passages=store.n_passages,
        n_cut_passages=embedded.n_cut,
        encoder=EncoderRecord(name=models.encoder_name, fingerprint=encoder.fingerprint, dimension=encoder.dimension),
        passage_tokenizer_fingerprint=models.passage_tokenizer_fingerprint,
        bm25=Bm25Record(
            analyzer=settings.analyzer.name,
            k1=settings.k1,
            b=settings.b,
            n_terms=Bm25Index(folder / BM25_FOLDER, n_passages=store.n_passages).n_terms,
        ),
        dense=embedded.record,
        dense_wish=DenseWish(
            kind=settings.dense.kind, recall=settings.dense.recall, memory_bytes=settings.dense.memory_bytes
        ),
        chunking=settings.chunking,
        files=files,
    )
    write_manifest(folder, manifest)
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write manifest.json."""
    (folder / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")


def says_the_same(manifest: Manifest, before: Manifest) -> bool:
    """Return whether two snapshots have the same files from the same recipe; id, time and evaluation are aside."""
    same = {"snapshot_id": before.snapshot_id, "created_at": before.created_at, "evaluation": before.evaluation}
    return manifest.model_copy(update=same) == before.model_copy(update={"dense_wish": before.wish})


def _new_id(index_path: Path, wanted: str) -> str:
    """Return the wanted id, with a number if it is taken: the same content was built twice in a second."""
    number, snapshot_id = 1, wanted
    while (snapshots_folder(index_path) / snapshot_id).exists():
        number += 1
        snapshot_id = f"{wanted}-{number}"
    return snapshot_id
