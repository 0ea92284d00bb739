"""Settings of the agentruns project. Every one comes from the environment (README, "Settings"), read once, strictly."""

import os
import secrets
from pathlib import Path
from typing import Any

import dj_database_url
from django.utils.csp import CSP

from agentruns import environment as env

BASE_DIR = Path(__file__).resolve().parent.parent
AGENTRUNS_HOME = Path(env.text("AGENTRUNS_HOME") or BASE_DIR / "var").absolute()


def secret_key() -> str:
    """SECRET_KEY, or one generated once and kept in AGENTRUNS_HOME, readable by its owner alone."""
    if given := env.text("SECRET_KEY"):
        return given
    path = AGENTRUNS_HOME / "secret_key"
    try:
        AGENTRUNS_HOME.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(50))
    except FileExistsError:
        pass
    except OSError as error:
        env.refuse(
            "AGENTRUNS_HOME",
            f"{AGENTRUNS_HOME} cannot be written: {error.strerror}.",
            "Set AGENTRUNS_HOME to a folder of this user, or set SECRET_KEY, DATABASE_URL and REDIS_URL.",
        )
        return secrets.token_urlsafe(50)
    return path.read_text()


SECRET_KEY = secret_key()
DEBUG = env.flag("DEBUG")
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]")
CSRF_TRUSTED_ORIGINS = env.words("CSRF_TRUSTED_ORIGINS")

INSTALLED_APPS = [
    "agentruns",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_htmx",
    "django_rq",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "agentruns.web.guard.DatabaseGuard",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]
ROOT_URLCONF = "agentruns.urls"
WSGI_APPLICATION = "agentruns.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.csp",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

SQLITE = {
    "ENGINE": "agentruns.sqlite",
    "NAME": AGENTRUNS_HOME / "agentruns.sqlite3",
    "OPTIONS": {
        "timeout": 30,
        # A transaction that starts by reading and then writes fails at once under load; IMMEDIATE waits its turn.
        "transaction_mode": "IMMEDIATE",
        # FULL: a checkpoint that was acknowledged is on the disk. NORMAL may lose the last ones at a power cut.
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
    },
    # Tests use a file too: threads and processes share it, and it locks as the real one does.
    "TEST": {"NAME": AGENTRUNS_HOME / "test.sqlite3"},
}


def database() -> dict[str, Any]:
    url = env.text("DATABASE_URL")
    if not url:
        return dict(SQLITE)
    try:
        parsed: dict[str, Any] = dict(dj_database_url.parse(url, conn_health_checks=True))
    except ValueError as error:
        env.refuse(
            "DATABASE_URL",
            f"DATABASE_URL cannot be read: {error}",
            "Use postgresql://user:password@host:5432/name or sqlite:///path/file.sqlite3.",
        )
        return dict(SQLITE)
    if parsed["ENGINE"] == "django.db.backends.sqlite3":
        return SQLITE | {"NAME": parsed["NAME"] or SQLITE["NAME"]}
    return parsed


DATABASES = {"default": database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.ScryptPasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "runs"
LOGOUT_REDIRECT_URL = "login"

USE_TZ = True
TIME_ZONE = "UTC"  # Django sets the process's TZ from this: logs of all processes agree
LANGUAGE_CODE = "en"
USE_I18N = False

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = AGENTRUNS_HOME / "static"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedStaticFilesStorage"},
}
# No collectstatic needed: files are few, found once at start.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG

SECURE_CSP = {
    "default-src": [CSP.NONE],
    "script-src": [CSP.SELF, CSP.NONCE],
    "style-src": [CSP.SELF],
    "img-src": [CSP.SELF, "data:"],
    "connect-src": [CSP.SELF],
    "font-src": [CSP.SELF],
    "frame-ancestors": [CSP.NONE],
    "base-uri": [CSP.NONE],
    "form-action": [CSP.SELF],
}
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 12 * 3600
# Behind TLS (the origins say so) cookies are for TLS alone; on loopback there is none.
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = any(origin.startswith("https://") for origin in CSRF_TRUSTED_ORIGINS)
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if SESSION_COOKIE_SECURE else None
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 2**20  # a task of 1 MB is refused by the form, with its text kept, not by a 413

REDIS_URL = env.text("REDIS_URL") or f"unix://{AGENTRUNS_HOME / 'redis.sock'}?db=0"
RQ_QUEUES = {"agentruns": {"URL": REDIS_URL, "DEFAULT_TIMEOUT": 3600, "SERIALIZER": "rq.serializers.JSONSerializer"}}
RQ = {"COMMIT_MODE": "auto"}  # we ring after the commit ourselves, so that Redis down never fails a request
RQ_SHOW_ADMIN_LINK = False

# Notifications. Without EMAIL_URL no mail is sent, and the form offers none.
EMAIL_URL = env.text("EMAIL_URL")
MAILERS = env.mailers("EMAIL_URL")
AGENT_MAIL_FROM = env.text("AGENT_MAIL_FROM", "agentruns@localhost")
AGENT_URL = env.web_address("AGENT_URL", "http://127.0.0.1:8000")  # where its links lead

AGENT_MODEL = env.text("AGENT_MODEL")
OPENAI_API_KEY = env.text("OPENAI_API_KEY")
OPENAI_BASE_URL = env.text("OPENAI_BASE_URL")
OPENAI_WEBHOOK_SECRET = env.webhook_secret("OPENAI_WEBHOOK_SECRET")
if not AGENT_MODEL and (OPENAI_API_KEY or OPENAI_BASE_URL):
    env.refuse(
        "AGENT_MODEL",
        "OPENAI_API_KEY or OPENAI_BASE_URL is set, but AGENT_MODEL is not: which model should do the work?",
        "Set AGENT_MODEL to a model of that provider; or unset both to try agentruns on its demo model.",
    )
if AGENT_MODEL and not (OPENAI_API_KEY or OPENAI_BASE_URL):
    env.refuse(
        "OPENAI_API_KEY",
        f"AGENT_MODEL is {AGENT_MODEL!r}, but there is neither OPENAI_API_KEY nor OPENAI_BASE_URL.",
        "Set OPENAI_API_KEY (or OPENAI_BASE_URL for a provider of your own); or unset AGENT_MODEL for the demo model.",
    )
# With no model set, runs use the demo model: a provider of ours on loopback, started by `up` (demo/).
DEMO_MODEL = "demo"
AGENT_DEMO = not (AGENT_MODEL or OPENAI_API_KEY or OPENAI_BASE_URL)
AGENT_DEMO_URL = env.text("AGENT_DEMO_URL", "http://127.0.0.1:8723/v1")
AGENT_PRICE = env.prices("AGENT_PRICE")
AGENT_BUDGET_USD = env.usd("AGENT_BUDGET_USD", env.Decimal("5.00"))
AGENT_DAILY_BUDGET_USD = env.usd("AGENT_DAILY_BUDGET_USD", None)
AGENT_MAX_OUTPUT_TOKENS = env.whole("AGENT_MAX_OUTPUT_TOKENS", 16_000) or 16_000
AGENT_MAX_CALLS = env.whole("AGENT_MAX_CALLS", None)
AGENT_THREADS = env.whole("AGENT_THREADS", 4)
AGENT_SLICE_SECONDS = env.seconds("AGENT_SLICE_SECONDS", 15)
AGENT_LEASE_SECONDS = env.seconds("AGENT_LEASE_SECONDS", 20, least=1)
AGENT_DRAIN_SECONDS = env.seconds("AGENT_DRAIN_SECONDS", 25)
AGENT_UNKNOWN_SECONDS = env.seconds("AGENT_UNKNOWN_SECONDS", 120)
AGENT_BACKGROUND = env.choice("AGENT_BACKGROUND", "auto", ("auto", "on", "off"))
AGENT_BUILD = env.text("AGENT_BUILD")
AGENTRUNS_PLANS = env.words("AGENTRUNS_PLANS")

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {"agentruns": {"level": env.choice("LOG_LEVEL", "info", ("debug", "info", "warning", "error")).upper()}},
}
