"""Model providers as processes of their own, for tests: real HTTP, real kills, and their own count of bills."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from functools import cache
from pathlib import Path
from typing import Any

import openai
from openai.types.responses import Response

ROOT = Path(__file__).resolve().parent.parent
OPEN = {"queued", "in_progress"}


class DemoProvider:
    """The demo provider on a free port. After `kill()` or `stop()`, `start()` goes on with the same state and port.

    provider = DemoProvider(tmp_path / "demo.sqlite3").start(speed=20, background="off")
    """

    def __init__(self, state: Path) -> None:
        self.state = state
        self.port = 0
        self.process: subprocess.Popen[str] | None = None

    def start(self, **options: object) -> "DemoProvider":
        """Options are those of `python -m agentruns.demo`, with underscores; ready to serve when it returns."""
        named = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        command = [sys.executable, "-m", "agentruns.demo", "--port", str(self.port), "--state", str(self.state), *named]
        self.process = subprocess.Popen(
            [*command, "--parent", str(os.getpid())], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        banner = self.process.stdout.readline()  # printed once the port is open
        assert "/v1" in banner, f"the demo model did not start: {banner!r}"
        self.port = int(banner.partition("/v1")[0].rpartition(":")[2])
        return self

    @property
    def root_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        return f"{self.root_url}/v1"

    @cache  # noqa: B019 - making one reads the system's certificates: a tenth of a second, and a test has few providers
    def client(self, timeout: float = 20) -> openai.OpenAI:
        return openai.OpenAI(base_url=self.base_url, api_key="demo", max_retries=0, timeout=timeout)

    def answer(self, prompt: Any, **request: Any) -> Response:
        """Asks in the background and waits for the end, whatever it is."""
        asked = {"model": "demo", "input": prompt, "background": True, **request}
        return self.ended(self.client().responses.create(**asked).id)

    def ended(self, response_id: str, seconds: float = 10) -> Response:
        deadline = time.monotonic() + seconds
        while (response := self.client().responses.retrieve(response_id)).status in OPEN:
            assert time.monotonic() < deadline, f"{response_id} is still {response.status}"
            time.sleep(0.02)
        return response

    def billed(self, response_id: str) -> dict[str, Any]:
        """The ledger's line of one response."""
        return next(call for call in self.ledger()["calls"] if call["id"] == response_id)

    def ledger(self) -> dict[str, Any]:
        """What the provider itself has billed; its keys are in demo/api.py."""
        return self.ask("GET", "/_demo/ledger")

    def fault(self, fault: str, *, times: int | None = None, match: str = "", on: str | None = None) -> None:
        """Sets a fault by the words of a directive, for prompts that contain `match`."""
        self.ask("POST", "/_demo/faults", {"fault": fault, "times": times, "match": match, "on": on})

    def faults(self) -> list[dict[str, Any]]:
        return self.ask("GET", "/_demo/faults")

    def clear_faults(self) -> None:
        self.ask("DELETE", "/_demo/faults")

    def kill(self) -> None:
        """As the out-of-memory killer does it."""
        self.end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        return self.end(signal.SIGTERM)

    def end(self, number: signal.Signals) -> int:
        if self.process is None:
            return 0
        process, self.process = self.process, None
        process.send_signal(number)
        code = process.wait(timeout=10)
        assert process.stdout is not None
        process.stdout.close()
        return code

    def ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.root_url + path, data=data, method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)
