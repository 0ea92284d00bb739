"""Which code this process runs: AGENT_BUILD, or a hash of it. A rolling deploy never goes backwards by it."""

import hashlib
from functools import cache
from pathlib import Path

from django.conf import settings

from agentruns.plan import plans


@cache
def current() -> str:
    """The build's name: AGENT_BUILD, else 12 hex digits over the Python files of agentruns and the plans' folders."""
    if settings.AGENT_BUILD:
        return str(settings.AGENT_BUILD)[:64]
    plans.all()
    folders = {Path(__file__).parent}
    folders |= {Path(module.__file__).parent for module in plans.modules if module.__file__}
    digest = hashlib.sha256()
    for path in sorted({file for folder in folders for file in folder.rglob("*.py")}):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]
