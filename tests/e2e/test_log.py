"""The log is JSON, has one line per request, and holds nothing that a user sent or was answered."""

import httpx

from .processes import RunningService, wait_until

SECRET = "zanzibarquux"


def test_every_request_has_one_line_that_matches_its_response(service: RunningService) -> None:
    response = service.post("/v1/search", query="beavers")
    request_id = response.json()["request_id"]
    wait_until(lambda: request_id in service.log_text(), "the request is logged")
    lines = [line for line in service.log() if line.get("request_id") == request_id]
    assert len(lines) == 1
    assert (lines[0]["level"], lines[0]["route"], lines[0]["status"]) == ("info", "/v1/search", 200)
    assert lines[0]["duration_seconds"] > 0


def test_no_text_of_a_user_is_logged_whatever_becomes_of_the_request(service: RunningService) -> None:
    json_type = {"content-type": "application/json"}
    responses = [
        service.post("/v1/search", query=f"{SECRET} beavers"),
        service.post("/v1/answer", query=f"{SECRET} lighthouse keeper"),
        service.post("/v1/answer", query="who", passages=[{"id": SECRET, "text": f"It was {SECRET}."}]),
        service.post("/v1/search", query=SECRET, mode=SECRET),
        service.post("/v1/search", query="beavers", index=SECRET),
        service.post("/v1/search", **{"query": "beavers", SECRET: 1}),
        service.get(f"/v1/documents/{SECRET}"),
        service.get(f"/{SECRET}?{SECRET}={SECRET}"),
        httpx.post(f"{service.url}/v1/search", content=f'{{"query": "{SECRET}', headers=json_type),
        httpx.post(f"{service.url}/v1/search", content=SECRET, headers={"content-type": f"text/{SECRET}"}),
        httpx.request(SECRET.upper(), f"{service.url}/v1/search"),
    ]
    last = service.get("/v1/documents/beavers")
    assert last.status_code == 200
    n_requests = len(responses)
    assert [response.status_code < 500 for response in responses] == [True] * n_requests
    wait_until(lambda: "/v1/documents/" in service.log()[-1].get("route", ""), "the last request is logged")
    assert SECRET not in service.log_text().lower()
    assert "lighthouse" not in service.log_text().lower()


def test_no_metric_label_holds_what_a_user_sent(service: RunningService) -> None:
    service.get(f"/v1/documents/{SECRET}")
    service.get(f"/{SECRET}")
    httpx.request(SECRET.upper(), f"{service.url}/v1/search")
    assert SECRET not in service.get("/metrics").text.lower()


def test_the_process_keeps_no_notes_about_its_user(service: RunningService) -> None:
    """ONNX Runtime queues reports of its use there, to send them over the network, unless it is told not to."""
    assert service.post("/v1/search", query="beavers").status_code == 200
    assert [path for path in service.home.rglob("*") if path.is_file()] == []
