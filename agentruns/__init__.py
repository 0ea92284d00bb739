"""agentruns: long AI-agent tasks as durable jobs. The door: all that a plan's author needs."""

from agentruns.errors import (
    BadAnswer,
    Incomplete,
    ItemFailed,
    ModelError,
    PermanentError,
    PlanError,
    Refused,
    Rejected,
    RetryLater,
)
from agentruns.plan import Plan, step

__all__ = [
    "BadAnswer",
    "Incomplete",
    "ItemFailed",
    "ModelError",
    "PermanentError",
    "Plan",
    "PlanError",
    "Refused",
    "Rejected",
    "RetryLater",
    "step",
]
__version__ = "0.1.0"
