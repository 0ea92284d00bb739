"""What all tests may ask for. `system` is agentruns as processes; in-process fixtures are beside their tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import machine
from tests.isolation import CLUSTER
from tests.providers import DemoProvider
from tests.system import Databases, System


@pytest.fixture(scope="session")
def databases(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Databases:
    """Migrated ones, on the database of this session."""
    return Databases(tmp_path_factory.mktemp("databases"), request.config.stash[CLUSTER])


@pytest.fixture
def system(tmp_path: Path, databases: Databases) -> Iterator[System]:
    """Nothing of it runs yet but the provider (20 times as fast as it pretends): `system.start(workers=2)`."""
    provider = DemoProvider(tmp_path / "provider.sqlite3").start(speed=20)
    home = tmp_path / "home"
    home.mkdir()
    running = System(home, databases.new(), provider)
    yield running
    running.stop()
    provider.stop()


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the browser for Playwright's `executable_path`, installed if need be."""
    return machine.chromium()
