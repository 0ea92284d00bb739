"""Probes, and what people see when the database is away or of another schema, or something of ours breaks."""

import json
from collections.abc import Iterator

import pytest
from django.db import OperationalError, connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

from agentruns.web import guard
from agentruns.web import run as run_page


@pytest.fixture
def no_database(db: None) -> Iterator[None]:
    """The connection cannot be made: as if the server, or the folder of the file, were gone."""

    def refuse() -> None:
        raise OperationalError("connection to server failed: Connection refused\n\tIs the server running?")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "ensure_connection", refuse)
        guard.forget()
        yield


def test_healthz_answers_whatever_is_away(no_database: None):
    answer = Client().get("/healthz")
    assert (answer.status_code, answer.content) == (200, b"ok\n")


@pytest.mark.django_db
def test_readyz_says_what_is_missing():
    answer = Client().get("/readyz")
    found = json.loads(answer.content)
    assert answer.status_code == 503
    assert found["database"] == "ok"
    assert "redis.sock" in found["redis"]


def test_readyz_names_a_database_that_is_away(no_database: None):
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert "Connection refused" in json.loads(answer.content)["database"]


@pytest.mark.parametrize("path", ["/", "/login/", "/admin/", "/runs/6ac4917a-4f68-45d6-ab47-6a9cd4ca205a/live"])
def test_without_a_database_a_page_says_so_with_the_remedy(no_database: None, path: str):
    answer = Client().get(path)
    html = answer.content.decode()
    assert answer.status_code == 503
    assert "The database does not answer" in html
    assert "Check that it is up and that DATABASE_URL is right" in html
    assert "Traceback" not in html


@pytest.mark.django_db
def test_a_database_that_lacks_a_migration_names_the_command():
    last = sorted(name for app, name in guard.migrations() if app == "agentruns")[-1]
    MigrationRecorder(connection).record_unapplied("agentruns", last)
    answer = Client().get("/login/")
    html = answer.content.decode()
    assert answer.status_code == 503
    assert "older schema" in html and f"agentruns.{last}" in html
    assert "Run: manage.py migrate" in html


@pytest.mark.django_db
def test_a_database_of_a_newer_schema_asks_for_the_newer_code():
    MigrationRecorder(connection).record_applied("agentruns", "9999_of_the_future")
    answer = Client().get("/login/")
    html = answer.content.decode()
    assert answer.status_code == 503
    assert "newer schema" in html and "agentruns.9999_of_the_future" in html
    assert "Deploy the newer code" in html


@pytest.mark.django_db
def test_migrations_of_apps_that_are_not_installed_any_more_are_no_trouble():
    MigrationRecorder(connection).record_applied("an_old_app", "0001_initial")
    assert Client().get("/login/").status_code == 200


def test_a_database_that_goes_away_in_the_middle_is_told_the_same_way(client: Client, monkeypatch: pytest.MonkeyPatch):
    def gone(*args: object) -> None:
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(run_page, "seen_by", gone)
    client.raise_request_exception = False
    answer = client.get("/runs/6ac4917a-4f68-45d6-ab47-6a9cd4ca205a/")
    assert answer.status_code == 503
    assert "The database does not answer" in answer.content.decode()


def test_our_own_mistake_has_a_number_that_is_in_the_log(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def broken(*args: object) -> None:
        raise RuntimeError("a secret of ours")

    monkeypatch.setattr(run_page, "seen_by", broken)
    client.raise_request_exception = False
    answer = client.get("/runs/6ac4917a-4f68-45d6-ab47-6a9cd4ca205a/")
    html = answer.content.decode()
    assert answer.status_code == 500
    assert "Something went wrong here" in html and "secret" not in html
    number = html.split("in the log as ")[1].split(".")[0]
    assert number in caplog.text
