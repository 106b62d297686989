"""The bodies of requests and responses about jobs; a job itself is told as it is kept (`service/job_store.py`)."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from service.job_store import Job, OnError
from service.settings import INDEX_NAME

MAX_SOURCE_CHARACTERS = 4_000
MAX_FILE_NAME_BYTES = 200
MAX_JOBS = 1_000  # of TERCET_JOBS_KEPT

# Of the hidden files nothing is read, and a name is no path.
_FILE_NAME = r"^[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]*$"


def _fits_a_folder(name: str) -> str:
    if len(name.encode()) > MAX_FILE_NAME_BYTES:
        raise ValueError(f"The name must have at most {MAX_FILE_NAME_BYTES} bytes in UTF-8.")
    return name


class BuildOptions(BaseModel):
    """What every build is told, whatever it reads."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    index: str | None = Field(
        default=None, pattern=INDEX_NAME, description="Name of the index; null for the served one."
    )
    on_error: OnError = Field(
        default="skip", description="What to do with a file or record that is bad: tell and skip it, or fail."
    )
    update: bool = Field(
        default=False,
        description="Keep the documents that are there, and how the index was built; the given ones are added, or "
        "replaced by their id.",
    )


class JobRequest(BuildOptions):
    """Body of `POST /v1/jobs`."""

    model_config = ConfigDict(strict=True)

    source: str = Field(
        min_length=1,
        max_length=MAX_SOURCE_CHARACTERS,
        description="A file or folder, as for `tercet index`; its path from the folder that jobs may read.",
        examples=["manuals"],
    )


class UploadOptions(BuildOptions):
    """Query of `POST /v1/jobs/upload`."""

    file_name: Annotated[str, AfterValidator(_fits_a_folder)] = Field(
        pattern=_FILE_NAME,
        min_length=1,
        description="The file's name, whose ending says its kind, as for `tercet index`.",
        examples=["faq.jsonl"],
    )


class JobsResponse(BaseModel):
    """Body of the response to `GET /v1/jobs`."""

    model_config = ConfigDict(frozen=True)

    jobs: list[Job] = Field(description="The newest first.")
