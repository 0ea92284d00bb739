"""A step that no exception can end, loaded into a real worker with AGENTRUNS_PLANS."""

import time
from pathlib import Path

from agentruns import Plan, step


@step(timeout=1, retries=0)
def stubborn(ctx):
    log = Path(ctx.params["log"])  # ctx itself would raise it again
    while True:
        try:
            while True:
                time.sleep(0.05)
        except BaseException:
            log.write_text("swallowed")


plan = Plan("stubborn", [stubborn])
