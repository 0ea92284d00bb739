"""What a model writes becomes nothing but text and harmless tags; and looking at it fetches nothing."""

import re

import pytest

from agentruns.web.markdown import html


def test_markdown_is_rendered_with_headings_below_the_pages_own():
    assert html("# One\n\n- *a*\n- `b`") == "<h3>One</h3>\n<ul>\n<li><em>a</em></li>\n<li><code>b</code></li>\n</ul>\n"


def test_tables_are_rendered():
    assert "<th>a</th>" in html("|a|b|\n|-|-|\n|1|2|")


def test_a_link_names_its_host_and_hands_nothing_over():
    assert html("[here](https://example.com/x?y=1)") == (
        '<p><a href="https://example.com/x?y=1" rel="noopener noreferrer nofollow">here</a>'
        " <small>(example.com)</small></p>\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "![x](https://example.com/track.png)",
        "[x](javascript:alert(1))",
        "[x](data:text/html,<script>alert(1)</script>)",
        "[x](vbscript:alert)",
        "<a href='javascript:alert(1)'>x</a>",
        "<svg onload=alert(1)>",
        "<iframe src=//example.com>",
        "<div hx-get=/logout/ hx-trigger=load>",
        "<style>*{display:none}</style>",
        "<p style='position:fixed'>",
        '[x](https://example.com" onmouseover="alert(1))',
        "`<script>`",
        "```html\n<script>alert(1)</script>\n```",
        "<!-- --><b id=live>",
        "[x]: https://example.com/<script>\n[x]",
        '<https://example.com/"onclick=alert(1)>',
        "# <img src=x>",
        "[a](https://[::1]<script>)",
        "http://[",
        "[x](http://[)",
    ],
)
def test_nothing_that_runs_or_fetches_gets_through(text: str):
    found = html(text)
    tags = re.findall(r"<\s*([a-z0-9]+)([^>]*)>", found)
    assert {name for name, _ in tags} <= {"p", "a", "code", "pre", "h3", "small"}
    for name, attributes in tags:
        assert name == "a" or not attributes.strip()
        assert not re.search(r"\son|javascript:|data:|vbscript:|hx-|style|\bid=", attributes.replace("%22", ""))
