"""One JSON object a line; what goes wrong is told by type and place, never by a message that may quote a user."""

import logging
import sys

import orjson

from service.logs import JsonFormatter

SECRET = "zanzibarquux"


def formatted(record: logging.LogRecord) -> dict[str, object]:
    line = JsonFormatter().format(record)
    assert "\n" not in line
    parsed: dict[str, object] = orjson.loads(line)
    return parsed


def test_a_record_is_one_line_with_its_facts() -> None:
    record = logging.makeLogRecord(
        {
            "name": "service.requests",
            "levelname": "INFO",
            "msg": "request",
            "status": 200,
            "stage_seconds": {"encode": 0.1},
        }
    )
    line = formatted(record)
    assert line.pop("time")
    assert line == {
        "level": "info",
        "logger": "service.requests",
        "message": "request",
        "status": 200,
        "stage_seconds": {"encode": 0.1},
    }


def test_an_exception_is_logged_with_its_causes_but_without_messages() -> None:
    try:
        try:
            int(SECRET)
        except ValueError as cause:
            raise RuntimeError(SECRET) from cause
    except RuntimeError:
        record = logging.makeLogRecord({"msg": "request failed", "exc_info": sys.exc_info()})
    line = JsonFormatter().format(record)
    chain = formatted(record)["exception"]
    assert isinstance(chain, list)
    assert [each["type"] for each in chain] == ["RuntimeError", "ValueError"]
    assert "test_logs.py" in chain[0]["places"][0]
    assert SECRET not in line
