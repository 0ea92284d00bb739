"""The entry of one item of a map: what it shares with its siblings, and what is its own."""

from agentruns.entry import Entry
from agentruns.models.step import NewStep


class Branch(Entry):
    """An Entry under `trunk`: its own end, its own unsaved rows; whatever ends the trunk ends it, too."""

    def __init__(self, trunk: Entry) -> None:
        super().__init__(trunk.run, trunk.plan, trunk.step, trunk.path, trunk.number, trunk.authority, trunk.finished)
        self.trunk = trunk
        self.started_at = trunk.started_at
        self.reads = trunk.reads
        # Read once, for all of them; each thread touches its own item's paths only.
        self.steps, self.calls, self.diverged = trunk.steps, trunk.calls, trunk.diverged

    def check(self) -> None:
        super().check()
        self.trunk.check()

    def patience(self) -> float:
        """None: every item is started before any is waited for."""
        return 0.0

    def unsaved(self) -> list[NewStep]:
        """Rows that the item learned before it parked or failed."""
        return list(self.pending)
