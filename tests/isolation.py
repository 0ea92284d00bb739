"""Loaded before Django (`-p tests.isolation`): tests have a home, settings and a database of their own.

`pytest` runs on a SQLite file. `pytest --postgresql` starts a PostgreSQL and runs on it whatever uses the database; the
plain run does that too, as one of its tests (test_on_postgresql.py).
"""

import os
import re
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.machine import Cluster

# What a developer's shell may have set for his own agentruns; none of it is for tests.
OURS = re.compile(
    r"(AGENT|AGENTRUNS|OPENAI|DEMO)_.*|DATABASE_URL|REDIS_URL|SECRET_KEY|DEBUG|ALLOWED_HOSTS|CSRF_TRUSTED_ORIGINS"
    r"|CRASH_AT|LOG_LEVEL"
)
HOME = pytest.StashKey[Path]()
CLUSTER = pytest.StashKey[Cluster | None]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--postgresql", action="store_true", help="run what uses the database on PostgreSQL")


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    """A wrapper, because pytest-django reads the settings in its own hook of this name."""
    for name in [name for name in os.environ if OURS.fullmatch(name)]:
        del os.environ[name]
    home = Path(tempfile.mkdtemp(prefix="agentruns-tests-"))
    home.chmod(0o711)  # the user postgres has his folder in it
    os.environ["AGENTRUNS_HOME"] = str(home)
    cluster = None
    asked = early_config.known_args_namespace
    if asked.postgresql and not (asked.help or asked.version or asked.collectonly):
        cluster = Cluster(home / "postgresql").start()
        os.environ["DATABASE_URL"] = cluster.url("agentruns")
    early_config.stash[HOME], early_config.stash[CLUSTER] = home, cluster
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "once: nothing in it depends on which database it is; not run on PostgreSQL")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("postgresql"):
        # The longest first: the other process of `-n 2` works through the rest meanwhile.
        items.sort(key=lambda item: item.name != "test_whatever_uses_the_database_passes_on_postgresql_too")
        return
    chosen = [item for item in items if uses_the_database(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def uses_the_database(item: pytest.Item) -> bool:
    if item.get_closest_marker("once"):
        return False
    asked = {"db", "transactional_db", "system", "admin_client", "admin_user"} & set(getattr(item, "fixturenames", ()))
    return bool(asked or item.get_closest_marker("django_db"))


def pytest_unconfigure(config: pytest.Config) -> None:
    if cluster := config.stash.get(CLUSTER, None):
        cluster.stop()
    if home := config.stash.get(HOME, None):
        shutil.rmtree(home, ignore_errors=True)
