"""What the demo provider answers instead of a response."""

from typing import Any

from agentruns.demo.faults import Fault, refusal


class ApiError(Exception):
    """An answer that is an error: HTTP status and the vendor's error object."""

    def __init__(self, status: int, message: str, *, code: str | None = None, param: str | None = None) -> None:
        self.status = status
        self.error: dict[str, Any] = {"message": message, "type": "invalid_request_error", "code": code, "param": param}
        self.headers: dict[str, str] = {}
        super().__init__(message)

    @classmethod
    def of(cls, fault: Fault) -> "ApiError":
        status, error = refusal(fault)
        made = cls(status, error["message"])
        made.error = error
        if fault.retry_after is not None:
            made.headers["retry-after"] = fault.retry_after
        return made


class Reset(Exception):
    """The connection is to be reset before anything is accepted."""
