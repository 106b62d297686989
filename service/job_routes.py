"""The HTTP routes of indexing jobs. A job is taken with 202 and followed at its `Location`."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError

from service.bodies import StrictJsonRoute
from service.job_bodies import MAX_JOBS, JobRequest, JobsResponse, UploadOptions
from service.job_examples import CANCEL, GET_JOB, LIST_JOBS, POST_JOB, UPLOAD, UPLOAD_BODY
from service.job_store import Job, Order
from service.job_uploads import UploadLimits, require_upload
from service.jobs import Jobs
from service.problems import JobsDisabled, NotReady

router = APIRouter(route_class=StrictJsonRoute, tags=["jobs"])


def open_jobs(request: Request) -> Jobs:
    """Return the jobs, or raise why there are none."""
    state = request.app.state
    if state.settings.jobs_path is None:
        raise JobsDisabled("The operator has not set TERCET_JOBS_PATH, the folder that jobs may read.")
    jobs: Jobs | None = state.jobs
    if jobs is None or state.is_draining:
        raise NotReady("The service is starting or stopping.")
    return jobs


OpenJobs = Annotated[Jobs, Depends(open_jobs)]
JobId = Annotated[str, Path(max_length=64)]


@router.post("/v1/jobs", status_code=202, summary="Build an index", responses=POST_JOB)
async def post_job(body: JobRequest, request: Request, response: Response, jobs: OpenJobs) -> Job:
    """Build an index of a file or folder below the one that jobs may read, and publish it."""
    if not await jobs.finds(body.source):
        raise RequestValidationError([{"loc": ("body", "source"), "msg": "There is nothing there that jobs may read."}])
    order = Order(_index(request, body.index), body.on_error, body.update, source=body.source)
    return _accepted(await jobs.submit(order), response)


@router.post(
    "/v1/jobs/upload",
    status_code=202,
    summary="Build an index of a file that you send",
    responses=UPLOAD,
    openapi_extra=UPLOAD_BODY,
)
async def upload_job(
    options: Annotated[UploadOptions, Query()], request: Request, response: Response, jobs: OpenJobs
) -> Job:
    """Build an index of the body and publish it. The file is removed when the job is over."""
    settings = request.app.state.settings
    limits = UploadLimits(
        settings.max_upload_bytes, settings.request_timeout_seconds, settings.min_upload_bytes_per_second
    )
    require_upload(request, limits)
    order = Order(_index(request, options.index), options.on_error, options.update, file_name=options.file_name)
    return _accepted(await jobs.submit_upload(order, request.stream(), limits), response)


@router.get("/v1/jobs", summary="List the jobs", responses=LIST_JOBS)
async def list_jobs(jobs: OpenJobs, limit: Annotated[int, Query(ge=1, le=MAX_JOBS)] = 50) -> JobsResponse:
    """Jobs, the newest first: all that wait or run, and the last that are over."""
    return JobsResponse(jobs=jobs.history.newest(limit))


@router.get("/v1/jobs/{job_id}", summary="Get a job", responses=GET_JOB)
async def get_job(job_id: JobId, jobs: OpenJobs) -> Job:
    """Its state, how far it is, and what came of it."""
    return jobs.history.job(job_id)


@router.delete("/v1/jobs/{job_id}", summary="Cancel a job", responses=CANCEL)
async def cancel_job(job_id: JobId, jobs: OpenJobs) -> Job:
    """Answers when the job has ended, which takes seconds if it runs. The index stays as it is. Twice does no harm."""
    return await jobs.cancel(job_id)


def _index(request: Request, index: str | None) -> str:
    served: str = request.app.state.settings.index
    return served if index is None else index


def _accepted(job: Job, response: Response) -> Job:
    response.headers["Location"] = f"/v1/jobs/{job.job_id}"
    return job
