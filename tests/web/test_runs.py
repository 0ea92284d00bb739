"""`/`: what the form refuses and keeps, what it starts, and what the list shows to whom."""

import re
import uuid

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentruns.models import Run
from agentruns.models.submission import TASK_BYTES
from agentruns.web import listing
from tests import plans_for_tests as hands
from tests.web.queries import queries

pytestmark = pytest.mark.django_db
GOOD = {"plan": "two", "task": "Explain tides", "submission_key": "k1"}


def start(task: str, owner: User, **more: object) -> Run:
    return Run.start("two", task, model="demo", owner=owner, **more)


def titles(html: str) -> list[str]:
    return re.findall(r'class="ttl"[^>]*>([^<]*)<', html)


# --- the form -------------------------------------------------------------------------------------------------------


def test_a_task_becomes_a_run_of_its_owner_and_the_answer_leads_to_it(client: Client, ada: User):
    params, budget = '{"language": "en"}', "1.25"
    answer = client.post("/", GOOD | {"params": params, "budget": budget, "minutes": "90"})
    run = Run.objects.get()
    assert (answer.status_code, answer["Location"]) == (303, f"/runs/{run.pk}/")
    assert (run.owner, run.task, run.params, run.budget) == (ada, "Explain tides", {"language": "en"}, 1.25)
    assert 5390 < (run.deadline_at - run.created_at).total_seconds() < 5410


def test_the_same_form_sent_twice_is_one_run(client: Client):
    answers = [client.post("/", GOOD) for _ in range(2)]
    assert answers[0]["Location"] == answers[1]["Location"]
    assert Run.objects.count() == 1


def test_a_key_that_started_another_task_is_refused_and_the_next_press_has_a_fresh_one(client: Client):
    client.post("/", GOOD)
    answer = client.post("/", GOOD | {"task": "Another"})
    assert answer.status_code == 422
    html = answer.content.decode()
    assert "already started run" in html
    fresh = re.search(r'name="submission_key" value="(\w+)"', html)
    assert fresh and fresh[1] != "k1"
    assert client.post("/", GOOD | {"task": "Another", "submission_key": fresh[1]}).status_code == 303


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("plan", "nope", "There is no plan called &#x27;nope&#x27;. Plans here: report, two."),
        ("task", "", "The task is empty."),
        ("task", "   \n ", "The task is empty."),
        ("task", "x" * 2**20, f"the limit is {TASK_BYTES:,}"),
        ("task", "nul \0 byte", "Null characters are not allowed."),
        ("budget", "-1", "must be above zero"),
        ("budget", "0", "must be above zero"),
        ("budget", "abc", "is not an amount. Give USD, such as 5.00."),
        ("budget", "NaN", "must be above zero"),
        ("budget", "1e99", "over the limit"),
        ("minutes", "-5", "is no time limit"),
        ("minutes", "soon", "is no time limit"),
        ("minutes", "1e400", "is no time limit"),
        ("params", "{", "This is not JSON: Expecting property name"),
        ("params", "[1]", "must be a JSON object"),
        ("params", "9" * 10_000, "This JSON cannot be used"),
        ("params", '{"a":' * 300 + "1" + "}" * 300, "nested deeper than 100"),
        ("params", "[" * 100_000, "cannot be used"),
    ],
)
def test_bad_input_is_answered_in_place_and_nothing_typed_is_lost(client: Client, field: str, value: str, says: str):
    sent = GOOD | {"params": '{"kept": 1}', "budget": "3", "minutes": "7"} | {field: value}
    answer = client.post("/", sent)
    html = answer.content.decode()
    assert answer.status_code == 422
    assert Run.objects.count() == 0
    shown = re.search(rf'id="{field}-error">(.*?)</p>', html, re.S)
    assert shown and says in shown[1]
    form = answer.context["form"]
    for name, text in sent.items():
        assert form.data[name] == text
    if field != "task":
        assert "Explain tides</textarea>" in html


def test_a_textareas_line_ends_are_those_of_the_command_line(client: Client):
    client.post("/", GOOD | {"task": "one\r\ntwo"})
    assert Run.objects.get().task == "one\ntwo"


def test_a_body_over_two_megabytes_is_refused_in_words(client: Client):
    answer = client.post("/", GOOD | {"task": "x" * (3 * 2**20)})
    assert answer.status_code == 400
    assert "your browser kept what you typed" in answer.content.decode()


def test_with_redis_away_a_run_is_kept_and_the_page_says_so(client: Client):
    assert client.post("/", GOOD).status_code == 303
    html = client.get("/").content.decode()
    assert "Redis does not answer." in html
    assert titles(html) == ["Explain tides"]


def test_running_again_fills_the_form_with_what_was_asked(client: Client, ada: User, bob: User):
    run = start("Explain tides\nat length", ada, params={"language": "en"}, budget="2.50")
    html = client.get(f"/?again={run.pk.hex}").content.decode()
    assert "Explain tides\nat length</textarea>" in html
    assert "&quot;language&quot;: &quot;en&quot;" in html
    assert 'value="2.50"' in html
    other = start("Bob's secret", bob)
    assert "secret" not in client.get(f"/?again={other.pk.hex}").content.decode()


def test_a_plan_named_in_the_address_is_chosen(client: Client):
    html = client.get("/?plan=report").content.decode()
    assert re.search(r'id="plan-report" value="report" checked', html)


# --- the list -------------------------------------------------------------------------------------------------------


def test_a_person_sees_his_own_runs_and_staff_sees_all(client: Client, ada: User, bob: User):
    start("Ada's", ada), start("Bob's", bob)
    assert titles(client.get("/").content.decode()) == ["Ada&#x27;s"]
    ada.is_staff = True
    ada.save()
    assert titles(client.get("/").content.decode()) == ["Bob&#x27;s", "Ada&#x27;s"]


def test_filters_and_search_are_in_the_address(client: Client, ada: User):
    tides, moon = start("Tides", ada), start("Moon", ada)
    moon.cancel(by=ada)
    assert titles(client.get("/?status=cancelled").content.decode()) == ["Moon"]
    assert titles(client.get("/?status=queued").content.decode()) == ["Tides"]
    assert titles(client.get("/?q=tid").content.decode()) == ["Tides"]
    assert titles(client.get(f"/?q={str(tides.pk)[:9]}").content.decode()) == ["Tides"]
    assert titles(client.get(f"/?q={tides.pk.hex}&status=cancelled").content.decode()) == []
    assert "Nothing matches." in client.get("/?q=neither").content.decode()


def test_what_is_not_understood_in_the_address_is_left_out(client: Client, ada: User):
    start("Tides", ada)
    html = client.get("/?status=nope&after=xyz&before=&top=1&q=").content.decode()
    assert titles(html) == ["Tides"]
    assert titles(client.get(f"/?after={uuid.uuid4().hex}").content.decode()) == []


def test_pages_follow_each_other_without_a_gap_or_a_double(client: Client, ada: User, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listing, "PAGE", 3)
    for number in range(8):
        start(f"Run {number}", ada)
    seen: list[list[str]] = []
    url = "/"
    while url:
        html = client.get(url).content.decode()
        seen.append(titles(html))
        older = re.search(r'rel="next" href="([^"]*)"', html)
        url = older[1].replace("&amp;", "&") if older else ""
    assert seen == [["Run 7", "Run 6", "Run 5"], ["Run 4", "Run 3", "Run 2"], ["Run 1", "Run 0"]]
    newer = re.search(r'rel="prev" href="([^"]*)"', html)
    assert newer and titles(client.get(newer[1]).content.decode()) == ["Run 4", "Run 3", "Run 2"]


def test_a_row_says_status_steps_cost_and_what_can_be_done(client: Client, ada: User):
    start("Tides", ada)
    held = hands.claimed(Run.objects.get())
    hands.settled(hands.call_at(held, "first/ask"), cost="0.25")
    hands.failed(hands.checkpointed(held, "word", "second"), "ValueError: no\nsuch word")
    html = client.get("/").content.decode()
    assert "Failed" in html
    assert "1 of 2 steps done" in html
    assert "<b>$0.25</b>" in html
    assert "such word" in html
    assert f'action="/runs/{held.pk}/retry"' in html
    assert "DEMO" in html


def test_the_number_of_queries_does_not_grow_with_the_list(client: Client, ada: User):
    def count() -> int:
        with queries() as asked:
            assert client.get("/").status_code == 200
        return len(asked)

    start("First", ada)
    client.get("/")
    few = count()
    for number in range(30):
        start(f"Run {number}", ada)
    for _ in range(3):
        hands.checkpointed(Run.claim(worker="w", lease=60), "word", "second")
    assert count() == few <= 12


def test_the_list_never_reads_a_task_or_an_output(client: Client, ada: User):
    start("Tides", ada)
    with queries() as asked:
        client.get("/")
    assert not [one for one in asked if re.search(r'"(task|params|output|content)"', one)]
