"""The admin: every row to look at, few to change. Runs change by their verbs only, as everywhere."""

from django.contrib import admin

from agentruns.admin import hooks, money, rows, runs

__all__ = ["hooks", "money", "rows", "runs"]

admin.site.site_header = "agentruns"
admin.site.site_title = "agentruns admin"
admin.site.index_title = "Rows"
