"""The demo provider as a process: its modes, many clients, bad input, its start and its end."""

import http.client
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest

from agentruns.demo import MARK
from tests.demo.conftest import TASK
from tests.providers import ROOT


def test_without_background_mode_it_refuses_by_that_name_or_answers_at_once(own):
    own.start(speed=50, background="off")
    with pytest.raises(openai.BadRequestError) as error:
        own.answer(TASK)
    assert error.value.param == "background"
    own.stop()
    client = own.start(speed=50, background="ignored").client()
    response = client.responses.create(model="demo", input=TASK, background=True)
    assert (response.status, response.background) == ("completed", False)


def test_with_idempotency_a_second_post_of_a_key_gets_the_first_response(own):
    own.start(speed=50, idempotency="on")
    key = {"Idempotency-Key": "run:draft~1"}
    with pytest.raises(openai.APIConnectionError):
        own.answer(f"{TASK} [demo: drop times=1]", extra_headers=key)
    again = own.answer(f"{TASK} [demo: drop times=1]", extra_headers=key)
    ledger = own.ledger()
    assert [(call["id"], call["idempotency_key"], call["posts"]) for call in ledger["calls"]] == [
        (again.id, "run:draft~1", 2)
    ]
    assert [post["answer"] for post in ledger["posts"]] == ["drop", "replayed"]
    with pytest.raises(openai.UnprocessableEntityError):
        own.answer("Something else", extra_headers=key)


def test_without_idempotency_the_same_key_is_generated_and_billed_twice(shared):
    key = {"Idempotency-Key": "run:twice~1"}
    assert shared.answer(TASK, extra_headers=key).id != shared.answer(TASK, extra_headers=key).id


def test_twelve_clients_at_once_are_all_served_and_each_billed_once(own):
    own.start(speed=20)
    with ThreadPoolExecutor(12) as threads:
        done = list(threads.map(lambda number: own.answer(f"{TASK}, number {number}"), range(36)))
    assert {response.status for response in done} == {"completed"}
    assert own.ledger()["generations"] == len({response.id for response in done}) == 36


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"model": "demo"}', b'{"model": 1, "input": "x"}']
)
def test_a_malformed_body_is_a_bad_request_and_the_connection_goes_on(shared, body):
    client = shared.client()
    with pytest.raises(openai.BadRequestError):
        client.post(
            "/responses", cast_to=object, content=body, options={"headers": {"content-type": "application/json"}}
        )
    assert client.models.list().data[0].id == "demo"


def test_any_text_of_json_can_be_a_prompt(shared):
    response = shared.client().post(
        "/responses", cast_to=object, content=rb'{"model": "demo", "input": "\ud800 \u0000 \u202e"}'
    )
    assert response["status"] == "completed"


def test_a_body_over_the_limit_is_refused_before_it_is_read(shared):
    connection = http.client.HTTPConnection("127.0.0.1", shared.port, timeout=5)
    connection.putrequest("POST", "/v1/responses")
    connection.putheader("content-length", str(10**9))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_a_taken_port_or_state_file_is_one_clear_line_and_exit_2(shared, tmp_path):
    for port, state in ((shared.port, tmp_path / "other.sqlite3"), (0, shared.state)):
        command = [sys.executable, "-m", "agentruns.demo", "--port", str(port), "--state", str(state)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20)
        assert done.returncode == 2
        assert re.fullmatch(r"demo model: .+ Choose another --(port|state)\.\n", done.stderr)


def test_a_term_ends_it_at_once_with_exit_0_also_in_the_middle_of_a_stream(own):
    stream = own.start().client().responses.create(model="demo", input=TASK, stream=True)
    next(iter(stream))
    began = time.monotonic()
    assert own.stop() == 0
    assert time.monotonic() - began < 2


def test_it_ends_when_its_parent_has_ended(tmp_path):
    state = tmp_path / "demo.sqlite3"
    script = (
        "import os, subprocess, sys; child = subprocess.Popen([sys.executable, '-m', 'agentruns.demo', '--port', '0',"
        f" '--state', {str(state)!r}, '--parent', str(os.getpid())], stdout=subprocess.PIPE, text=True);"
        "child.stdout.readline(); print(child.pid, flush=True)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=20)
    orphan = Path(f"/proc/{done.stdout.strip()}")
    deadline = time.monotonic() + 5
    while orphan.exists() and "Z" not in (orphan / "stat").read_text().split()[2]:
        assert time.monotonic() < deadline, "the orphan is still on its port"
        time.sleep(0.05)


def test_the_command_becomes_a_small_server_without_django(tmp_path):
    environment = {**os.environ, "AGENTRUNS_HOME": str(tmp_path), "DEMO_SPEED": "50"}
    command = [sys.executable, str(ROOT / "manage.py"), "demo_model", "--port", "0"]
    process = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().startswith(f"{MARK}: http://127.0.0.1:")
        assert (tmp_path / "demo.sqlite3").exists()
        resident = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
        assert int(resident[1]) < 30_000
    finally:
        process.terminate()
        assert process.wait(timeout=10) == 0
        process.stdout.close()
