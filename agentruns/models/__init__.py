"""The rows that hold the truth, and their verbs."""

from agentruns.models.body import Body
from agentruns.models.call import Call
from agentruns.models.event import Event
from agentruns.models.halt import Halt
from agentruns.models.key import IdempotencyKey
from agentruns.models.outbox import Hook, Outbox
from agentruns.models.process import Process
from agentruns.models.provider import Day, Price, Provider
from agentruns.models.run import Run
from agentruns.models.status import Status
from agentruns.models.step import Attempt, Step
from agentruns.models.wait import Grant, Wait

__all__ = [
    "Attempt", "Body", "Call", "Day", "Event", "Grant", "Halt", "Hook", "IdempotencyKey", "Outbox", "Price", "Process",
    "Provider", "Run", "Status", "Step", "Wait",
]  # fmt: skip
