"""The direction of imports (DESIGN.md, section 9), read from the source: downwards only, the web side apart."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.system import ROOT

PACKAGE = ROOT / "agentruns"
# From top to bottom. A room imports rooms that stand below it, never one beside it or above.
LAYERS = [
    {"settings", "urls", "wsgi", "apps", "testing"},
    {"management"},
    {"admin", "supervision", "templatetags"},
    {"web", "receiving"},
    {"worker", "clock"},
    {"engine", "heartbeat", "polling", "adoption", "notifying"},
    {"atomic"},
    {"execution"},
    {"context"},
    {"asking"},
    {"sending", "effecting"},
    {"approving", "mapping", "prior"},
    {"branch"},
    {"booking", "entry", "question"},
    {"outcome", "persist", "replay"},
    {"llm", "models"},
    {"transcript", "troubles", "build", "schema"},
    {"plans", "demo"},
    {"__init__"},
    {"agent"},
    {"tools"},
    {"plan", "pricing", "queues", "exchange", "wire", "trust"},
    {"crash", "encoding", "environment", "signing", "sqlite", "tether"},
    {"errors"},
]
LEVELS = {room: number for number, layer in enumerate(LAYERS) for room in layer}
WEB_SIDE = {"web", "receiving", "admin", "templatetags", "urls", "wsgi", "models", "plan", "queues"}
WORK_SIDE = {
    "worker",
    "clock",
    "engine",
    "atomic",
    "execution",
    "heartbeat",
    "context",
    "asking",
    "sending",
    "effecting",
    "approving",
    "branch",
    "mapping",
    "prior",
    "polling",
    "adoption",
    "notifying",
    "booking",
    "entry",
    "outcome",
    "persist",
    "replay",
    "llm",
}
AUTHORS_SIDE = {"plan", "agent", "tools"}
# Which room alone knows a library.
OWNERS = {"openai": "llm", "rq": "queues", "django_rq": "queues"}


def sources() -> Iterator[tuple[str, Path]]:
    """Every source file with the room that it belongs to."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[0] != "migrations":
            yield parts[0], path


def imports(path: Path) -> Iterator[str]:
    """Full names of what a file imports, within functions too, but not what only the type checker sees."""
    tree = ast.parse(path.read_text())
    for node in [*tree.body]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            tree.body.remove(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(name: str) -> str:
    """The room of `agentruns.…`; what is no room of its own comes through the door."""
    words = name.split(".")
    is_room = len(words) > 1 and ((PACKAGE / words[1]).is_dir() or (PACKAGE / f"{words[1]}.py").is_file())
    return words[1] if is_room else "__init__"


def steps_between_rooms() -> Iterator[tuple[str, str, str]]:
    for room, path in sources():
        for name in imports(path):
            if name.split(".")[0] == "agentruns" and room_of(name) != room:
                yield room, room_of(name), f"{path.relative_to(ROOT)} imports {name}"


def test_every_room_has_its_layer():
    assert {room for room, _ in sources()} - set(LEVELS) == set()


def test_rooms_import_downwards_only():
    assert [said for above, below, said in steps_between_rooms() if LEVELS[above] >= LEVELS[below]] == []


def test_the_web_side_does_not_know_the_work():
    assert [said for above, below, said in steps_between_rooms() if above in WEB_SIDE and below in WORK_SIDE] == []


def test_what_authors_use_gets_everything_through_ctx():
    forbidden = {"context", "llm", "models"}
    assert [said for above, below, said in steps_between_rooms() if above in AUTHORS_SIDE and below in forbidden] == []


def test_the_plans_we_ship_are_written_with_the_door_alone():
    assert {below for above, below, _ in steps_between_rooms() if above == "plans"} == {"__init__"}


def test_a_library_is_known_to_one_room():
    strangers = [
        f"{path.relative_to(ROOT)} imports {name}"
        for room, path in sources()
        for name in imports(path)
        if OWNERS.get(name.split(".")[0], room) != room
    ]
    assert strangers == []


def test_a_web_process_with_all_plans_loaded_has_no_openai():
    script = (
        "import sys; from agentruns.wsgi import application; from agentruns.plan import plans; plans.all();"
        "import agentruns.urls; print(sorted({'openai', 'agentruns.llm', 'agentruns.engine'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
