"""What `up`, `worker` and `clock` share: they stay; what keeps them from starting is one line and exit 2, too."""

from typing import Any

import django.db
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand

from agentruns.errors import PlanError, Refusal
from agentruns.management.command import Error, database_trouble, refuse_wrong_settings


class StayingCommand(BaseCommand):
    requires_system_checks = []  # the check framework imports every page: seconds and megabytes that these do without

    def execute(self, *args: Any, **options: Any) -> Any:
        try:
            refuse_wrong_settings()
            return super().execute(*args, **options)
        except (Refusal, PlanError) as error:
            raise Error(error) from error
        except (django.db.Error, ImproperlyConfigured) as error:
            raise Error(database_trouble(error)) from error
