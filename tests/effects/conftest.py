"""The outsides that plans.py reaches, as real processes, each with a count of its own of what was done there."""

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stripe

from tests.engine.conftest import declare, demo, provider, shop, start  # noqa: F401 - for runs in this process
from tests.machine import free_port
from tests.providers import DemoProvider
from tests.system import ENDED, PYTHON, ROOT, Databases, System, wait_until
from tests.trials.rows import Rows

STRIPE_KEY = "sk_test_of_nobody"
GOOD_CARD, DECLINED_CARD = "4242424242424242", "4000000000000341"


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def serve(log: Path, url: str, *argv: str, **env: str) -> subprocess.Popen[bytes]:
    """Started, and answering at `url`; it ends when the tests do."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [PYTHON, *argv], cwd=ROOT, env=os.environ | env | {"AGENTRUNS_PARENT": str(os.getpid())},
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip

    def is_up() -> bool:
        assert process.poll() is None, f"{argv} has ended:\n{log.read_text()}"
        return answers(url)

    wait_until(is_up, f"{argv} answers")
    return process


class Till:
    """A localstripe, and what it has taken from whom."""

    def __init__(self, log: Path, *words: str) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.process = serve(log, self.url, "-m", "tests.effects.stripe_server", str(port), *words)
        self.client = stripe.StripeClient(STRIPE_KEY, base_addresses={"api": self.url}, max_network_retries=0)

    def new_customer(self, card: str = GOOD_CARD) -> str:
        customer = self.client.v1.customers.create({"email": "ada@example.com"}).id
        self.give_card(customer, card)
        return customer

    def give_card(self, customer: str, number: str) -> None:
        card = {"number": number, "exp_month": 12, "exp_year": 2040, "cvc": "123"}
        method = self.client.v1.payment_methods.create({"type": "card", "card": card})
        self.client.v1.payment_methods.attach(method.id, {"customer": customer})
        self.client.v1.customers.update(customer, {"invoice_settings": {"default_payment_method": method.id}})

    def taken(self, customer: str) -> list[str]:
        """Ids of what was paid."""
        return [charge.id for charge in self.client.v1.charges.list({"customer": customer}).data if charge.paid]

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


class Office:
    """The API of api.py, and what its own database holds."""

    def __init__(self, home: Path, database: str) -> None:
        self.home, self.rows = home, Rows(database)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/notices"
        self.process = serve(
            home / "log", self.url, "-m", "gunicorn", "--no-control-socket", "--bind", f"127.0.0.1:{port}",
            "tests.effects.api", API_HOME=str(home), API_DATABASE=database,
        )  # fmt: skip

    def kill_once(self, where: str) -> None:
        (self.home / where).touch()

    def was_killed(self, where: str) -> bool:
        return not (self.home / where).exists()

    def begun(self, run_id: object) -> int:
        """How often the view has begun for this run."""
        return (self.home / "begun").read_text().count(str(run_id))

    def notices(self, text: str) -> int:
        """How many of this text are committed."""
        return int(self.rows.one("SELECT count(*) FROM notices_notice WHERE text = ?", text))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


class Doomed:
    """A system whose worker is killed at a named point, once each time that it is asked for."""

    def __init__(self, system: System, armed: Path) -> None:
        self.system, self.armed = system, armed
        self.rows = Rows(system.env["DATABASE_URL"])
        system.start(workers=1, AGENTRUNS_PLANS="tests.effects.plans", CRASH_AT=f"@{armed}", STRIPE_KEY=STRIPE_KEY)

    def complete(self, point: str, plan: str, task: str, **params: str) -> str:
        """The id of a run of the plan, completed although its worker was killed at `point`."""
        fired = self.armed.with_name(f"{self.armed.name}.fired")
        for path in (fired, fired.with_name(f"{self.armed.name}.passed")):
            path.unlink(missing_ok=True)
        self.armed.write_text(point)
        run_id = self.system.submit(plan, task, "--params", json.dumps(params))
        wait_until(lambda: self.status(run_id) in ENDED, f"{plan} has ended", seconds=90)
        assert fired.exists(), f"{point} was never passed"
        assert self.status(run_id) == "completed"
        return run_id

    def status(self, run_id: str) -> str:
        return str(self.rows.one("SELECT status FROM agentruns_run WHERE id = ?", self.rows.id(run_id)))

    def output(self, run_id: str, path: str) -> Any:
        asked = "SELECT output FROM agentruns_step WHERE run_id = ? AND path = ?"
        return json.loads(self.rows.one(asked, self.rows.id(run_id), path))


@pytest.fixture(scope="package")
def careful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Till]:
    """A localstripe that honours keys, as Stripe does."""
    till = Till(tmp_path_factory.mktemp("careful") / "log", "--keys")
    yield till
    till.stop()


@pytest.fixture(scope="package")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Till]:
    """A localstripe as it comes: it ignores keys."""
    till = Till(tmp_path_factory.mktemp("forgetful") / "log")
    yield till
    till.stop()


@pytest.fixture(scope="package")
def office(tmp_path_factory: pytest.TempPathFactory, databases: Databases) -> Iterator[Office]:
    opened = Office(tmp_path_factory.mktemp("office"), databases.new())
    yield opened
    opened.stop()


@pytest.fixture(scope="package")
def doomed(tmp_path_factory: pytest.TempPathFactory, databases: Databases) -> Iterator[Doomed]:
    folder = tmp_path_factory.mktemp("doomed")
    unused = DemoProvider(folder / "provider.sqlite3").start()
    home = folder / "home"
    home.mkdir()
    system = System(home, databases.new(), unused)
    yield Doomed(system, folder / "armed")
    system.stop()
    unused.stop()


@pytest.fixture(autouse=True)
def stripe_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRIPE_KEY", STRIPE_KEY)
