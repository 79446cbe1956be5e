"""The lines between a sweep and its worker, as `qbench.sweeps.worker` describes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from quant.json_data import JsonData


@dataclass(frozen=True, slots=True)
class JobRequest(JsonData):
    """A job by its name; arguments: the JSON of its class"""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerRequest(JsonData):
    """A job for a worker.

    log          file for the job's output
    environment  name -> text; None takes the name out
    parent       process that asks; the worker ends if its parent is another one; None: any
    """

    job: JobRequest
    log: str
    environment: Mapping[str, str | None] = field(default_factory=dict)
    parent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerMessage(JsonData):
    """One of: the progress of the job, its result as JSON, its error, or the status and seconds of its process."""

    json_omits: ClassVar[tuple[str, ...]] = ("progress", "result", "error", "ended", "seconds")

    progress: tuple[int, int, str] | None = None
    result: Mapping[str, Any] | None = None
    error: str | None = None
    ended: int | None = None
    seconds: float | None = None
