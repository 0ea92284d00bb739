"""`manage.py demo_model`: the offline provider in the foreground."""

import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from agentruns.demo import PORT


class Command(BaseCommand):
    help = "Serves the demo model on loopback: OpenAI's Responses API with scripted answers. DEMO, no AI."
    requires_system_checks = []  # it needs no database, and has to start when another setting is wrong

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, default=PORT)
        parser.add_argument("--speed", help="10 is ten times as fast; else DEMO_SPEED, else 1")
        parser.add_argument("--background", choices=("on", "off", "ignored"), default="on")
        parser.add_argument("--idempotency", choices=("on", "off"), default="off")
        parser.add_argument("--state", type=Path, help="its file; else demo.sqlite3 in AGENTRUNS_HOME")
        parser.add_argument("--parent", type=int, help="ends when this process has ended")

    def handle(self, **options: Any) -> None:
        """Becomes the server: a Django process would hold three times its memory for nothing."""
        options["state"] = options["state"] or settings.AGENTRUNS_HOME / "demo.sqlite3"
        names = ("port", "speed", "background", "idempotency", "state", "parent")
        asked = [word for name in names if options[name] is not None for word in (f"--{name}", str(options[name]))]
        paths = [str(settings.BASE_DIR), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
        os.execve(sys.executable, [sys.executable, "-m", "agentruns.demo", *asked], environment)  # noqa: S606
