"""What the templates say in one word: money, times, icons, status pills."""

from datetime import UTC, datetime
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agentruns import build
from agentruns.web import approvals, notices, theme, words

register = template.Library()
register.filter("usd", words.usd)
register.filter("tokens", words.tokens)
register.filter("visible", words.visible)
register.filter("last_line", words.last_line)
register.filter("duration", words.duration)
register.filter("pill", words.pill)
register.filter("step_pill", words.step_pill)


@register.filter
def plural(count: int, noun: str) -> str:
    return words.plural(count, noun)


@register.filter
def span(start: datetime | None, end: datetime | None) -> str:
    """How long from `start` to `end`, or to now."""
    return words.between(start, end) if start else ""


@register.filter
def percent(value: float) -> str:
    return f"{value:.1f}%"


@register.simple_tag
def icon(name: str, extra: str = "") -> SafeString:
    return format_html('<svg class="i {}" aria-hidden="true"><use href="#{}"/></svg>', extra, name)


@register.simple_tag
def moment(at: datetime | None) -> SafeString | str:
    """A time of day in UTC; app.js shows it in the reader's zone, with the date when it is not today's."""
    if at is None:
        return ""
    utc = at.astimezone(UTC)
    return format_html(
        '<time data-at datetime="{}" title="{}">{}</time>',
        utc.isoformat(timespec="seconds"), f"{utc:%Y-%m-%d %H:%M:%S} UTC", f"{utc:%H:%M:%S}",
    )  # fmt: skip


@register.simple_tag
def clock(since: datetime | None) -> SafeString | str:
    """How long ago `since` was, counting on in the browser."""
    if since is None:
        return ""
    return format_html('<span data-since="{}">{}</span>', int(since.timestamp() * 1000), words.between(since))


@register.simple_tag(takes_context=True)
def theme_of(context: dict[str, Any]) -> str:
    return theme.chosen(context["request"])


@register.filter
def following_theme(name: str) -> str:
    return theme.following(name)


@register.simple_tag(takes_context=True)
def waiting_for_a_person(context: dict[str, Any]) -> int:
    """How many waits a person could end now, of those that this one may see."""
    return int(approvals.open_waits(context["request"].user).count())


@register.simple_tag
def current_notices() -> list[notices.Notice]:
    return notices.current()


@register.simple_tag
def build_name() -> str:
    return build.current()
