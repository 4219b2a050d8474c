"""What can go wrong. Every exception of this package is an AtollError.

An answer of the server that is no success is an ApiError, of the class that its code stands for; each
carries the code, the message, the field that was wrong (if any) and the request id, under which the
server's audit log and messages know it.
"""
from typing import Any, Dict, Optional, Type


class AtollError(Exception):
    """The base of all of them."""


class ApiError(AtollError):
    """The server refused or failed."""

    def __init__(self, status: int, code: str, message: str, field: Optional[str] = None,
                 request_id: Optional[str] = None, retry_after: Optional[float] = None,
                 reason: Optional[str] = None) -> None:
        if field and not message.startswith(field):
            message = f"{field}: {message}"
        super().__init__(f"{message} ({code}{', request ' + request_id if request_id else ''})")
        self.status = status
        self.code = code
        self.message = message
        self.reason = reason  # a word that tells some of one code apart: "role", "deleting"
        self.field = field
        self.request_id = request_id
        self.retry_after = retry_after  # seconds, where the server says when to come back
        self.details: Dict[str, Any] = {}  # what else the answer held


class InvalidRequest(ApiError):
    """Something in the request is wrong; `field` may say what."""


class AuthError(ApiError):
    """Not allowed: see Unauthenticated and Forbidden."""


class Unauthenticated(AuthError):
    """No token, or one that is not valid (any more)."""


class Forbidden(AuthError):
    """A valid token whose role or scope does not reach this far."""


class NotFound(ApiError):
    """There is no such object, or it is not the caller's."""


class Conflict(ApiError):
    """Somebody else was first, or the state does not fit."""


class Gone(ApiError):
    """It was there and is no longer kept: output or events before the oldest position."""


class TooLarge(ApiError):
    """Over a limit of size or number."""


class RangeNotSatisfiable(ApiError):
    """No byte of the wanted range exists."""


class RateLimited(ApiError):
    """Too often; `retry_after` says when to come back."""


class BudgetExceeded(ApiError):
    """The money or the tokens are used up."""


class QuotaExceeded(ApiError):
    """A quota allows no more: delete something, or have the quota raised."""


class NoCapacity(ApiError):
    """The machine has no more memory, processors or disk for this."""


class ServerTimeout(ApiError):
    """The server gave up waiting."""


class Unavailable(ApiError):
    """Not now: the server drains, starts, or is full."""


class BadGateway(ApiError):
    """What listens on a port of a sandbox, or should, did not answer properly."""


class NoSpace(ApiError):
    """A disk is full."""


class Unsupported(ApiError):
    """Not built, or not possible on the server's machine."""


class ServerError(ApiError):
    """The server's own mistake."""


class ConnectionFailed(AtollError, ConnectionError):
    """No connection, or it broke in a place where repeating is not safe or did not help."""


class RequestTimeout(AtollError, TimeoutError):
    """No answer within the time that was given."""


class UnsafeArchive(AtollError):
    """An archive names files outside of the directory that it is unpacked into."""


class CommandFailed(AtollError):
    """With check=True: a command that did not exit with 0."""


BY_CODE: Dict[str, Type[ApiError]] = {
    "internal": ServerError,
    "invalid": InvalidRequest,
    "unprocessable": InvalidRequest,
    "unauthenticated": Unauthenticated,
    "forbidden": Forbidden,
    "not_found": NotFound,
    "method_not_allowed": InvalidRequest,
    "conflict": Conflict,
    "gone": Gone,
    "too_large": TooLarge,
    "headers_too_large": TooLarge,
    "unsupported_media": InvalidRequest,
    "expectation_failed": InvalidRequest,
    "range_not_satisfiable": RangeNotSatisfiable,
    "rate_limited": RateLimited,
    "misdirected": Forbidden,
    "budget_exceeded": BudgetExceeded,
    "quota_exceeded": QuotaExceeded,
    "no_capacity": NoCapacity,
    "timeout": ServerTimeout,
    "unavailable": Unavailable,
    "bad_gateway": BadGateway,
    "no_space": NoSpace,
    "unsupported": Unsupported,
    "cancelled": ApiError,
}

__all__ = [
    "AtollError",
    "ApiError",
    "InvalidRequest",
    "AuthError",
    "Unauthenticated",
    "Forbidden",
    "NotFound",
    "Conflict",
    "Gone",
    "TooLarge",
    "RangeNotSatisfiable",
    "RateLimited",
    "BudgetExceeded",
    "QuotaExceeded",
    "NoCapacity",
    "ServerTimeout",
    "Unavailable",
    "BadGateway",
    "NoSpace",
    "Unsupported",
    "ServerError",
    "ConnectionFailed",
    "RequestTimeout",
    "UnsafeArchive",
    "CommandFailed",
]
