"""The environment is read once, strictly, and documented completely."""

from pathlib import Path

import pytest
from pydantic import ValidationError

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


def test_variables_of_others_are_none_of_our_business() -> None:
    check_known({"PATH": "/bin", "TERCETERA": "1", "TERCET_PORT": "1", "tercet_port": "1"})


def test_the_environment_sets_and_an_override_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERCET_PORT", "9001")
    monkeypatch.setenv("TERCET_INDEX", "manuals")
    settings = load_settings(index="notes", host=None)
    assert (settings.port, settings.index, settings.host) == (9001, "notes", "127.0.0.1")


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
