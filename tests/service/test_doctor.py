"""What `tercet doctor` finds, on an index that is in order and on each thing that is not."""

import json
import shutil
import socket
from pathlib import Path

import pytest

from service.diagnosis import Finding, examine
from service.engine import load_models
from service.extras import StartupError
from service.key_file import KeyFile
from service.keys import Limits, new_key
from service.machine import Cpu
from service.scopes import KeyScope
from service.settings import Settings, load_settings
from tests.service.commands import Tercet, tercet_with
from tests.service.conftest import TinyModels, serving


@pytest.fixture(scope="module")
def tercet(tiny_models: TinyModels, settings: Settings) -> Tercet:
    return tercet_with(tiny_models, settings.data_path)


@pytest.fixture
def data(settings: Settings, tmp_path: Path) -> Path:
    """A copy of the data folder, to be damaged."""
    shutil.copytree(settings.data_path, tmp_path / "data", symlinks=True)
    return tmp_path / "data"


def found(settings: Settings, subject: str, **changes: object) -> Finding:
    changed = settings.model_copy(update=changes)
    return next(each for each in examine(lambda: changed) if each.subject == subject)


def test_all_that_is_in_order_is_said_to_be(tercet: Tercet, settings: Settings) -> None:
    done = tercet("doctor", "--json", PORT="0")
    assert (done.code, done.stderr, done.result["is_in_order"]) == (0, "", True)
    by_subject = {each["subject"]: each for each in done.result["findings"]}
    assert {each["state"] for each in by_subject.values()} <= {"ok", "note"}
    assert "passages, " in by_subject["index default"]["text"]
    assert by_subject["index default"]["state"] == "ok"
    for kind, engine in load_models(settings).engines().items():
        assert f"; {engine}: " in by_subject[kind.replace("_", "-")]["text"]
    assert "TERCET_READER" in by_subject["settings"]["text"]
    assert str(settings.reader) not in done.stdout


def test_problems_are_shown_with_what_to_do_and_end_with_1(tercet: Tercet) -> None:
    done = tercet("doctor", READER="nowhere", PORT="0")
    assert done.code == 1
    line, remedy = done.stdout[done.stdout.index("problem reader") :].splitlines()[:2]
    assert "'nowhere' is neither a bundled model" in line
    assert remedy.strip() == "→ Put the folder back as it was, or name another one in TERCET_READER."
    assert done.stderr == "tercet: 1 problem found.\n"


def test_an_unknown_setting_is_a_problem_and_what_depends_on_settings_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERCET_N_THREAD", "2")
    *_, last = list(examine(load_settings))
    assert (last.subject, last.state) == ("start", "problem")
    assert "no setting TERCET_N_THREAD; the nearest known one is TERCET_N_THREADS." in last.text


def test_an_environment_with_both_extras_is_a_problem(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    def refuse() -> None:
        raise StartupError("The extras exclude each other.")

    monkeypatch.setattr("service.diagnosis.check_extras", refuse)
    assert [each.state for each in examine(lambda: settings)][-1] == "problem"


def test_a_damaged_index_is_a_problem_and_names_the_file(settings: Settings, data: Path) -> None:
    file = next(data.glob("default/snapshots/*/tokens.bin"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    finding = found(settings, "index default", data_path=data)
    assert finding.state == "problem"
    assert "tokens.bin was altered" in finding.text
    assert "tercet snapshots rollback --index default" in (finding.remedy or "")


def test_an_index_of_another_encoder_is_a_problem_where_it_is_the_one_to_serve(
    settings: Settings, other_encoder: str
) -> None:
    served = found(settings, "index default", dual_encoder=other_encoder)
    assert served.state == "problem"
    assert "made for the encoder 'dual encoder', not for 'other'" in served.text
    beside = found(settings, "index default", dual_encoder=other_encoder, index="another")
    assert beside.state == "note"


def test_an_index_that_was_named_is_missed_and_the_default_one_only_not_there_yet(
    settings: Settings, tmp_path: Path
) -> None:
    empty = {"data_path": tmp_path / "none"}
    assert found(settings, "index default", **empty).state == "note"
    assert found(settings, "index notes", index="notes", **empty).state == "problem"
    assert found(settings, "data", **empty).state == "note"


def test_an_altered_model_is_a_problem(settings: Settings, tiny_models: TinyModels, tmp_path: Path) -> None:
    shutil.copytree(tiny_models.reader, tmp_path / "reader")
    with (tmp_path / "reader" / "model.onnx").open("ab") as file:
        file.write(b"\0")
    finding = found(settings, "reader", reader=str(tmp_path / "reader"))
    assert finding.state == "problem"
    assert "model.onnx was altered" in finding.text


def test_a_model_that_says_no_fingerprint_is_told(settings: Settings, tiny_models: TinyModels, tmp_path: Path) -> None:
    shutil.copytree(tiny_models.reader, tmp_path / "reader")
    content = json.loads((tmp_path / "reader" / "model.json").read_text())
    content.pop("fingerprint", None)
    (tmp_path / "reader" / "model.json").write_text(json.dumps(content))
    finding = found(settings, "reader", reader=str(tmp_path / "reader"))
    assert finding.state == "note"
    assert "as it was made" not in finding.text


def test_kernels_that_were_not_built_are_told_where_the_cpu_would_run_them(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.diagnosis.is_built", lambda: False)
    monkeypatch.setattr("service.diagnosis.compiled", lambda name: name)
    for units, subjects in ((("AMX-BF16",), ["kernels"]), (("AVX-VNNI",), [])):
        monkeypatch.setattr("service.diagnosis.this_cpu", lambda units=units: Cpu("a CPU", units, 2))
        findings = [each for each in examine(lambda: settings) if each.subject == "kernels"]
        assert [(each.subject, each.state) for each in findings] == [(subject, "note") for subject in subjects]
    monkeypatch.setattr("service.diagnosis.compiled", lambda name: None)
    [finding] = [each for each in examine(lambda: settings) if each.subject == "kernels"]
    assert "BM25's search, tokenization" in finding.text


def test_keys_that_others_may_read_and_keys_that_are_missing_are_told(settings: Settings, data: Path) -> None:
    assert found(settings, "keys", data_path=data).state == "ok"
    assert found(settings, "keys", data_path=data, host="0.0.0.0").state == "problem"
    assert found(settings, "keys", data_path=data, host="0.0.0.0", auth="off").state == "note"
    text, key = new_key("web", [KeyScope.SEARCH], limits=Limits())
    with KeyFile(data).changed() as keys:
        keys.append(key)
    fine = found(settings, "keys", data_path=data)
    assert (fine.state, fine.text) == ("ok", "1 key, and requests need one")
    (data / ".keys.json").chmod(0o644)
    loose = found(settings, "keys", data_path=data)
    assert loose.state == "note"
    assert f"chmod 600 {data / '.keys.json'}" in (loose.remedy or "")
    (data / ".keys.json").write_text("{")
    assert found(settings, "keys", data_path=data).state == "problem"
    assert all(text not in each.text for each in examine(lambda: settings))


def test_a_port_that_another_program_has_is_a_problem_and_that_of_a_service_a_note(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        finding = found(settings, "address", port=taken.getsockname()[1])
        assert finding.state == "problem"
        assert "Address already in use" in finding.text
    with serving(settings) as served:
        finding = found(settings, "address", port=int(served.url.rpartition(":")[2]))
    assert (finding.state, "a service of Tercet listens there" in finding.text) == ("note", True)


def test_what_cannot_be_had_is_a_problem(settings: Settings, tmp_path: Path) -> None:
    assert found(settings, "jobs", jobs_path=tmp_path / "none").state == "problem"
    assert found(settings, "jobs", jobs_path=tmp_path).state == "ok"
    assert found(settings, "threads", n_threads=256).state == "note"
    (tmp_path / "file").write_text("")
    assert found(settings, "data", data_path=tmp_path / "file").state == "problem"
    if not shutil.which("nvidia-smi"):
        assert found(settings, "GPU", device="cuda").state == "problem"
        assert found(settings, "reader", device="cuda").state == "problem"
