"""The environment is read once, strictly, and documented completely."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from indexer.extractor import FileLimits
from service.settings import PREFIX, Settings, SettingsError, check_known, load_settings

DOCS = Path(__file__).parents[2] / "docs" / "settings.md"


def test_a_misspelt_variable_is_refused_with_the_nearest_known_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERCET_N_THREAD", "2")
    with pytest.raises(SettingsError, match=r"no setting TERCET_N_THREAD; the nearest known one is TERCET_N_THREADS\."):
        load_settings()


def test_a_value_out_of_bounds_is_refused_by_name_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERCET_PORT", "70000")
    with pytest.raises(SettingsError, match="TERCET_PORT is not valid") as refusal:
        load_settings()
    assert "70000" not in str(refusal.value)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("recall", 2, "The option --recall is not valid: Input should be less than or equal to 1."),
        ("recall", float("nan"), "The option --recall is not valid: Input should be a finite number."),
        ("keep_snapshots", 0, "The option --keep is not valid: Input should be greater than or equal to 1."),
        ("dense_index", "best", "The option --dense-index is not valid: Input should be 'auto', 'flat',"),
        ("language", "klingon", "The option --language is not valid: Input should be one of none, arabic, "),
        ("data_path", "/tmp/\udcff", "The option --data is not valid: Input should be a path in UTF-8."),
        ("index", "../evil", "The option --index is not valid: String should match pattern"),
    ],
)
def test_a_wrong_option_is_told_by_its_own_name(field: str, value: object, sentence: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        load_settings(**{field: value})
    assert str(refusal.value).startswith(sentence)


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("name", [name for name, field in Settings.model_fields.items() if field.annotation is float])
def test_no_setting_is_infinite_or_no_number(monkeypatch: pytest.MonkeyPatch, name: str, number: str) -> None:
    monkeypatch.setenv(f"{PREFIX}{name.upper()}", number)
    with pytest.raises(SettingsError, match=f"setting TERCET_{name.upper()} is not valid: Input should be a finite"):
        load_settings()


def test_variables_of_others_are_none_of_our_business() -> None:
    check_known({"PATH": "/bin", "TERCETERA": "1", "TERCET_PORT": "1", "tercet_port": "1"})


def test_the_environment_sets_and_an_override_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERCET_PORT", "9001")
    monkeypatch.setenv("TERCET_INDEX", "manuals")
    settings = load_settings(index="notes", host=None)
    assert (settings.port, settings.index, settings.host) == (9001, "notes", "127.0.0.1")


def test_files_have_the_same_limits_where_no_setting_comes_in() -> None:
    settings = Settings()
    assert FileLimits(settings.file_cpu_seconds, settings.file_memory_bytes) == FileLimits()


def test_an_empty_folder_for_jobs_is_none_and_not_the_working_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERCET_JOBS_PATH", "")
    assert load_settings().jobs_path is None


@pytest.mark.parametrize("name", ["../other", "a/b", ".hidden", "", "a" * 65])
def test_the_name_of_an_index_is_no_path(name: str) -> None:
    with pytest.raises(ValidationError):
        Settings(index=name)


def test_settings_cannot_change() -> None:
    settings = Settings()
    with pytest.raises(ValidationError):
        settings.port = 1


def test_docs_list_every_setting_with_its_default() -> None:
    rows = [line for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{PREFIX}")]
    expected = [
        f"| `{PREFIX}{name.upper()}` | {'' if field.default is None else f'`{field.default}` '}| {field.description} |"
        for name, field in Settings.model_fields.items()
    ]
    assert rows == expected
