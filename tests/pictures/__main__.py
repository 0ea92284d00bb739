"""`python -m tests.pictures [FOLDER]`: a run whose worker is killed twice, as its page shows it, light and dark."""

import os
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests import machine
from tests.providers import DemoProvider
from tests.system import ROOT, Databases, System, wait_until
from tests.web.pages import Site

TASK = "How do tides work, and who lives by them?"
SIZE = {"width": 1280, "height": 800}


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs"
    folder.mkdir(exist_ok=True)
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentruns-pictures-")))
        provider = DemoProvider(home / "provider.sqlite3").start(speed=1.5)
        stack.callback(provider.stop)
        system = System(home, Databases(home, None).new(), provider)
        stack.callback(system.stop)
        system.start(workers=2, web=True)
        run_id = interrupted_run(system)
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=machine.chromium(), args=["--no-sandbox"])
        for theme in ("light", "dark"):
            print(shoot(system, browser, run_id, theme, folder / f"run-{theme}.png"))
        browser.close()
    return 0


def interrupted_run(system: System) -> str:
    """The id of a completed run that was cut off in its second step, and in its third."""
    run_id = system.submit("report", TASK, "--by", system.name, "--budget", "2")
    for done in (1, 2):
        system.until(run_id, lambda run, done=done: finished(run) >= done, f"{done} steps are finished")
        horse = wait_until(lambda: [pid for name in ("worker-1", "worker-2") for pid in system.horses(name)], "a horse")
        os.kill(horse[0], signal.SIGKILL)
    system.until_ended(run_id)
    return run_id


def finished(run: dict) -> int:
    return sum(step["status"] == "finished" and "/" not in step["path"] for step in run["steps"])


def shoot(system: System, browser: Browser, run_id: str, theme: str, path: Path) -> Path:
    site = Site(browser, system.url, width=SIZE["width"], theme=theme)
    site.sign_in(system.name, system.password)
    site.run(run_id, "?step=draft").until_status("Completed")
    site.page.set_viewport_size(SIZE)
    site.page.screenshot(path=path)
    site.close()
    return path


if __name__ == "__main__":
    sys.exit(main())
