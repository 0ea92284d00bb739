"""What the commands for people print; one line and exit 2 for whatever a person can mend."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection

from agentruns.management import follow
from agentruns.models import Run, Wait
from agentruns.plan import plans
from tests import plans_for_tests as hands
from tests.system import wait_until

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def plan_two(settings):
    settings.AGENTRUNS_PLANS = ["tests.plans_for_tests"]
    plans.forget()
    yield
    plans.forget()


def said(*words: str) -> tuple[str, str]:
    """What a command in this process writes to stdout and stderr."""
    out, err = StringIO(), StringIO()
    call_command(*words, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def refusal(*words: str) -> str:
    with pytest.raises(CommandError) as refused:
        said(*words)
    assert refused.value.returncode == 2
    text = str(refused.value)
    assert "\n" not in text
    return text


# --- submit -------------------------------------------------------------------------------------------------------


def test_submit_prints_the_id_and_nothing_else_on_stdout():
    out, err = said("submit", "two", "A task")
    assert out == f"{Run.objects.get().pk}\n"
    assert "DEMO" in err


def test_submit_keeps_the_run_and_says_so_when_redis_is_down():
    _, err = said("submit", "two", "A task")
    assert "Redis is down; the run starts when it is back." in err
    assert Run.objects.get().status == "queued"


def test_submit_takes_params_budget_model_and_owner(django_user_model):
    ada = django_user_model.objects.create_user("ada")
    said("submit", "two", "A task", "--params", '{"n": 1}', "--budget", "0.75", "--model", "demo", "--by", "ada")
    run = Run.objects.get()
    assert (run.params, str(run.budget)[:4], run.model, run.owner) == ({"n": 1}, "0.75", "demo", ada)


def test_submit_with_json_prints_the_run():
    out, _ = said("submit", "two", "A task", "--json")
    assert json.loads(out)["id"] == str(Run.objects.get().pk)


def test_submitting_a_key_again_prints_the_same_run():
    first, second = (said("submit", "two", "A task", "--key", "k")[0] for _ in range(2))
    assert first == second
    assert "already started run" in refusal("submit", "two", "Another task", "--key", "k")


def test_a_task_of_any_text_is_kept_as_it_is():
    task = "lone \udc80 surrogate, \x00, \u202e and\nlines"
    said("submit", "two", task)
    assert Run.objects.get().task == task


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("nope", "A task"), "Plans here: report, two."),
        (("two", ""), "Say in a sentence"),
        (("two", " \n "), "Say in a sentence"),
        (("two", "x" * 2**20), "1,048,576 bytes; the limit is 262,144"),
        (("two", "t", "--budget", "abc"), "Give USD, such as 5.00"),
        (("two", "t", "--budget=-5"), "must be above zero"),
        (("two", "t", "--budget", "0"), "must be above zero"),
        (("two", "t", "--budget", "nan"), "must be above zero"),
        (("two", "t", "--budget", "1e99"), "over the limit of $100,000"),
        (("two", "t", "--params", "{"), "Give an object"),
        (("two", "t", "--params", "[1]"), "must be a JSON object"),
        (("two", "t", "--params", "[" * 100_000), "Give an object"),
        (("two", "t", "--model", "nobody-knows-it"), "Set AGENT_PRICE"),
        (("two", "t", "--key", "k" * 201), "at most 200 printable characters"),
        (("two", "t", "--by", "nobody"), "manage.py createsuperuser"),
    ],
)
def test_bad_input_is_refused_in_one_line_with_the_remedy_and_stores_nothing(words, remedy):
    assert remedy in refusal("submit", *words)
    assert not Run.objects.exists()


# --- runs and run -------------------------------------------------------------------------------------------------


def test_runs_lists_the_newest_first_aligned_and_marked_as_demo():
    for number in range(3):
        Run.start("two", f"Task {number}", model="demo")
    out, err = said("runs")
    heading, *rows = out.splitlines()
    assert [row.split("DEMO")[1].strip() for row in rows] == ["Task 2", "Task 1", "Task 0"]
    assert {row.index("Task") for row in rows} == {heading.index("TASK")}
    assert "its prices invented" in err


def test_runs_filters_by_status_and_refuses_one_that_is_none():
    Run.start("two", "Queued", model="demo")
    Run.start("two", "Cancelled", model="demo").cancel()
    out, _ = said("runs", "--status", "cancelled")
    assert "Cancelled" in out and "Queued" not in out
    assert "One of: queued, running" in refusal("runs", "--status", "asleep")


def test_runs_for_people_are_limited_and_for_programs_they_are_not():
    for number in range(55):
        Run.start("two", f"Task {number}", model="demo")
    out, err = said("runs")
    assert len(out.splitlines()) == 51 and "The 50 newest" in err
    assert len(json.loads(said("runs", "--json")[0])) == 55
    assert len(json.loads(said("runs", "--json", "--limit", "7")[0])) == 7
    assert "whole number above 0" in refusal("runs", "--limit", "-1")


def test_runs_of_an_empty_database_say_how_to_start_one():
    out, err = said("runs")
    assert out == "" and "manage.py submit" in err
    assert json.loads(said("runs", "--json")[0]) == []


def test_run_shows_steps_calls_attempts_waits_events_and_the_last_output():
    run = hands.claimed()
    hands.settled(hands.call_at(run, "first/ask"), cost="0.0123")
    run = hands.checkpointed(run, "the first word", "second", hands.row_of(run, "first/ask", {"text": "w"}, "ask"))
    assert run.rescue("crash", dead_worker="worker-1")
    hands.parked(hands.claimed(run), "budget", "second/ask", error="")
    out, _ = said("run", run.pk.hex[:6])
    for part in (
        "DEMO", str(run.pk), "waiting for a higher budget", "$0.0123 of $1.00", "finished  first", "first/ask",
        "waiting   second", "completed  demo", "interrupted  crash", "second/ask  a higher budget",
        "its worker died", "OUTPUT OF first\n  the first word",
    ):  # fmt: skip
        assert part in out, part


def test_run_with_json_is_the_portrait():
    run = Run.start("two", "A task", model="demo")
    found = json.loads(said("run", str(run.pk), "--json")[0])
    assert found["id"] == str(run.pk) and [step["status"] for step in found["steps"]] == ["to_come", "to_come"]


def test_what_a_model_wrote_cannot_move_the_cursor_or_reorder_text():
    run = hands.claimed(Run.start("two", "Task \x1b[2J", model="demo"))
    run = hands.checkpointed(run, "a\x1b[2Jb\u202ec\rd\x07\te", "second")
    hands.failed(run, "ValueError: \x1b]0;title\x07 \u2066x")
    out, _ = said("run", run.pk.hex)
    assert "a⟨U+001B⟩[2Jb⟨U+202E⟩c⟨U+000D⟩d⟨U+0007⟩\te" in out
    for text in (out, said("runs")[0]):
        assert not set(text) & set("\x1b\u202e\u2066\r\x07")


@pytest.mark.parametrize("command", ["run", "cancel", "retry"])
@pytest.mark.parametrize(
    ("typed", "remedy"),
    [
        ("zzz", "at least 6 characters"), ("abcde", "at least 6 characters"), ("abc---", "at least 6 characters"),
        ("abcdef", "manage.py runs"), ("1" * 40, "at least 6 characters"),
        ("00000000-0000-0000-0000-000000000000", "manage.py runs"),
    ],
)  # fmt: skip
def test_an_id_of_no_run_is_refused_with_the_remedy(command, typed, remedy):
    assert remedy in refusal(command, typed)


def test_the_start_of_two_ids_is_refused_and_more_of_one_is_taken():
    for digit in "12":
        run = Run.start("two", f"Run {digit}", model="demo")
        run.pk = uuid.UUID(f"abcdef{digit}0-0000-4000-8000-000000000000")
        run.save(force_insert=True)
    assert "give more of its id" in refusal("run", "abcdef")
    assert "Run 1" in said("run", "ABCDEF1")[0]


# --- orders -------------------------------------------------------------------------------------------------------


def test_cancel_ends_a_queued_run_and_a_second_one_says_that_it_has_ended(django_user_model):
    staff = django_user_model.objects.create_user("sam", is_staff=True)
    run = Run.start("two", "A task", model="demo")
    assert "is cancelled" in said("cancel", str(run.pk), "--by", "sam")[0]
    assert run.events.get(kind="cancelled").by == staff
    assert "already been cancelled" in refusal("cancel", str(run.pk))


def test_cancel_tells_a_running_run_to_stop():
    run = hands.claimed()
    assert "told to stop" in said("cancel", str(run.pk))[0]
    assert Run.objects.get(pk=run.pk).cancel_requested_at


def test_retry_goes_on_from_the_finished_steps_and_refuses_what_has_not_failed():
    run = hands.failed(hands.checkpointed(hands.claimed(), "word", "second"))
    assert "finished steps kept: 1" in said("retry", str(run.pk))[0]
    assert "only a failed run can be retried" in refusal("retry", str(run.pk))


def test_budget_wakes_a_run_that_waited_for_it():
    run = hands.parked(hands.claimed(), "budget", "first/ask")
    assert "may spend $2.50; $0.00 is spent" in said("budget", str(run.pk), "2.5")[0]
    assert Run.objects.get(pk=run.pk).status == "queued"
    assert "Give USD" in refusal("budget", str(run.pk), "much")


def test_an_order_in_the_name_of_someone_finds_only_runs_that_he_may_see(django_user_model):
    django_user_model.objects.create_user("bob")
    django_user_model.objects.create_user("gone", is_active=False)
    run = Run.start("two", "A task", model="demo", owner=django_user_model.objects.create_user("ada"))
    assert "that bob may see" in refusal("cancel", str(run.pk), "--by", "bob")
    assert "is not active" in refusal("cancel", str(run.pk), "--by", "gone")
    assert "is cancelled" in said("cancel", str(run.pk), "--by", "ada")[0]


# --- as processes -------------------------------------------------------------------------------------------------


class Shell:
    """`manage.py` in a home and on a database of its own."""

    def __init__(self, home: Path, database: str) -> None:
        self.env = {
            **os.environ, "AGENTRUNS_HOME": str(home), "DATABASE_URL": database, "PYTHONPATH": str(ROOT),
            "AGENTRUNS_PLANS": "tests.plans_for_tests", "COLUMNS": "500", "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        self.env.pop("DJANGO_SETTINGS_MODULE", None)

    def start(self, *words: str, **options: Any) -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        options = {"stdin": pipe, "stdout": pipe, "stderr": pipe, "text": True, "env": self.env, **options}
        return subprocess.Popen([sys.executable, *words], cwd=ROOT, **options)

    def manage(self, *words: str, typed: str = "") -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        process = self.start("manage.py", *words)
        out, err = process.communicate(typed, timeout=60)
        return process.returncode, out, err

    def refused(self, *words: str, typed: str = "") -> str:
        """The one line of a command that ends with 2."""
        code, out, err = self.manage(*words, typed=typed)
        assert (code, out, err.count("\n")) == (2, "", 1), (code, out, err)
        return err

    def as_worker(self, run_id: str, *doings: str) -> None:
        """Lines of Python, with `hands` and the `run` at work."""
        lines = [
            "import django, os", "os.environ['DJANGO_SETTINGS_MODULE'] = 'agentruns.settings'", "django.setup()",
            "from agentruns.models import Run", "from tests import plans_for_tests as hands",
            f"run = hands.claimed(Run.objects.get(pk='{run_id}'))", *doings,
        ]  # fmt: skip
        done = self.start("-c", "\n".join(lines))
        _, err = done.communicate(timeout=60)
        assert done.returncode == 0, err


@pytest.fixture
def shell(databases, tmp_path) -> Shell:
    return Shell(tmp_path, databases.new())


def test_a_database_that_refuses_connections_is_one_line_without_the_password(tmp_path):
    shell = Shell(tmp_path, "postgresql://me:secret@127.0.0.1:1/x")
    for words in (("runs",), ("submit", "two", "t"), ("run", "abcdef"), ("cancel", "abcdef")):
        line = shell.refused(*words)
        assert "127.0.0.1:1" in line and "mend DATABASE_URL" in line and "secret" not in line


def test_a_schema_from_the_future_is_one_line_that_names_the_migration(shell):
    code = "from django.db.migrations.recorder import MigrationRecorder as R; from django.db import connection; "
    shell.manage("shell", "-c", f"{code}R(connection).record_applied('agentruns', '9999_future')")
    line = shell.refused("submit", "two", "t")
    assert "newer schema than this code (agentruns.9999_future)" in line and "Run the newer agentruns" in line


def test_a_database_that_was_never_migrated_is_one_line_that_says_migrate(tmp_path):
    line = Shell(tmp_path, f"sqlite:///{tmp_path / 'empty.sqlite3'}").refused("runs")
    assert "manage.py migrate" in line


def test_a_schema_from_the_past_is_one_line_that_says_migrate(shell):
    shell.manage("migrate", "sessions", "zero")
    assert "lacks sessions.0001_initial" in shell.refused("runs")


def test_a_wrong_setting_is_one_line_with_its_remedy(shell):
    shell.env["AGENT_BUDGET_USD"] = "lots"
    assert "Set AGENT_BUDGET_USD to an amount" in shell.refused("submit", "two", "t")


def test_a_plan_module_that_is_not_there_is_one_line(shell):
    shell.env["AGENTRUNS_PLANS"] = "no.such.module"
    assert "AGENTRUNS_PLANS names 'no.such.module'" in shell.refused("submit", "two", "t")


def test_a_refused_input_ends_with_two_and_no_traceback(shell):
    assert "Plans here" in shell.refused("submit", "nope", "t")
    assert "no run id" in shell.refused("run", "nope")


def test_a_task_is_read_from_standard_input(shell):
    code, out, _ = shell.manage("submit", "two", "-", "--json", typed="Two lines\nof task\n")
    assert code == 0 and json.loads(out)["task"] == "Two lines\nof task"
    assert "the limit is" in shell.refused("submit", "two", "-", typed="x" * 2**20)


def test_a_reader_that_has_gone_is_no_traceback(shell):
    process = shell.start("manage.py", "runs", "--json")
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    assert process.wait(60) == 1
    process.stderr.close()


def test_a_terminal_that_cannot_show_a_character_shows_its_escape(shell):
    shell.manage("submit", "two", "Bees 蜂")
    shell.env["PYTHONIOENCODING"] = "ascii"
    code, out, _ = shell.manage("runs")
    assert code == 0 and r"Bees \u8702" in out


# --- submit --wait ------------------------------------------------------------------------------------------------


def submitted(shell: Shell, *more: str) -> tuple["subprocess.Popen[str]", str]:
    process = shell.start("manage.py", "submit", "two", "A task", "--wait", *more)
    run_id = process.stdout.readline().strip() if "--json" not in more else ""
    return process, run_id


FINISH = (
    "hands.settled(hands.call_at(run, 'first/ask'), cost='0.25')",
    "run = hands.checkpointed(run, 'word', 'second')",
    "hands.checkpointed(run, 'words', None)",
)


def test_wait_follows_a_run_to_its_end_on_stderr_and_exits_0_when_it_completed(shell):
    process, run_id = submitted(shell)
    shell.as_worker(run_id, *FINISH)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert "First: done in" in err and "$0.25" in err and "Completed in" in err


def test_wait_with_json_prints_the_run_as_it_ended(shell):
    process, _ = submitted(shell, "--json")
    listed: Callable[[], list[Any]] = lambda: json.loads(shell.manage("runs", "--json")[1])  # noqa: E731
    run_id = wait_until(listed, "the run is there")[0]["id"]
    shell.as_worker(run_id, *FINISH)
    out, _ = process.communicate(timeout=60)
    found = json.loads(out)
    assert (process.returncode, found["status"], found["spent_usd"]) == (0, "completed", "0.25")


def test_wait_exits_1_for_a_run_that_failed_and_says_how_it_goes_on(shell):
    process, run_id = submitted(shell)
    shell.as_worker(run_id, "hands.failed(run, 'ValueError: no such word')")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"ValueError: no such word To go on from its finished steps: manage.py retry {run_id[:8]}" in err


def test_wait_exits_1_for_a_run_that_was_cancelled(shell):
    process, run_id = submitted(shell)
    shell.manage("cancel", run_id)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "Cancelled in" in err


def test_ctrl_c_in_wait_leaves_the_run_and_says_how_to_look_at_it(shell):
    process, run_id = submitted(shell)
    while "waiting for a worker" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "The run goes on" in err and f"manage.py run {run_id[:8]}" in err and "Traceback" not in err
    assert json.loads(shell.manage("run", run_id, "--json")[1])["status"] == "queued"


@pytest.mark.django_db(transaction=True)
def test_wait_outlasts_a_database_that_is_away_and_says_so_once(monkeypatch):
    monkeypatch.setattr(follow, "POLL_SECONDS", 0.01)
    run = Run.start("two", "A task", model="demo")
    told: list[str] = []
    away = 3

    def down(execute: Any, *args: Any) -> Any:
        nonlocal away
        if away > 0:
            away -= 1
            raise OperationalError("the server closed the connection")
        return execute(*args)

    looks = follow.looks(run.pk, told.append)
    assert next(looks).run.status == "queued"
    run.cancel()
    with connection.execute_wrapper(down):
        assert next(looks).run.status == "cancelled"
    assert [words.split(" (")[0] for words in told] == ["The database does not answer", "The database is back."]


def test_submit_says_when_no_worker_is_there_and_is_silent_when_one_is(system):
    system.start(workers=0, clock=False)
    words = ("manage.py", "submit", "report", "A task")
    said_to = lambda: subprocess.run([sys.executable, *words], cwd=ROOT, env=system.env, capture_output=True, text=True)  # noqa: E731
    assert "No worker is running" in said_to().stderr
    system.start_worker()
    assert "No worker" not in said_to().stderr


# --- pause and resume -------------------------------------------------------------------------------------------------


def test_pause_and_resume_of_a_run_say_what_became_of_it():
    run = Run.start("two", "A task", model="demo")
    assert "is paused" in said("pause", str(run.pk))[0]
    assert "goes on" in said("resume", str(run.pk))[0]
    assert "is not paused" in refusal("resume", str(run.pk))


def test_a_paused_run_that_also_waits_goes_on_waiting():
    run = hands.parked(hands.claimed(), "budget", "first/ask")
    said("pause", str(run.pk))
    assert "goes on, and waits for budget" in said("resume", str(run.pk))[0]


def test_without_an_id_all_work_is_paused_and_resumed():
    assert "All new work is paused." in said("pause")[0]
    assert "paused already" in said("pause")[0]
    assert "Work goes on" in said("resume")[0]
    assert "nothing to resume" in refusal("resume")


def test_an_account_without_the_right_does_not_stop_all_work(django_user_model):
    django_user_model.objects.create_user("ann")
    assert "agentruns.pause_all" in refusal("pause", "--by", "ann")


# --- a person's word --------------------------------------------------------------------------------------------------


def test_approve_reject_and_answer_need_an_account_that_may_and_something_that_waits(django_user_model):
    django_user_model.objects.create_superuser("sam")
    django_user_model.objects.create_user("bob", is_staff=True)
    run = hands.parked(hands.claimed(), "approval", "first/go")
    assert "approve_run" in refusal("approve", str(run.pk), "first/go", "--by", "bob")
    assert "Nothing at" in refusal("approve", str(run.pk), "elsewhere", "--by", "sam")
    Wait.objects.filter(run=run).update(payload_sha256="0" * 64)
    assert "Say why" in refusal("reject", str(run.pk), "first/go", "--reason", " ", "--by", "sam")
    assert "is approved" in said("approve", str(run.pk), "first/go", "--by", "sam")[0]
    assert Run.objects.get(pk=run.pk).status == "queued"
    assert "Nothing at" in refusal("answer", str(run.pk), "first/go", "yes", "--by", "sam")
