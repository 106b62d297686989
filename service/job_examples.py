"""What OpenAPI says of the responses about jobs: their examples, and every problem that can occur with them."""

from collections.abc import Mapping
from typing import Any

from service import problems
from service.examples import Examples, Responses, documented
from service.job_uploads import MEDIA_TYPE

JOB_EXAMPLE: Mapping[str, Any] = {
    "job_id": "8d1c2b7e5f904c3fa2f2b6d0c1e7a913",
    "state": "succeeded",
    "index": "manuals",
    "source": "manuals",
    "file_name": None,
    "on_error": "skip",
    "update": False,
    "created_at": "2026-01-01T00:00:00Z",
    "started_at": "2026-01-01T00:00:00.120000Z",
    "ended_at": "2026-01-01T00:01:10.800000Z",
    "progress": {"stage": "publish", "done": 1, "total": 1},
    "cpu_seconds": 128.4,
    "result": {
        "index": "manuals",
        "snapshot": "20260101T000110Z-1f2e3d4c",
        "is_unchanged": False,
        "n_documents": 3107,
        "n_passages": 9412,
        "n_skipped": 0,
        "n_bytes": 24_810_332,
        "seconds": 70.1,
    },
    "error": None,
}
_AS_TAKEN: Mapping[str, Any] = dict(JOB_EXAMPLE) | {
    "state": "queued", "started_at": None, "ended_at": None, "progress": None, "cpu_seconds": None,
    "result": None,
}  # fmt: skip
_UPLOADED: Mapping[str, Any] = dict(_AS_TAKEN) | {"source": None, "file_name": "faq.jsonl", "index": "faq"}
_CANCELLED: Mapping[str, Any] = dict(JOB_EXAMPLE) | {
    "state": "cancelled", "result": None, "progress": {"stage": "embed", "done": 2048, "total": 9412}
}  # fmt: skip

JOB_EXAMPLES: Examples = {
    ("/v1/jobs", "post", "202"): _AS_TAKEN,
    ("/v1/jobs/upload", "post", "202"): _UPLOADED,
    ("/v1/jobs", "get", "200"): {"jobs": [JOB_EXAMPLE]},
    ("/v1/jobs/{job_id}", "get", "200"): JOB_EXAMPLE,
    ("/v1/jobs/{job_id}", "delete", "200"): _CANCELLED,
}

_LOCATION = {"Location": {"description": "Where to follow the job.", "schema": {"type": "string"}}}
_TAKEN: Responses = {202: {"description": "The job waits or runs.", "headers": _LOCATION}}
_TO_ANY = (problems.JobsDisabled, problems.InternalError, problems.NotReady)
_TO_TAKING = (
    problems.RequestTooSlow,
    problems.BodyTooLarge,
    problems.UnsupportedMediaType,
    problems.InvalidRequest,
    problems.TooManyJobs,
    problems.NoSpace,
)

LIST_JOBS = documented(problems.InvalidRequest, *_TO_ANY)
GET_JOB = documented(problems.UnknownJob, problems.InvalidRequest, *_TO_ANY)
CANCEL = documented(problems.UnknownJob, problems.JobOver, problems.InvalidRequest, *_TO_ANY)
POST_JOB = _TAKEN | documented(problems.MalformedBody, *_TO_TAKING, *_TO_ANY)
UPLOAD = _TAKEN | documented(*_TO_TAKING, *_TO_ANY)
UPLOAD_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}
}
