"""The backend, as DATABASES["default"]["ENGINE"] = "agentruns.sqlite" names it."""

from agentruns.sqlite import replace_old_sqlite

replace_old_sqlite()

from django.db.backends.sqlite3 import base, features  # noqa: E402


class DatabaseFeatures(features.DatabaseFeatures):
    # pysqlite3's connections have no getlimit(); this is SQLite's own default since 3.32.
    max_query_params = 32_766


class DatabaseWrapper(base.DatabaseWrapper):
    features_class = DatabaseFeatures
