"""A real service beyond loopback: closed without a key, open with one, closed again when it is revoked; no restart."""

from pathlib import Path

import httpx
import pytest

from .keyed import keyed_data, make_key, revoke_key, tercet
from .processes import RunningService, running_service, wait_until


@pytest.fixture
def keyed_settings(service_settings: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Settings of a service that all who reach this machine reach, and that has no key yet."""
    return keyed_data(service_settings, tmp_path) | {"HOST": "0.0.0.0"}


def search(service: RunningService, key: str | None) -> int:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return httpx.post(f"{service.url}/v1/search", json={"query": "beavers"}, headers=headers, timeout=60).status_code


def test_keys_open_and_close_a_service_beyond_loopback(keyed_settings: dict[str, str], tmp_path: Path) -> None:
    refused = tercet(keyed_settings, "serve")
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith(
        "tercet: Other machines can reach 0.0.0.0, and there is no API key"
    )
    key = make_key(keyed_settings, "web", "--scope", "search")
    with running_service(keyed_settings, folder=tmp_path) as service:
        assert search(service, None) == 401
        assert search(service, f"{key[:-1]}x") == 401
        assert search(service, key) == 200
        assert httpx.get(f"{service.url}/v1/jobs", headers={"X-API-Key": key}).status_code == 403
        second = make_key(keyed_settings, "second", "--scope", "search")
        wait_until(lambda: search(service, second) == 200, "a new key is taken", process=service.process)
        revoke_key(keyed_settings, "web")
        wait_until(lambda: search(service, key) == 401, "a revoked key is refused", process=service.process)
        assert search(service, second) == 200
        assert service.stop() == 0
    log = service.log_text()
    assert key[7:15] in log
    assert not [text for text in (key, second) if text[16:] in log]
    assert {line["message"] for line in service.log()} == {"listening", "ready", "request", "keys taken over"}


def test_a_large_body_without_a_key_is_answered_while_it_comes(keyed_settings: dict[str, str], tmp_path: Path) -> None:
    make_key(keyed_settings, "web", "--scope", "index")
    with running_service(keyed_settings, folder=tmp_path) as service:
        url = f"{service.url}/v1/jobs/upload?file_name=a.txt"
        with httpx.Client(timeout=60) as client:
            refused = client.post(url, content=bytes(20_000_000), headers={"content-type": "application/octet-stream"})
            assert refused.status_code == 401
            assert client.get(f"{service.url}/readyz").status_code == 200
