"""The command line in processes of its own: results, exit codes, and one sentence for whatever goes wrong."""

import ast
import json
import os
import resource
import signal
import socket
import urllib.request
from functools import partial
from importlib import metadata
from pathlib import Path

import pytest

from service.__main__ import complaint, main
from tests.service.commands import TIMEOUT_SECONDS, Tercet, tercet_with
from tests.service.conftest import TinyModels

LIGHTHOUSE = {
    "id": "lighthouse",
    "title": "The lighthouse",
    "text": "The lighthouse stands over the harbour. The keeper of the lighthouse reads the tide in the town library.",
    "url": "https://harbour.example/lighthouse",
    "metadata": {"year": 1871},
}
FOG = {"id": "fog", "text": "Fog over the harbour is a warning for every boat."}


def write_json_lines(path: Path, *records: object) -> Path:
    lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tercet(tiny_models: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> Tercet:
    """The command, with an index `default` of two documents."""
    folder = tmp_path_factory.mktemp("cli")
    tercet = tercet_with(tiny_models, folder / "data")
    done = tercet("index", write_json_lines(folder / "documents.jsonl", LIGHTHOUSE, FOG))
    assert done.code == 0, done.stderr
    return tercet


def test_version_is_that_of_the_distribution(tercet: Tercet) -> None:
    done = tercet("--version")
    assert (done.code, done.stdout, done.stderr) == (0, f"tercet {metadata.version('tercet')}\n", "")


@pytest.mark.parametrize(
    "command", ["index", "serve", "search", "answer", "inspect", "evaluate", "demo", "indexes", "snapshots", "doctor"]
)
def test_every_command_explains_itself(tercet: Tercet, command: str) -> None:
    done = tercet(command, "--help")
    assert (done.code, done.stderr) == (0, "")
    assert "Usage: tercet" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["search"],
        ["search", "fog", "--top-k", "0"],
        ["search", "fog", "--mode", "psychic"],
        ["search", "fog", "--filter", "year >"],
        ["answer", "fog", "--filter", ""],
        ["index", "source", "--on-error", "shrug"],
        ["serve", "--port", "65536"],
        ["evaluate"],
        ["evaluate", "--dataset", "here", "--questions", "there"],
        ["inspect", "--document", "fog", "--model", "reader"],
        ["index", "source", "--max-ndcg-drop", "nan"],
        ["index", "source", "--max-answer-drop", "nan"],
        ["search", "fog \udcff"],
        ["search", "fog", "--facet", "\udcff"],
        ["search", "fog", "--filter", "year = '\udcff'"],
        ["answer", "fog \udcff"],
    ],
)
def test_wrong_use_exits_with_2_and_says_how_to_use_it(tercet: Tercet, arguments: list[str]) -> None:
    done = tercet(*arguments)
    assert (done.code, done.stdout) == (2, "")
    assert "Usage: tercet" in done.stderr
    assert "Traceback" not in done.stderr


def test_index_reports_what_it_built_and_what_it_skipped(tercet: Tercet, tmp_path: Path) -> None:
    source = write_json_lines(tmp_path / "documents.jsonl", LIGHTHOUSE, "{not json", FOG)
    again = write_json_lines(tmp_path / "again.jsonl", FOG)
    done = tercet("index", source, again, "--index", "reported", "--json")
    assert done.code == 0
    result = done.result
    assert (result["index"], result["n_documents"], result["n_repeated_ids"]) == ("reported", 2, 1)
    assert result["skipped_by_kind"] == {"bad-record": 1, "repeated-id": 1}
    assert f"{source}:2: " in result["skipped"][0]
    assert f"{source}:2: " in done.stderr
    assert f"Skipped {again}: the id 'fog' came before" in done.stderr


def test_an_id_that_comes_again_fails_where_faults_do_and_no_id_steers_the_terminal(
    tercet: Tercet, tmp_path: Path
) -> None:
    record = {"id": "a\x1b[2J", "text": "Fog."}
    sources = [write_json_lines(tmp_path / f"{name}.jsonl", record) for name in ("first", "again")]
    done = tercet("index", *sources, "--index", "strict", "--on-error", "fail")
    assert done.code == 1
    assert done.stderr.splitlines()[-1] == f"tercet: {sources[1]}: the id 'a\\x1b[2J' came before."


def test_index_shows_progress_in_plain_lines_off_a_terminal(tercet: Tercet, tmp_path: Path) -> None:
    done = tercet("index", write_json_lines(tmp_path / "documents.jsonl", FOG), "--index", "plain")
    lines = done.stderr.splitlines()
    assert (done.code, done.stdout) == (0, "")
    assert [line for line in lines if line.startswith("Embedding passages: 1 in ")]
    assert "Index 'plain' holds 1 document in 1 passage" in lines[-1]
    assert "\x1b" not in done.stderr


def test_index_takes_several_sources_and_folders(tercet: Tercet, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "tide.md").write_text("# Tide\n\nThe tide is in the harbour.\n")
    (tmp_path / "notes" / "chart.xyz").write_text("not read")
    more = write_json_lines(tmp_path / "more.jsonl", FOG)
    done = tercet("index", tmp_path / "notes", more, "--index", "two", "--json")
    assert done.result["n_documents"] == 2
    assert "files of other kinds were left out: 1 .xyz." in done.stderr


def test_index_fails_on_a_bad_record_if_told_to_and_publishes_nothing(tercet: Tercet, tmp_path: Path) -> None:
    source = write_json_lines(tmp_path / "documents.jsonl", FOG, "{not json")
    done = tercet("index", source, "--on-error", "fail", "--data", tmp_path / "data")
    assert done.code == 1
    assert f"{source}:2: " in done.sentence
    good = write_json_lines(tmp_path / "good.jsonl", FOG)
    done = tercet("index", good, good, "--on-error", "fail", "--data", tmp_path / "data")
    assert done.code == 1
    assert "'fog'" in done.sentence
    assert not (tmp_path / "data" / "default" / "current").exists()


def test_search_prints_the_body_of_the_http_response(tercet: Tercet) -> None:
    done = tercet("search", "lighthouse keeper", "--json")
    assert (done.code, done.stderr) == (0, "")
    result = done.result
    assert result["query"] == "lighthouse keeper"
    assert {each["document_id"] for each in result["results"]} == {"lighthouse", "fog"}
    assert {each["score_kind"] for each in result["results"]} == {"relevance"}
    lighthouse = next(each for each in result["results"] if each["document_id"] == "lighthouse")
    assert lighthouse["text"] == str(LIGHTHOUSE["text"])[lighthouse["start"] : lighthouse["end"]]


def test_search_obeys_its_options(tercet: Tercet) -> None:
    result = tercet("search", "keeper", "--mode", "bm25", "--no-rerank", "--top-k", "1", "--json").result
    assert [each["document_id"] for each in result["results"]] == ["lighthouse"]
    assert [each["score_kind"] for each in result["results"]] == ["bm25"]


def test_search_and_answer_are_readable(tercet: Tercet) -> None:
    searched = tercet("search", "keeper", "--mode", "bm25", "--no-rerank")
    assert "1. The lighthouse  bm25 " in searched.stdout
    assert "https://harbour.example/lighthouse" in searched.stdout
    answered = tercet("answer", "what is over the harbour")
    assert (answered.code, answered.stderr) == (0, "")
    assert "[" in answered.stdout


def test_search_filters_and_counts_facets(tercet: Tercet) -> None:
    asked = ("search", "harbour", "--filter", 'year < 1900 and url >= "https:"', "--facet", "year", "--facet", "title")
    result = tercet(*asked, "--json").result
    assert [each["document_id"] for each in result["results"]] == ["lighthouse"]
    assert result["filter"]["n_passages"] == 1
    assert [each["values"][0]["value"] for each in result["facets"]] == [1871, "The lighthouse"]
    shown = tercet(*asked)
    assert shown.stderr == ""
    lines = shown.stdout.splitlines()
    for line in ("year: 1871 (1)", 'title: "The lighthouse" (1)', "The filter left 1 passage of 1 document."):
        assert line in lines
    answered = tercet("answer", "what is over the harbour", "--filter", "not exists year", "--json").result
    assert {each["document_id"] for each in answered["answers"]} == {"fog"}


def test_a_filter_that_cannot_match_or_be_read_is_told(tercet: Tercet) -> None:
    done = tercet("search", "harbour", "--filter", "yaer = 1871 or year = '1871'")
    assert done.code == 0
    assert "Nothing was found." in done.stdout
    assert done.stderr.splitlines() == [
        "No document has the field 'yaer'; `tercet inspect` lists the fields.",
        "The field 'year' has no value of the kind that the filter compares it with.",
    ]
    wrong = tercet("search", "harbour", "--filter", "year = 1871 or or")
    assert wrong.code == 2
    assert "Invalid value for --filter: the filter cannot be read at character 16: the name of a field" in wrong.stderr


def test_inspect_lists_the_fields_with_kinds_and_counts(tercet: Tercet) -> None:
    fields = {each["name"]: each["columns"] for each in tercet("inspect", "--json").result["fields"]}
    assert fields["year"] == [{"kind": "number", "n_documents": 1}]
    assert fields["document_id"] == [{"kind": "text", "n_documents": 2, "n_texts": 2}]
    assert set(fields) == {"document_id", "title", "url", "year"}
    shown = tercet("inspect").stdout
    assert "number in 1 document" in shown
    assert "text in 2 documents, 2 distinct" in shown


def test_a_document_cannot_steer_the_terminal(tercet: Tercet, tmp_path: Path) -> None:
    hostile = {"id": "x", "text": "harbour \x1b]0;owned\x07 [red]tide[/red]"}
    source = write_json_lines(tmp_path / "documents.jsonl", hostile)
    tercet("index", source, "--index", "hostile")
    done = tercet("search", "harbour", "--index", "hostile")
    assert done.code == 0
    assert "\x1b" not in done.stdout
    assert "[red]tide[/red]" in done.stdout


def test_an_output_without_unicode_gets_escapes_and_json_stays_json(tercet: Tercet, tmp_path: Path) -> None:
    record = {"id": "日本", "title": "日本 🐝", "text": "harbour 日本\u202e🐝"}
    source = write_json_lines(tmp_path / "documents.jsonl", record)
    ascii_only = Tercet({**tercet.environment, "PYTHONIOENCODING": "ascii"})
    assert ascii_only("index", source, "--index", "ascii").code == 0
    done = ascii_only("search", "日本 harbour", "--index", "ascii", "--facet", "title")
    assert (done.code, done.stderr) == (0, "")
    assert "harbour \\u65e5\\u672c \\U0001f41d" in done.stdout
    assert ascii_only("search", "日本", "--index", "ascii", "--json").result["results"][0]["text"] == record["text"]
    missing = ascii_only("inspect", "--document", "日本日", "--index", "ascii")
    assert missing.sentence == "The index 'ascii' holds no document '\\u65e5\\u672c\\u65e5'."


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_full_disk_below_stdout_is_one_sentence(tercet: Tercet, options: list[str]) -> None:
    def fill() -> None:
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)

    done = tercet.buffered()("search", "harbour", *options, before=fill)
    assert (done.code, done.sentence) == (1, "No space is left on the disk.")


def test_a_closed_stdout_or_stderr_is_nobody_who_listens(tercet: Tercet) -> None:
    for closed in (1, 2):
        for options in ([], ["--json"]):
            done = tercet("snapshots", "ls", *options, before=partial(os.close, closed))
            assert (done.code, done.stderr) == (0, "")


def test_a_name_is_one_short_line_whatever_it_holds(tercet: Tercet, tmp_path: Path) -> None:
    text = "harbour\nof the tide"
    hostile = {"id": "x\n1. forged \u202e", "title": "a\nb\u202e" + "c" * 50_000, "text": text, "kind": "k" * 50_000}
    source = write_json_lines(tmp_path / "documents.jsonl", hostile)
    tercet("index", source, "--index", "names")
    done = tercet("search", "harbour", "--index", "names", "--facet", "kind", "--facet", "document_id")
    assert len(done.stdout) < 3_000
    assert "\u202e" not in done.stdout
    lines = done.stdout.splitlines()
    assert lines[0].startswith("1. a b cccc")
    assert lines[1:3] == text.split("\n")
    shown = tercet("inspect", "--document", hostile["id"], "--index", "names").stdout
    assert len(shown) < 10_000
    assert "48,000 characters more; --json has them" in shown


def test_answer_is_a_slice_of_its_document(tercet: Tercet) -> None:
    done = tercet("answer", "who reads the tide", "--read-k", "2", "--json")
    assert (done.code, done.stderr) == (0, "")
    texts = {each["id"]: each["text"] for each in (LIGHTHOUSE, FOG)}
    assert done.result["answers"]
    for each in done.result["answers"]:
        assert each["text"] == str(texts[each["document_id"]])[each["start"] : each["end"]]


def test_inspect_shows_an_index_a_document_and_a_model(tercet: Tercet, tiny_models: TinyModels) -> None:
    index = tercet("inspect", "--json").result
    assert (index["index"], index["n_documents"], index["n_passages"]) == ("default", 2, 2)
    assert index["n_bytes"] == sum(each["n_bytes"] for each in index["files"].values())
    model = tercet("inspect", "--model", tiny_models.dual_encoder, "--json").result
    assert (model["kind"], model["fingerprint"]) == ("dual-encoder", index["encoder"]["fingerprint"])
    document = tercet("inspect", "--document", "lighthouse", "--json").result
    assert document["metadata"] == {"year": 1871}
    assert [each["text"] for each in document["passages"]] == [LIGHTHOUSE["text"]]
    for arguments in (["inspect"], ["inspect", "--document", "fog"], ["inspect", "--model", str(tiny_models.reader)]):
        shown = tercet(*arguments)
        assert (shown.code, shown.stderr) == (0, "")
        assert shown.stdout


def test_what_is_not_there_is_one_sentence(tercet: Tercet, tmp_path: Path) -> None:
    for arguments, named in (
        (["search", "fog", "--index", "nowhere"], "nowhere"),
        (["inspect", "--index", "nowhere"], "nowhere"),
        (["inspect", "--document", "nobody"], "nobody"),
        (["inspect", "--model", "nothing"], "nothing"),
        (["index", str(tmp_path / "gone")], "gone"),
        (["serve", "--index", "nowhere", "--port", "0"], "nowhere"),
        (["evaluate", "--dataset", str(tmp_path)], str(tmp_path)),
        (["evaluate", "--questions", str(tmp_path / "gone.jsonl")], "gone.jsonl"),
    ):
        done = tercet(*arguments)
        assert done.code == 1, arguments
        assert named in done.sentence


def test_a_wrong_setting_is_wrong_use_and_one_sentence_that_names_it(tercet: Tercet) -> None:
    misspelt = tercet("search", "fog", INDX="default")
    assert misspelt.code == 2
    assert "TERCET_INDX" in misspelt.sentence
    malformed = tercet("search", "fog", "--index", "../escape")
    assert malformed.code == 2
    assert malformed.sentence.startswith("The option --index is not valid: ")
    by_variable = tercet("index", "source", RECALL="7")
    assert by_variable.code == 2
    assert by_variable.sentence.startswith("The setting TERCET_RECALL is not valid: ")


def test_an_index_of_another_encoder_is_refused(tercet: Tercet, other_encoder: str) -> None:
    done = tercet("search", "fog", DUAL_ENCODER=other_encoder)
    assert done.code == 1
    assert "encoder" in done.sentence


def test_a_data_folder_that_cannot_be_written_is_one_sentence(tercet: Tercet, tmp_path: Path) -> None:
    source = write_json_lines(tmp_path / "documents.jsonl", FOG)
    done = tercet("index", source, "--data", source / "data")  # root may write anywhere but below a file
    assert done.code == 1
    assert str(source) in done.sentence


@pytest.mark.parametrize("limit_bytes", [500, 3_000, 20_000])
def test_a_full_disk_is_one_sentence_and_leaves_the_index_as_it_was(
    tercet: Tercet, tmp_path: Path, limit_bytes: int
) -> None:
    long = {"id": "long", "text": "fog over the harbour. " * 2000}
    source = write_json_lines(tmp_path / "documents.jsonl", FOG, long)
    before = tercet("inspect", "--json").result

    def limit_file_size() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    done = tercet("index", source, before=limit_file_size)
    assert done.code == 1
    assert "default" in done.sentence
    assert tercet("inspect", "--json").result == before


def test_an_interrupted_command_exits_with_130(tercet: Tercet, tmp_path: Path) -> None:
    endless = tmp_path / "endless.jsonl"
    os.mkfifo(endless)
    process = tercet.start("evaluate", "--questions", endless)
    with endless.open("w") as pipe:  # returns once the command reads
        pipe.flush()
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=TIMEOUT_SECONDS)
    assert (process.returncode, stdout) == (130, "")
    assert stderr.strip().splitlines() == ["tercet: Interrupted."]


@pytest.mark.parametrize("command", ["serve", "demo"])
def test_a_taken_port_is_found_out_before_any_work(tercet: Tercet, tmp_path: Path, command: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = tercet(command, "--port", port, "--data", tmp_path / "data")
    assert done.code == 1
    assert port in done.sentence
    assert not (tmp_path / "data").exists()


def test_demo_indexes_once_serves_and_reuses_the_index(tercet: Tercet, tmp_path: Path) -> None:
    (tmp_path / "My notes!").mkdir()
    (tmp_path / "My notes!" / "fog.txt").write_text(FOG["text"])
    arguments = ("demo", tmp_path / "My notes!", "--port", "0", "--data", tmp_path / "data")
    said = []
    for _ in range(2):
        process = tercet.start(*arguments)
        assert process.stdout is not None
        address = next(line.split()[-1] for line in process.stdout if "http://" in line)
        body = json.dumps({"query": "fog over the harbour"}).encode()
        request = urllib.request.Request(f"{address}/v1/search", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            assert json.load(response)["results"][0]["document_id"] == "fog.txt"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=TIMEOUT_SECONDS)
        assert process.returncode == 0, stderr
        said.append(stderr)
    assert "Embedding" in said[0]
    assert "Embedding" not in said[1]
    [index] = [path for path in (tmp_path / "data").iterdir() if path.is_dir()]
    assert index.name.startswith("my-notes-")


def test_an_old_python_gets_a_sentence() -> None:
    assert complaint((3, 11, 0)) == complaint((4, 0)) == ""
    assert complaint((3, 10, 14)) == "Tercet needs Python 3.11 or newer; this is Python 3.10."


def test_what_runs_before_that_sentence_parses_on_an_old_python() -> None:
    service = Path(__file__).parents[2] / "service"
    for name in ("__init__.py", "__main__.py"):
        ast.parse((service / name).read_text(encoding="utf-8"), feature_version=(3, 4))


def test_an_interrupt_before_the_command_line_is_there_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("service.cli.run", interrupted)
    with pytest.raises(SystemExit) as stop:
        main()
    assert (stop.value.code, capsys.readouterr().err) == (130, "tercet: Interrupted.\n")
