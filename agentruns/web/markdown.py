"""Markdown from a model to HTML: the only place where text that we did not write becomes markup (GUARANTEES.md, S10).

Two walls: the renderer passes no raw HTML, and nh3 keeps only the tags listed here. No images, so that nothing is
fetched by looking; no ids, classes or data-*, so that nothing can pose as ours; every link names its host.
"""

from typing import Any
from urllib.parse import urlsplit

import nh3
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML

TAGS = {
    "p", "br", "hr", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code", "em", "strong", "s", "a",
    "small", "table", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip
ATTRIBUTES = {"a": {"href"}, "ol": {"start"}}
SCHEMES = {"http", "https", "mailto"}
LINK_REL = "noopener noreferrer nofollow"
# The page's own headings are h1 and h2; a text's begin below them.
DEEPER = {"h1": "h3", "h2": "h4", "h3": "h5", "h4": "h6", "h5": "h6", "h6": "h6"}


class Renderer(RendererHTML):
    """Headings two levels deeper, and the host after each link to elsewhere."""

    def heading_open(self, tokens: Any, index: int, options: Any, env: Any) -> str:
        return f"<{DEEPER[tokens[index].tag]}>"

    def heading_close(self, tokens: Any, index: int, options: Any, env: Any) -> str:
        return f"</{DEEPER[tokens[index].tag]}>\n"

    def link_open(self, tokens: Any, index: int, options: Any, env: Any) -> str:
        env.setdefault("hosts", []).append(_host(str(tokens[index].attrGet("href") or "")))
        return str(self.renderToken(tokens, index, options, env))

    def link_close(self, tokens: Any, index: int, options: Any, env: Any) -> str:
        host = env["hosts"].pop()
        return f"</a> <small>({nh3.clean_text(host)})</small>" if host else "</a>"


_markdown = (
    MarkdownIt("commonmark", {"html": False, "linkify": False}, renderer_cls=Renderer)
    .enable(["table", "strikethrough"])
    .disable("image")
)


def html(text: str) -> SafeString:
    """`text` as safe HTML."""
    rendered = _markdown.render(text)
    clean = nh3.clean(rendered, tags=TAGS, attributes=ATTRIBUTES, url_schemes=SCHEMES, link_rel=LINK_REL)
    return mark_safe(clean)  # noqa: S308


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc
    except ValueError:  # "http://[": an address that is none leads nowhere
        return ""
