"""A person, as a process: submits, approves whatever waits, cancels; told what to do by lines of JSON on stdin."""

import json
import os
import sys
import threading
import time
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentruns.settings")
django.setup()

from django.contrib.auth import get_user_model  # noqa: E402
from django.db import Error, connection  # noqa: E402

from agentruns.errors import Refusal  # noqa: E402
from agentruns.models import Hook, Run, Wait  # noqa: E402
from agentruns.models.moment import in_seconds  # noqa: E402


def approve_all() -> None:
    """For ever; a database that is away is waited for."""
    while True:
        try:
            ann = get_user_model().objects.get(username="admin")
            for wait in Wait.objects.filter(kind="approval", closed_at=None).select_related("run"):
                try:
                    wait.run.approve(wait.path, ann, sha256=wait.payload_sha256)
                except Refusal:
                    continue  # it was over, or another; the next look sees
        except Error:
            connection.close()
        time.sleep(0.05)


def obey(order: dict[str, Any]) -> Any:
    match order:
        case {"submit": task, "key": key, **more}:
            return str(Run.start(more.get("plan", "kitchen"), task, key=key, params=more.get("params")).pk)
        case {"cancel": run_id}:
            return Run.objects.get(pk=run_id).cancel()
        case {"take": run_id}:  # from a worker that lives, as a clock would that is wrong about its lease
            Run.objects.filter(pk=run_id, status="running").update(lease_expires_at=in_seconds(-1))
            return Run.objects.get(pk=run_id).rescue("lease")
        case {"hook": url}:
            return Hook.objects.create(url=url, kinds=["needs_you", "completed"]).pk
        case {"retry": run_id}:
            return Run.objects.get(pk=run_id).retry()
    raise ValueError(order)


def main() -> None:
    threading.Thread(target=approve_all, daemon=True).start()
    print("ready", flush=True)
    for line in sys.stdin:
        while True:
            try:
                said: Any = {"said": obey(json.loads(line))}
                break
            except Refusal as refusal:
                said = {"refused": str(refusal)}
                break
            except Error:
                connection.close()
                time.sleep(0.1)
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
