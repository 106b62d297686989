"""Clients of others against a real service; none of them may reach anything but this machine."""

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import bundled_models, model_settings, service, service_settings

__all__ = ["bundled_models", "model_settings", "service", "service_settings"]  # fixtures, which pytest finds here

os.environ |= {"HAYSTACK_TELEMETRY_ENABLED": "False", "LANGSMITH_TRACING": "false", "HF_HUB_DISABLE_TELEMETRY": "1"}

DOCUMENTS = ["Potatoes come from the Andes.", "Lima is the capital of Peru.", "", "Kenya exports tea."]
QUERY = "capital of peru"


@pytest.fixture(scope="session", autouse=True)
def only_this_machine() -> Iterator[None]:
    """Refuse connections to other machines, and fail at the end if one was tried and the refusal swallowed."""
    tried: list[object] = []
    connect = socket.socket.connect

    def connect_here(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1"):
            tried.append(address)
            raise ConnectionRefusedError(f"{address} is another machine")
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect_here)
        patch.setattr(socket.socket, "connect_ex", connect_here)
        yield
    assert tried == []
