"""Readers of bytes from outside: each gives what it declares, or one sentence on what is wrong, and nothing else."""

import json
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from pathlib import Path

from indexer.archives import read_archive
from indexer.documents import Assumed, Document, Skipped
from indexer.encodings import decode
from indexer.errors import BuildError, NoDocumentError, SnapshotError
from indexer.layout import snapshot_files
from indexer.manifest import MANIFEST_FILE, parse_manifest
from indexer.publish import became_current
from indexer.records import read_json_lines
from indexer.sources import read_documents
from indexer.tables import read_table
from models.errors import DataError, ModelFolderError
from models.folder import BUNDLED, BUNDLED_READER, SETTINGS_FILE, open_model_folder
from models.training.beir import read_judgements, read_queries
from service.bodies import parse
from service.gate import read_gate_queries
from service.job_store import JobStore, Order, new_job
from service.key_file import KeyFile, KeyFileError
from service.keys import Limits, new_key
from service.problems import MalformedBody
from service.scopes import KeyScope
from tests.fuzz.target import Target, mutations, require_one_sentence
from tests.fuzz.texts import TRICKY

MAX_LINE_BYTES = 200

_FOLDER = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())


@contextmanager
def written(content: bytes, name: str) -> Iterator[Path]:
    """Give a file of that content in a folder of its own."""
    with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        yield path


def check_json_lines(content: bytes) -> None:
    """Each line is, in order, a document, a skip with its number, or blank."""
    with written(content, "a.jsonl") as path:
        try:
            records = list(read_json_lines(path, max_line_bytes=MAX_LINE_BYTES))
        except NoDocumentError as error:
            require_one_sentence(error)
            assert content.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf\xff\xfe", b"\xef\xbb\xbf\xfe\xff"))
            return
    outstanding, ids = iter(records), set()
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip() and len(line) <= MAX_LINE_BYTES:
            continue
        record = next(outstanding)
        if isinstance(record, Skipped):
            assert record.line == number
            _require_skip(record)
            continue
        assert isinstance(record, Document)
        said = json.loads(line)
        assert record.document_id in [str(value) for value in said.values()]
        assert record.text in said.values()
        assert record.document_id not in ids
        ids.add(record.document_id)
        _require_document(record)
    assert next(outstanding, None) is None


def check_table(content: bytes) -> None:
    """A table gives documents, and skips in the order of their lines."""
    for name in ("a.csv", "a.tsv"):
        with written(content, name) as path:
            try:
                records = list(read_table(path, max_record_characters=MAX_LINE_BYTES))
            except NoDocumentError as error:
                require_one_sentence(error)
                continue
        lines = [record.line for record in records if isinstance(record, Skipped)]
        assert lines == sorted(lines, key=lambda line: line or 0)
        assert all(line is not None and 1 < line <= content.count(b"\n") + 1 for line in lines) or b"\n" not in content
        for record in records:
            _require_record(record)


def check_file(content: bytes) -> None:
    """A file of any kind that is read in this process gives records, and at least one."""
    for suffix in (".txt", ".md", ".rst", ".jsonl", ".csv", ".jsonl.gz"):
        with written(content, f"a{suffix}") as path:
            records = list(read_documents(str(path.parent)))
        assert records
        for record in records:
            _require_record(record)


def check_encoding(content: bytes) -> None:
    """Bytes are a text without NUL, which in UTF-8 gives the same bytes, or are no text."""
    for declared in (None, "latin-1", "utf-8", "shift_jis", "utf-7", "base64", "\0"):
        try:
            text, encoding = decode(content, declared=declared)
        except NoDocumentError as error:
            require_one_sentence(error)
            assert 1 <= (error.line or 0) <= content.count(b"\n") + 1 or b"\0" in content  # noqa: PT017
            continue
        assert "\0" not in text
        if encoding.name == "utf-8":
            assert text.encode() == content


def _require_record(record: object) -> None:
    if isinstance(record, Document):
        _require_document(record)
    elif isinstance(record, Skipped):
        _require_skip(record)
    else:
        assert isinstance(record, Assumed)


def _require_document(document: Document) -> None:
    assert document.document_id.strip()
    for text in (document.document_id, document.text, document.title, document.url or ""):
        text.encode()
    for name, value in document.metadata.items():
        name.encode()
        assert isinstance(value, str | bool | int | float)
        assert not isinstance(value, float) or abs(value) < float("inf")
        assert isinstance(value, str | float) or -(2**63) <= value < 2**63
        str(value).encode()


def _require_skip(skipped: Skipped) -> None:
    assert skipped.reason.isprintable(), skipped.reason
    assert len(skipped.reason) < 300


def check_manifest(content: bytes) -> None:
    """Any bytes are a manifest, which can be written and read again, or are refused in one sentence."""
    try:
        manifest = parse_manifest(content, "manifest.json")
    except SnapshotError as error:
        require_one_sentence(error)
        return
    assert parse_manifest(manifest.model_dump_json().encode(), "manifest.json") == manifest
    assert manifest.wish.recall <= 1
    assert manifest.n_bytes >= 0
    assert Path("snapshots", manifest.snapshot_id).parent == Path("snapshots")


def check_archive(content: bytes) -> None:
    """An archive brings files of a snapshot into its folder, or is refused in one sentence; nothing lies elsewhere."""
    with written(content, "a.tar") as path:
        folder = path.parent / "folder"
        folder.mkdir()
        try:
            manifest = read_archive(path, folder, path.parent)
        except (SnapshotError, BuildError) as error:
            require_one_sentence(error)
        else:
            found = {each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()}
            assert found <= {MANIFEST_FILE, *manifest.files}
        assert sorted(each.name for each in path.parent.iterdir()) == ["a.tar", "folder"]


def check_model(content: bytes) -> None:
    """Any bytes are the model.json of a model that lacks its files, or are refused in one sentence; none opens."""
    with written(content, SETTINGS_FILE) as path:
        try:
            open_model_folder(str(path.parent), None)
        except ModelFolderError as error:
            require_one_sentence(error)
        else:
            raise AssertionError("there are no weights")


def check_keys(content: bytes) -> None:
    """Any bytes are a file of keys, which can be asked, or are damaged in one sentence that quotes none of them."""
    with written(content, ".keys.json") as path:
        try:
            keys = KeyFile(path.parent).read()
        except KeyFileError as error:
            require_one_sentence(error)
            return
    for key in keys:
        assert not key.is_of("tercet_")
        assert key.is_expired(float("inf")) == (key.expires_at is not None)
        key.model_dump_json()


def check_jobs(content: bytes) -> None:
    """Whatever lies among the jobs, those that can be read are loaded, the oldest first, and others are left out."""
    with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
        Path(folder, "a.json").write_bytes(content)
        Path(folder, "b.json").write_bytes(_job())
        store = JobStore(Path(folder))
        try:
            jobs = store.load()
            assert "b" in [job.job_id for job in jobs]
            for job in jobs:
                store.save(job)
        finally:
            store.close()
        assert {path.name for path in Path(folder).iterdir()} == {"a.json", "b.json", "lock", "uploads"}


def check_history(content: bytes) -> None:
    """Whatever the history says, the current snapshot became current last, and each name is that of a snapshot."""
    with written(content, "history") as path:
        index = path.parent
        for name in ("a", "b"):
            (index / "snapshots" / name).mkdir(parents=True)
        (index / "current").symlink_to(Path("snapshots", "a"))
        names = became_current(index)
        assert names[-1] == "a"
        assert {*names} <= {"a", "b"}


def check_queries(content: bytes) -> None:
    """Any bytes are queries with judgements, for a gate or of BEIR, or are refused in one sentence."""
    with written(content, "queries.jsonl") as path:
        (path.parent / "qrels").mkdir()
        (path.parent / "qrels" / "test.tsv").write_bytes(content)
        readers: list[Callable[[], object]] = [
            lambda: read_gate_queries(path),
            lambda: read_queries(path.parent),
            lambda: read_judgements(path.parent, "test"),
        ]
        for reader in readers:
            try:
                reader()
            except DataError as error:
                require_one_sentence(error)


def check_body(content: bytes) -> None:
    """Any bytes are JSON that can be written again, so without lone surrogates and NaN, or refused in one sentence."""
    try:
        parsed = parse(content)
    except MalformedBody as error:
        require_one_sentence(error)
        return
    json.dumps(parsed, allow_nan=False, ensure_ascii=False).encode()
    content.decode()


@cache
def _manifest() -> bytes:
    files = {name: {"sha256": "0" * 64, "n_bytes": 1} for name in sorted(snapshot_files(has_ann=False))}
    content = {
        "format_version": 2,
        "snapshot_id": "20250101T000000Z-0a",
        "created_at": "2025-01-01T00:00:00Z",
        "n_documents": 2,
        "n_passages": 3,
        "n_cut_passages": 0,
        "encoder": {"name": "e", "fingerprint": "f", "dimension": 32},
        "passage_tokenizer_fingerprint": "t",
        "bm25": {"analyzer": "words", "k1": 1.2, "b": 0.75, "n_terms": 5},
        "dense": {"kind": "flat"},
        "dense_wish": {"kind": "auto", "recall": 0.95},
        "chunking": {"max_tokens": 200, "overlap_tokens": 32, "max_characters": 4000},
        "files": files,
        "evaluation": {"ndcg_at_10": 0.5},
    }
    return json.dumps(content).encode()


@cache
def _archive() -> bytes:
    content = BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, each in {MANIFEST_FILE: _manifest(), **dict.fromkeys(json.loads(_manifest())["files"], b"x")}.items():
            member = tarfile.TarInfo(name)
            member.size = len(each)
            tar.addfile(member, BytesIO(each))
    return content.getvalue()


def with_checksums(content: bytes) -> bytes:
    """Return a tar archive with the right checksum in whatever looks like a header: else none of them is looked at."""
    blocks = [bytearray(content[start : start + 512]) for start in range(0, len(content), 512)]
    for block in blocks:
        if block[257:262] == b"ustar" and len(block) == 512:
            block[148:156] = b" " * 8
            block[148:156] = b"%06o\0 " % sum(block)
    return b"".join(blocks)


@cache
def _job() -> bytes:
    job = new_job("b", Order("docs", "skip", source="a")).model_dump(mode="json")
    return json.dumps({"number": 0, "job": job}).encode()


def _altered_job(**fields: object) -> bytes:
    kept = json.loads(_job())
    return _altered(_job(), job=kept["job"] | fields)


@cache
def _keys() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = KeyFile(Path(folder))
        with file.changed() as keys:
            keys += [new_key(name, [KeyScope.SEARCH], limits=Limits(concurrent=3))[1] for name in ("web", "ops")]
        return file.path.read_bytes()


def _altered(content: bytes, **fields: object) -> bytes:
    return json.dumps(json.loads(content) | fields).encode()


_STEERING = "a\n\x1b[2J"
_MODEL = (BUNDLED / BUNDLED_READER / SETTINGS_FILE).read_bytes()
_MODELS = (
    _MODEL,
    _altered(_MODEL, **{_STEERING: 1}),
    _altered(_MODEL, format_version=_STEERING * 1_000),
    _altered(_MODEL, outputs=[_STEERING] * 1_000),
    *(_altered(_MODEL, files=json.loads(_MODEL)["files"] | {name: "x"}) for name in ("a" * 300, "a\0", "/dev/zero")),
)
_MANIFESTS = (
    _manifest(),
    _altered(_manifest(), **{_STEERING: 1}),
    _altered(_manifest(), evaluation={"a" * 5_000: "x"}),
    _altered(_manifest(), files=json.loads(_manifest())["files"] | {_STEERING: 1}),
)
_JOBS = (
    _job(),
    _altered_job(job_id="a", created_at="2026-01-01T00:00:00"),
    _altered_job(job_id="a", started_at="2026-01-01T00:00:00", ended_at="2026-01-01T00:00:00Z"),
    *(_altered_job(job_id=name) for name in ("a", "b", "", "x/y", "a\0")),
)
_KEYS = (_keys(), _altered(_keys(), **{_STEERING: 1}), _altered(_keys(), keys=[]))
_LINES = (
    b'\xef\xbb\xbf{"id": "a", "text": "fog", "year": 1999, "tags": ["x"]}\r\n\n'
    b'{"_id": 7, "text": "\\ud83d\\ude80", "title": null}\n',
    '{"docid": "ß", "body": "a\u2028b\u0085c", "metadata": {"x": 1e400, "y": 0.5}}\n'.encode()
    + b'{"id": "a", "text": "\\ud800"}\n[]\nNaN',
)
_TABLES = (
    b'id,text,year,draft\r\na,fog,1999,true\nb,"over\n""harbour""",,false\nc,x,1.5,\n',
    "id\ttext\tn\na\tß\u2028\t01\nb\t\x85\t9223372036854775808\n".encode("utf-16"),
    b"id,text,ye\xebr\na,\xc3\xa9\xc3\xa9\xc3\xa9,1\n",
    "id,text\na,caf\xe9 na\xefve\n".encode("latin-1"),
)
_FILES = (
    *_LINES,
    *_TABLES,
    b"---\ntitle: x\ndate: 2024-01-01\n---\n# A\n",
    b"+++\na.b = 1979-05-27T07:32:00Z\n+++\n",
    b":x: y\n\nA\n=\n",
)
_QUERIES = (
    b'{"query": "a", "id": 1, "relevant": ["x", 2]}\n{"query": "b", "relevant": {"x": 2, "y": 0}}\n',
    b'{"_id": "q", "text": "a", "title": null}\n{"_id": 3, "text": ""}\n',
    b"query-id\tcorpus-id\tscore\nq\td\t1\nq\te\t-2\n",
    b"q\t%s\t1\nq\t%s\t2\n" % (b"d" * 3_000, b"d" * 3_000),
)
_JSON_WORDS = [
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b'"',
        b"null",
        b"true",
        b"1e400",
        b"-1",
        b"NaN",
        b"\\ud800",
        b"\\u0000",
        b"\\n",
        b"1" * 30,
        b'"\\u001b[2J\\n"',
        b"[" * 1200,
    ),
    *(b'"%s"' % name for name in b"id _id text title url metadata relevant query format_version files".split()),
    *(each.encode("utf-8", "surrogatepass") for each in TRICKY),
]
_TABLE_WORDS = [
    b",",
    b"\t",
    b'"',
    b'""',
    b"\r",
    b"\n",
    b"\r\n",
    b"id",
    b"text",
    b"\0",
    b"\xff\xfe",
    b"\xe9",
    b"1",
    b"true",
]
_TAR_WORDS = [
    b"\0" * 8,
    b"7777777\0",
    b"\x80\0\0\0",
    b"\xff" * 12,
    b"L",
    b"x",
    b"g",
    b"S",
    b"K",
    b"manifest.json\0",
    b"../x\0",
    b"17 size=-1\n",
]
_DATE_WORDS = [b'"2024-01-01T00:00:00"', b'"0001-01-01T00:00:00+23:59"', b'"9999-12-31T23:59:59-23:59"', b"1e11"]


def _of_bytes(
    name: str, check: Callable[[bytes], None], seeds: tuple[bytes, ...], words: list[bytes], n: int = 100
) -> Target[bytes]:
    return Target(name, check, mutations(seeds, words), bytes, seeds, words, n)


TARGETS = (
    _of_bytes("json-lines", check_json_lines, _LINES, [b"\n", b"\r\n", *_JSON_WORDS], 200),
    _of_bytes("table", check_table, _TABLES, _TABLE_WORDS),
    _of_bytes("file", check_file, _FILES, [b"\n", *_JSON_WORDS, *_TABLE_WORDS], 50),
    _of_bytes("encoding", check_encoding, _TABLES, _TABLE_WORDS, 50),
    _of_bytes("manifest", check_manifest, _MANIFESTS, [*_JSON_WORDS, *_DATE_WORDS]),
    Target(
        "archive",
        check_archive,
        mutations((_archive(),), _TAR_WORDS).map(with_checksums),
        with_checksums,
        (_archive(),),
        _TAR_WORDS,
    ),
    _of_bytes("model", check_model, _MODELS, _JSON_WORDS),
    _of_bytes("keys", check_keys, _KEYS, [*_JSON_WORDS, *_DATE_WORDS]),
    _of_bytes("jobs", check_jobs, _JOBS, [*_JSON_WORDS, *_DATE_WORDS]),
    _of_bytes("history", check_history, (b"b\na\n",), [b"a", b"b", b"\n", b"\xff"]),
    _of_bytes("queries", check_queries, _QUERIES, [b"\n", *_JSON_WORDS, *_TABLE_WORDS]),
    _of_bytes("body", check_body, (*_LINES, _manifest()), _JSON_WORDS),
)
