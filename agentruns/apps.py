"""The Django app: its checks turn every wrong setting and every plan that cannot load into a problem with a remedy."""

import sys
from typing import Any

from django.apps import AppConfig
from django.core.checks import Error, Warning, register

from agentruns import environment


class AgentRunsConfig(AppConfig):
    name = "agentruns"
    verbose_name = "agentruns"
    default_auto_field = "agentruns.models.fields.RowNumber"

    def ready(self) -> None:
        register(check_environment)
        register(check_plans)
        register(check_sqlite)


def check_environment(**options: Any) -> list[Error]:
    return [
        Error(problem.message, hint=problem.hint, id=f"agentruns.{problem.setting}") for problem in environment.problems
    ]


def check_plans(**options: Any) -> list[Error]:
    from agentruns.plan import plans

    try:
        plans.all()
    except Exception as error:
        hint = "Mend the plan, or take its module out of AGENTRUNS_PLANS or INSTALLED_APPS."
        return [Error(f"The plans cannot be loaded: {type(error).__name__}: {error}", hint=hint, id="agentruns.plans")]
    return []


def check_sqlite(**options: Any) -> list[Warning]:
    from django.db import connection

    from agentruns.sqlite import WITHOUT_WAL_FAULT

    if connection.vendor != "sqlite":
        return []
    module = sys.modules["sqlite3"]
    if module.sqlite_version_info >= WITHOUT_WAL_FAULT:
        return []
    return [
        Warning(
            f"SQLite {module.sqlite_version} can damage a database in WAL mode when two checkpoints race.",
            hint="Use a Python with SQLite 3.51.3 or newer, the wheel pysqlite3, or PostgreSQL by DATABASE_URL.",
            id="agentruns.sqlite",
        )
    ]
