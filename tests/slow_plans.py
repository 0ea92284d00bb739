"""Plans that keep a real worker busy, loaded there with AGENTRUNS_PLANS; params["log"] is a file that counts bodies."""

import time
from pathlib import Path

from agentruns import Plan, step


def note(ctx, text):
    with Path(ctx.params["log"]).open("a") as log:
        log.write(f"{text}\n")


@step
def prepare(ctx):
    note(ctx, "prepare")
    return "prepared"


@step
def work(ctx):
    """Sub-steps of 0.1 s until the file params["gate"] is there: a boundary between any two."""
    note(ctx, "work")
    for number in range(600):
        if ctx.step(f"look-{number}", look, Path(ctx.params["gate"]).exists()):
            return "worked"
    return "never let go"


def look(is_open):
    time.sleep(0.1)
    return is_open


@step
def hang(ctx):
    """No boundary at all until the gate opens."""
    note(ctx, "hang")
    while not Path(ctx.params["gate"]).exists():
        time.sleep(0.05)
    return "let go"


busy = Plan("busy", [prepare, work])
deaf = Plan("deaf", [prepare, hang])
