"""What no template may contain: whatever a strict policy forbids, or would let a text become markup."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
FORBIDDEN = {
    "an inline style": r"\sstyle\s*=|<style",
    "an inline handler": r"\son[a-z]+\s*=",
    "an inline script": r"<script(?![^>]*\bsrc=)",
    "hx-on, which is evaluated": r"\bhx-on\b",
    "a trigger filter, which is evaluated": r"hx-trigger\s*=\s*['\"][^'\"]*\[",
    "a value that is evaluated": r"=\s*['\"](js|javascript):",
    "unescaped text": r"\|\s*safe\b|\bautoescape\s+off|safeseq",
    "another origin": r"(src|href)\s*=\s*['\"](https?:)?//",
}


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_template_has_nothing_that_the_policy_forbids(template: Path):
    text = template.read_text()
    found = [what for what, pattern in FORBIDDEN.items() if re.search(pattern, text)]
    assert found == []


def test_only_one_module_declares_text_to_be_markup():
    by_hand = [
        str(path.relative_to(ROOT))
        for folder in ("web", "templatetags")
        for path in (ROOT / "agentruns" / folder).rglob("*.py")
        if "mark_safe(" in path.read_text()
    ]
    assert by_hand == ["agentruns/web/markdown.py"]
