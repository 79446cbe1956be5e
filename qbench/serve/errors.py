"""Answer to a client that cannot be served: a status, and OpenAI's object with one line."""

from fastapi.responses import JSONResponse

from qbench.runtime.engine import QueueFull
from qbench.serve.wire import ErrorBody
from quant.errors import InputError


class EngineFailed(Exception):
    """The engine has ended by itself: a bug of ours or a machine that is out of memory."""


class Unavailable(Exception):
    """The request was taken and cannot go on; asked again later it may."""


class Refused(Exception):
    """A request that is refused with a status of its own."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


# The first that an error is an instance of: its status, and OpenAI's type.
STATUSES: tuple[tuple[type[Exception], int, str], ...] = (
    (QueueFull, 429, "rate_limit_error"),
    (Unavailable, 503, "unavailable_error"),
    (EngineFailed, 500, "server_error"),
    (InputError, 400, "invalid_request_error"),
)
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "invalid_request_error",
    421: "invalid_request_error",
    429: "rate_limit_error",
    503: "unavailable_error",
}


def status_of(error: Exception) -> tuple[int, str, str | None]:
    """HTTP status, OpenAI's error type and code."""
    if isinstance(error, Refused):
        return error.status, TYPES.get(error.status, "invalid_request_error"), error.code
    return next((status, name, None) for kind, status, name in STATUSES if isinstance(error, kind))


def error_body(message: str, kind: str, code: str | None = None, param: str | None = None) -> ErrorBody:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def body_of(error: Exception) -> ErrorBody:
    _, kind, code = status_of(error)
    return error_body(str(error), kind, code)


def refusal(error: Exception) -> JSONResponse:
    """The answer to a request that is refused for this error."""
    return JSONResponse(body_of(error), status_of(error)[0])
