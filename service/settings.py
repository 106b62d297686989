"""All settings, from the environment variables `TERCET_*`. No other file reads the environment."""

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from indexer.analysis import LANGUAGES
from models.session import EngineName
from service.extras import StartupError

PREFIX = "TERCET_"
_NAME = re.compile(r"[a-z0-9._:-]+")
_ORIGIN = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")

INDEX_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_OPTIONS = {"data_path": "--data", "keep_snapshots": "--keep"}  # the others are called as their field is


class SettingsError(StartupError):
    """A setting is unknown or out of bounds; the message is one sentence that names the variable."""


class Settings(BaseSettings):
    """What an operator can set. Each field `name` is the environment variable `TERCET_NAME`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", allow_inf_nan=False)

    data_path: Path = Field(default=Path("data"), description="Folder that holds the indexes.")
    index: str = Field(default="default", pattern=INDEX_NAME, description="Name of the index that is served.")
    language: str = Field(
        default="english",
        description="Language whose words a new index stems, one of Snowball's; `none` leaves words as they are.",
    )
    dense_index: Literal["auto", "flat", "hnsw", "ivf-sq8", "ivf-pq"] = Field(
        default="auto", description="Kind of a new dense index; auto goes by passages and memory."
    )
    recall: float = Field(
        default=0.95, gt=0, le=1, description="Share of the true best 100 that an approximate index must find."
    )
    dense_memory_bytes: int | None = Field(
        default=None, ge=1, description="Memory that a new dense index may take besides the exact vectors on disk."
    )
    keep_snapshots: int = Field(
        default=2, ge=1, description="Snapshots of an index that stay when a new one is published, which counts."
    )
    file_cpu_seconds: int = Field(
        default=120,
        ge=1,
        description="Processor time that one HTML, PDF or Office file may take to read; a page of a PDF takes .012.",
    )
    file_memory_bytes: int = Field(
        default=2_000_000_000,
        ge=500_000_000,
        description="Memory that reading one of them may take, as address space, of which the libraries take 200 MB.",
    )
    host: str = Field(
        default="127.0.0.1",
        description="Address to listen on; beyond loopback only with an API key, or `TERCET_AUTH=off`.",
    )
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    auth: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Whether requests need an API key; auto: where there are keys, and wherever others can reach it.",
    )
    allowed_hosts: str | None = Field(
        default=None,
        description="Names besides `localhost` and `TERCET_HOST` under which a service without keys answers, "
        "separated by commas; `*` is none.",
    )
    cors_origins: str | None = Field(
        default=None,
        description="Origins whose pages may use the API from a browser, such as `https://intranet.example`, "
        "separated by commas; `*` is none.",
    )

    dual_encoder: str = Field(
        default="minilm-l6-dual-encoder", description="Bundled name or folder of the dual encoder."
    )
    cross_encoder: str = Field(
        default="tercet-l6-cross-encoder", description="Bundled name or folder of the cross-encoder."
    )
    reader: str = Field(default="tercet-l6-reader", description="Bundled name or folder of the reader.")
    device: Literal["cpu", "cuda"] = Field(
        default="cpu", description="Where the models run; never falls back to another."
    )
    engine: EngineName = Field(
        default="auto",
        description="What runs the models on a CPU: `native`, `openvino`, `onnxruntime`, or `auto`: the native engine "
        "where the CPU has AMX, else OpenVINO where it multiplies bfloat16, else ONNX Runtime.",
    )
    n_threads: int = Field(default=0, ge=0, le=256, description="Threads that run models; 0 takes the CPU quota.")

    batch_tokens_per_thread: int = Field(
        default=2048,
        ge=1,
        description="Token budget of one batch for each thread: about an eighth of a second of reranking, half of it "
        "on a CPU with AMX. Two batches of a model run at once, so a short request waits for a quarter at most.",
    )
    cache_bytes: int = Field(
        default=16_000_000,
        ge=0,
        description="Memory for the vectors of recent queries and the rerank logits of what they found, which go when "
        "another snapshot is served; 0 to compute them anew each time.",
    )
    max_admitted_tokens: int = Field(
        default=500_000,
        ge=1,
        description="Estimated tokens of all requests under way, beyond which more requests get 429; "
        "about fifteen seconds of reranking on two cores.",
    )
    max_body_bytes: int = Field(
        default=4_000_000, ge=1, description="Longest request body; a hundred passages of a few pages each."
    )
    request_timeout_seconds: float = Field(
        default=30.0, gt=0, description="Deadline of one request; a client that waited longer has mostly left."
    )
    snapshot_poll_seconds: float = Field(
        default=2.0, gt=0, description="How often to look whether another snapshot of the index was made current."
    )
    drain_seconds: float = Field(
        default=1.0,
        ge=0,
        description="After SIGTERM, how long to go on answering (503 to new requests) before closing the socket; "
        "set it to the load balancer's probe interval.",
    )
    shutdown_seconds: float = Field(
        default=30.0, gt=0, description="After that, how long running requests may take to end."
    )
    jobs_path: Path | None = Field(
        default=None, description="Folder below which indexing jobs may read; without it there are no jobs over HTTP."
    )
    jobs_at_once: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Jobs that run at once, of one index never more than one; one fills all cores.",
    )
    jobs_waiting: int = Field(
        default=20, ge=1, le=1000, description="Jobs that may wait, each with its upload on the disk, before 429."
    )
    jobs_kept: int = Field(default=200, ge=1, le=1000, description="Jobs that are over and still known.")
    jobs_threads: int = Field(
        default=0,
        ge=0,
        le=256,
        description="Threads that run the encoder in a job; 0 takes the CPU quota, and gets what others leave of it.",
    )
    max_upload_bytes: int = Field(
        default=1_000_000_000, ge=1, description="Longest file that a job may be sent; it goes to the disk at once."
    )
    min_upload_bytes_per_second: int = Field(
        default=1_000,
        ge=0,
        description="Slowest upload, on an average over each `TERCET_REQUEST_TIMEOUT_SECONDS`; a modem's is five times "
        "faster. 0 only wants it not to fall silent.",
    )
    progress: Literal["auto", "json"] = Field(
        default="auto",
        description="How `tercet index` shows progress on stderr: a bar or lines for people, or JSON lines.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe level logged."
    )

    @field_validator("allowed_hosts")
    @classmethod
    def _are_names(cls, value: str | None) -> str | None:
        if not all(_NAME.fullmatch(name) for name in listed(value)):
            raise ValueError("it must list names or addresses without ports, separated by commas")
        return value

    @field_validator("cors_origins")
    @classmethod
    def _are_origins(cls, value: str | None) -> str | None:
        if not all(_ORIGIN.fullmatch(origin) for origin in listed(value)):
            raise ValueError("it must list origins such as https://intranet.example:8443, separated by commas")
        return value

    @field_validator("data_path")
    @classmethod
    def _is_utf8(cls, path: Path) -> Path:
        try:
            str(path).encode()
        except UnicodeEncodeError:  # FAISS takes no such path
            raise PydanticCustomError("path", "Input should be a path in UTF-8") from None
        return path

    @field_validator("language")
    @classmethod
    def _is_known(cls, language: str) -> str:
        if language not in LANGUAGES:
            raise PydanticCustomError("language", "Input should be one of {known}", {"known": ", ".join(LANGUAGES)})
        return language

    @field_validator("jobs_path", mode="before")
    @classmethod
    def _empty_is_absent(cls, value: object) -> object:
        return None if value == "" else value  # which would be the working folder


def listed(value: str | None) -> list[str]:
    """Return what a setting lists between its commas, in small letters."""
    return [] if value is None else [each.strip().lower() for each in value.split(",") if each.strip()]


def load_settings(**overrides: Any) -> Settings:
    """Return the settings of this process's environment; `overrides` win over it.

    Args:
        overrides: what options of the command line say, by the names of fields; None for an option that is not given.

    Raises:
        SettingsError: an unknown `TERCET_*` variable, or a value out of bounds; names the variable or the option.
    """
    check_known(os.environ)
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        field = str(fault["loc"][0])
        option = _OPTIONS.get(field, f"--{field.replace('_', '-')}")
        what = f"option {option}" if field in given else f"setting {PREFIX}{field.upper()}"
        raise SettingsError(f"The {what} is not valid: {fault['msg']}.") from None


def environment_of(settings: Settings) -> dict[str, str]:
    """Return this process's environment with exactly these settings in it, for a process of ours.

    What was never said stays unsaid, so that a build there knows what it may keep as it was.
    """
    others = {name: value for name, value in os.environ.items() if not name.upper().startswith(PREFIX)}
    given = settings.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    return others | {
        f"{PREFIX}{name}".upper(): value if isinstance(value, str) else orjson.dumps(value).decode()
        for name, value in given.items()
    }


def check_known(environment: Mapping[str, str]) -> None:
    """Return when every variable with the prefix names a setting; pydantic-settings ignores misspelt ones.

    Raises:
        SettingsError: one does not; names it and the nearest known name.
    """
    known = [f"{PREFIX}{name}".upper() for name in Settings.model_fields]
    for variable in sorted(environment):
        if variable.upper().startswith(PREFIX) and variable.upper() not in known:
            nearest = difflib.get_close_matches(variable.upper(), known, n=1, cutoff=0.0)[0]
            raise SettingsError(f"There is no setting {variable}; the nearest known one is {nearest}.")
