"""Who gets in where: every address by the table, and a new one without a line here fails."""

import re

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from agentruns.models import Process, Run
from agentruns.web import urls
from tests import plans_for_tests as hands
from tests.web.conftest import PASSWORD

pytestmark = pytest.mark.django_db
# What an anonymous GET gets.
OPEN = {"login": 200, "healthz": 200, "readyz": 503, "theme": 405, "webhook-openai": 404}
CLOSED = {
    "runs", "runs-live", "run", "run-live", "run-output", "run-cancel", "run-retry", "workers", "workers-live", "plans",
    "logout", "run-pause", "run-resume", "pause-all", "resume-all", "approvals", "run-say",
}  # fmt: skip


def addresses(run: Run) -> dict[str, str]:
    return {str(one.name): "/" + str(one.pattern).replace("<uuid:run_id>", str(run.pk)) for one in urls.urlpatterns}


@pytest.fixture
def run(ada: User) -> Run:
    return Run.start("two", "Tides", model="demo", owner=ada)


def test_every_address_is_open_or_asks_for_the_login(run: Run):
    found = addresses(run)
    assert set(found) == set(OPEN) | CLOSED
    for name, path in found.items():
        answer = Client().get(path)
        if name in OPEN:
            assert answer.status_code == OPEN[name], name
        else:
            assert answer.status_code == 302 and answer["Location"].startswith("/login/?next="), name


def test_looking_changes_nothing(client: Client, run: Run):
    before = list(Run.objects.values()), run.events.count()
    for path in addresses(run).values():
        client.get(path)
    assert (list(Run.objects.values()), run.events.count()) == before


def test_orders_need_the_forms_token(ada: User, run: Run):
    careful = Client(enforce_csrf_checks=True)
    careful.force_login(ada)
    verbs = [f"/runs/{run.pk}/{verb}" for verb in ("cancel", "retry", "pause", "resume", "say")]
    for path in ("/", *verbs, "/pause", "/resume", "/theme", "/logout/"):
        answer = careful.post(path, {"plan": "two", "task": "x"})
        assert answer.status_code == 403
        assert "This form is too old" in answer.content.decode()
    assert Run.objects.get().status == "queued"


def test_signing_in_leads_where_one_wanted_to_go(ada: User):
    answer = Client().post("/login/", {"username": "ada", "password": PASSWORD, "next": "/workers/"})
    assert (answer.status_code, answer["Location"]) == (302, "/workers/")
    wrong = Client().post("/login/", {"username": "ada", "password": "wrong"})
    assert "do not belong together" in wrong.content.decode()
    assert 'value="ada"' in wrong.content.decode()


def test_every_page_has_the_strict_policy(client: Client, run: Run):
    for path in ("/", f"/runs/{run.pk}/", "/workers/", "/plans/", "/approvals/", "/nope"):
        policy = client.get(path)["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert "style-src 'self'" in policy


def test_the_theme_is_kept_in_a_cookie_and_rendered_by_the_server(client: Client):
    assert "data-theme" not in client.get("/").content.decode()
    answer = client.post("/theme", {"theme": "dark", "next": "/plans/"})
    assert (answer.status_code, answer["Location"]) == (303, "/plans/")
    assert '<html lang="en" data-theme="dark"' in client.get("/").content.decode()
    client.post("/theme", {"theme": "'><script>"})
    assert re.search(r'data-theme="dark"', client.get("/").content.decode())


def test_workers_and_plans_are_true_and_show_no_foreign_run(client: Client, run: Run, bob: User):
    foreign = Run.start("two", "Bob's secret", model="demo", owner=bob, priority=9)
    Process.born("worker-1", "worker", "host", 1, "build-9")
    assert hands.claimed(foreign).pk == foreign.pk
    html = client.get("/workers/").content.decode()
    assert "worker-1" in html and "build-9" in html and "Alive" in html
    assert "secret" not in html
    html = client.get("/plans/").content.decode()
    assert "Two steps" in html and "Says a word." in html and "old_second" in html
    assert "1 run, 0 completed, 1 under way" in html


def test_only_who_may_stop_all_work_has_the_button_and_the_right(ada: User, client: Client):
    """`client` is signed in as ada, who may not."""
    assert 'id="pause-all"' not in client.get("/workers/").content.decode()
    assert client.post("/pause").status_code == 403
    ada.user_permissions.add(Permission.objects.get(codename="pause_all"))
    assert 'id="pause-all"' in client.get("/workers/").content.decode()
    assert client.post("/pause").status_code == 303
    page = client.get("/workers/").content.decode()
    assert "All work is paused by ada" in page
    assert 'id="resume-all"' in page
    client.post("/resume")
    assert 'id="pause-all"' in client.get("/workers/").content.decode()
