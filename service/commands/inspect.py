"""`tercet inspect`: what an index, a document of it, or a model folder holds."""

from bisect import bisect_left
from collections.abc import Mapping

import numpy as np
from rich.table import Table
from rich.text import Text

from indexer.ann import DenseRecord
from indexer.errors import SnapshotError
from indexer.files import shown_path
from indexer.manifest import Manifest, read_manifest
from indexer.metadata import FieldRecord
from indexer.publish import current_snapshot
from indexer.snapshot import Snapshot
from indexer.store import StoredPassage
from models.folder import ModelFolder, open_model_folder
from service.commands.faults import CommandError
from service.commands.output import console, counted, print_json, printable, printable_lines, size
from service.settings import Settings

_MOST_CHARACTERS = 2_000  # of one fact on a terminal


def inspect_index(settings: Settings, *, as_json: bool) -> None:
    """Print what the configured index holds, after every file's hash was compared with the manifest."""
    snapshot, manifest = _open(settings)
    snapshot.close()
    fields = [_field_facts(field) for field in snapshot.metadata.fields.values()]
    facts = {
        "index": settings.index,
        "path": shown_path(settings.data_path, settings.index),
        "n_bytes": manifest.n_bytes,
    }
    if as_json:
        print_json(facts | manifest.model_dump(mode="json") | {"fields": fields})
        return
    _print_facts(
        {
            "index": settings.index,
            "snapshot": manifest.snapshot_id,
            "built": f"{manifest.created_at:%Y-%m-%d %H:%M:%S} UTC",
            "documents": f"{manifest.n_documents:,}",
            "passages": f"{manifest.n_passages:,}, {manifest.n_cut_passages:,} of them cut by the dual encoder",
            "dual encoder": f"{manifest.encoder.name}, {manifest.encoder.dimension} dimensions",
            "encoder fingerprint": manifest.encoder.fingerprint,
            "passage tokenizer": manifest.passage_tokenizer_fingerprint,
            "BM25": f"{manifest.bm25.n_terms:,} terms, k1 {manifest.bm25.k1}, b {manifest.bm25.b}",
            "analyzer": manifest.bm25.analyzer,
            "dense index": _dense_sentence(manifest.dense),
            "size": size(manifest.n_bytes),
        }
        | {f"  {name}": size(record.n_bytes) for name, record in manifest.files.items()}
        | {"fields": f"{len(fields):,}, for filters and facets"}
        | {f"  {field.name}": _field_sentence(field) for field in snapshot.metadata.fields.values()}
    )


def _field_facts(field: FieldRecord) -> dict[str, object]:
    columns = [
        {"kind": column.kind, "n_documents": column.n_documents}
        | ({"n_texts": column.n_texts} if column.kind == "text" else {})
        for column in field.columns
    ]
    return {"name": field.name, "columns": columns}


def _field_sentence(field: FieldRecord) -> str:
    """Return `number in 12 documents; text in 1 document, 1 distinct`."""
    return "; ".join(
        f"{column.kind} in {counted(column.n_documents, 'document')}"
        + (f", {column.n_texts:,} distinct" if column.kind == "text" else "")
        for column in field.columns
    )


def _dense_sentence(record: DenseRecord) -> str:
    if record.recall is None:
        return "flat, exact"
    lists = f"{record.n_lists:,} lists, {record.effort:,} probed" if record.n_lists else f"depth {record.effort:,}"
    return f"{record.kind}, {lists}, finds {record.recall:.1%} of the true best {record.recall_depth}"


def inspect_document(document_id: str, settings: Settings, *, as_json: bool) -> None:
    """Print a document's fields and its passages, in order.

    Raises:
        CommandError: the index holds no such document.
    """
    snapshot, _ = _open(settings)
    try:
        document = snapshot.document(document_id)
        if document is None:
            raise CommandError(f"the index {settings.index!r} holds no document {document_id!r}")
        passages = passages_of(snapshot, document_id)
    finally:
        snapshot.close()
    if as_json:
        fields = ("passage_id", "start", "end", "heading", "text")
        print_json(
            {
                "document_id": document.document_id,
                "title": document.title,
                "url": document.url,
                "metadata": dict(document.metadata),
                "n_characters": len(document.text),
                "passages": [{name: getattr(passage, name) for name in fields} for passage in passages],
            }
        )
        return
    facts = {"document": document.document_id, "title": document.title, "url": document.url or ""}
    _print_facts(facts | {name: str(value) for name, value in document.metadata.items()})
    out = console()
    for passage in passages:
        out.print()
        head = f"{passage.passage_id} [{passage.start}, {passage.end}) {passage.heading}"
        out.print(Text(printable(head), style="bold"))
        out.print(Text(printable_lines(passage.text)))


def inspect_model(name_or_path: str, *, as_json: bool) -> None:
    """Print what a model folder says of itself, after its files' hashes were compared with it."""
    folder = open_model_folder(name_or_path, None)
    facts = _model_facts(folder)
    if as_json:
        print_json(facts | folder.settings.model_dump(mode="json"))
        return
    shown = folder.settings.model_dump(mode="json", exclude={"files", "recipe"}, exclude_none=True)
    _print_facts({name: str(value) for name, value in (facts | shown).items()})


def passages_of(snapshot: Snapshot, document_id: str) -> list[StoredPassage]:
    """Return the passages of a document in order; rows are sorted by document id, so its rows are a range."""

    def document_at(row: int) -> str:
        return snapshot.passages(np.array([row]))[0].document_id

    first = bisect_left(range(snapshot.n_passages), document_id, key=document_at)
    last = first
    while last < snapshot.n_passages and document_at(last) == document_id:
        last += 1
    return snapshot.passages(np.arange(first, last))


def _open(settings: Settings) -> tuple[Snapshot, Manifest]:
    """Open the configured index without its encoder: nothing is searched."""
    index_path = settings.data_path / settings.index
    folder = current_snapshot(index_path)
    if folder is None:
        raise SnapshotError(f"there is no index {settings.index!r} in {settings.data_path}")
    manifest = read_manifest(folder)
    made = manifest.encoder
    snapshot = Snapshot.open(index_path, encoder_fingerprint=made.fingerprint, dimension=made.dimension)
    return snapshot, manifest


def _model_facts(folder: ModelFolder) -> dict[str, object]:
    n_bytes = sum((folder.path / name).stat().st_size for name in folder.settings.files)
    return {"path": shown_path(folder.path), "fingerprint": folder.fingerprint, "n_bytes": n_bytes}


def _told(text: str) -> str:
    left_out = len(text) - _MOST_CHARACTERS
    return text if left_out <= 0 else f"{text[:_MOST_CHARACTERS]}… ({left_out:,} characters more; --json has them)"


def _print_facts(facts: Mapping[str, str]) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(*(Text(printable(_told(each))) for each in (name, value)))
    console().print(table)
