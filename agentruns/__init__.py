"""agentruns: long AI-agent tasks as durable jobs. The door: all that a plan's author needs."""

from agentruns.agent import TurnsUsedUp, run_agent
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
from agentruns.tools import tool

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
    "TurnsUsedUp",
    "run_agent",
    "step",
    "tool",
]
__version__ = "0.1.0"
