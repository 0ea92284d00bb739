"""Strict readers of the environment: a wrong value keeps its default and leaves a problem for `manage.py check`.

Settings are read once, here, when Django loads them; nothing else of agentruns reads os.environ for its settings.
"""

import base64
import os
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit


class Problem(NamedTuple):
    """What is wrong with a setting, and the remedy; apps.py turns each into a Django system check error."""

    setting: str
    message: str
    hint: str


problems: list[Problem] = []


def refuse(name: str, message: str, hint: str) -> None:
    problems.append(Problem(name, message, hint))


def text(name: str, default: str = "") -> str:
    return os.environ.get(name, "").strip() or default


def words(name: str, default: str = "") -> list[str]:
    return [word.strip() for word in text(name, default).split(",") if word.strip()]


def flag(name: str, default: bool = False) -> bool:
    value = text(name).lower()
    if value in {"", "1", "true", "yes", "on", "0", "false", "no", "off"}:
        return default if not value else value in {"1", "true", "yes", "on"}
    refuse(name, f"{name} is {value!r}, which is neither yes nor no.", f"Set {name}=1 or {name}=0.")
    return default


def choice(name: str, default: str, options: tuple[str, ...]) -> str:
    value = text(name, default).lower()
    if value in options:
        return value
    refuse(name, f"{name} is {value!r}.", f"Set {name} to one of: {', '.join(options)}.")
    return default


def whole(name: str, default: int | None, least: int = 1) -> int | None:
    value = text(name)
    if not value:
        return default
    if value.isdecimal() and int(value) >= least:
        return int(value)
    refuse(name, f"{name} is {value!r}.", f"Set {name} to a whole number of at least {least}, or leave it out.")
    return default


def seconds(name: str, default: float, least: float = 0.1) -> float:
    value = text(name)
    if not value:
        return default
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if least <= number < 1e6:
        return number
    refuse(name, f"{name} is {value!r}.", f"Set {name} to a number of seconds, at least {least}.")
    return default


def usd(name: str, default: Decimal | None) -> Decimal | None:
    """An amount in USD, as Decimal; None when it is not set and has no default."""
    value = text(name)
    if not value:
        return default
    try:
        amount = Decimal(value)
    except InvalidOperation:
        amount = Decimal(-1)
    if amount.is_finite() and 0 < amount < 10**9:
        return amount
    refuse(name, f"{name} is {value!r}.", f"Set {name} to an amount in USD above 0, such as {name}=5.00.")
    return default


NO_MAIL = {"default": {"BACKEND": "django.core.mail.backends.dummy.EmailBackend"}}
MAIL_SCHEMES = {"smtp": (25, {}), "smtp+tls": (587, {"use_tls": True}), "smtps": (465, {"use_ssl": True})}


def mailers(name: str) -> dict[str, Any]:
    """`smtp+tls://user:password@host:587` as Django's MAILERS. Never quoted: it has a password."""
    try:
        parts = urlsplit(text(name))
        port, options = MAIL_SCHEMES[parts.scheme] if text(name) else (0, {})
        host, port = parts.hostname or "", parts.port or port
    except (ValueError, KeyError):
        host, port, options = "", 1, {}
    if not port:
        return NO_MAIL
    if not host:
        refuse(name, f"{name} is no address of a mail server.", f"Set {name}=smtp+tls://user:password@host:587.")
        return NO_MAIL
    known = {"username": unquote(parts.username or ""), "password": unquote(parts.password or "")}
    return {"default": {"OPTIONS": {"host": host, "port": port, "timeout": 10, **known, **options}}}


def web_address(name: str, default: str) -> str:
    """Scheme and host, without a slash at the end."""
    value = text(name, default).rstrip("/")
    parts = urlsplit(value)
    if parts.scheme in {"http", "https"} and parts.hostname and not parts.query and not parts.fragment:
        return value
    refuse(name, f"{name} is {value!r}.", f"Set {name} to where people reach the pages, such as https://runs.example.")
    return default


def webhook_secret(name: str) -> str:
    """`whsec_` and base64, as providers hand it out. What is wrong with another is said without quoting it."""
    value = text(name)
    try:
        if not value or (value.startswith("whsec_") and base64.b64decode(value.removeprefix("whsec_"), validate=True)):
            return value
    except ValueError:
        pass  # said below
    hint = f"Copy the whole signing secret of the webhook from the provider's settings, or leave {name} out."
    refuse(name, f"{name} is not whsec_ followed by base64, so no webhook could be believed.", hint)
    return ""


def prices(name: str) -> tuple[Decimal, Decimal, Decimal | None] | None:
    """`"10/50"` or `"10/50/1"`: USD per million input, output and (optionally) cached input tokens."""
    value = text(name)
    if not value:
        return None
    try:
        parts = [Decimal(part.strip()) for part in value.split("/")]
    except InvalidOperation:
        parts = []
    if len(parts) in {2, 3} and all(part.is_finite() and 0 <= part < 10**6 for part in parts):
        return parts[0], parts[1], parts[2] if len(parts) == 3 else None
    refuse(
        name,
        f"{name} is {value!r}.",
        f'Set {name}="input/output" or "input/output/cached", USD per million tokens, such as {name}="10/50".',
    )
    return None
