"""The demo provider for its own tests: one for all that leave it as it was, or one of the test's own."""

import pytest

from tests.providers import DemoProvider

TASK = "Compare heat pumps and gas boilers for an old house in Denmark"


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """For tests that leave no fault and kill nothing; a call takes 0.02 to 0.04 s."""
    provider = DemoProvider(tmp_path_factory.mktemp("demo") / "demo.sqlite3").start(speed=100)
    yield provider
    provider.stop()


@pytest.fixture
def own(tmp_path):
    """Not started yet."""
    provider = DemoProvider(tmp_path / "demo.sqlite3")
    yield provider
    provider.stop()
