"""Every page of the dashboard. A new page is one file beside this one and a line here."""

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path

from agentruns.web import approvals, health, orders, plans, run, runs, theme, webhooks, workers

urlpatterns = [
    path("", runs.runs, name="runs"),
    path("live", runs.runs_live, name="runs-live"),
    path("runs/<uuid:run_id>/", run.run, name="run"),
    path("runs/<uuid:run_id>/live", run.run_live, name="run-live"),
    path("runs/<uuid:run_id>/output", run.run_output, name="run-output"),
    path("runs/<uuid:run_id>/cancel", orders.cancel, name="run-cancel"),
    path("runs/<uuid:run_id>/retry", orders.retry, name="run-retry"),
    path("runs/<uuid:run_id>/pause", orders.pause, name="run-pause"),
    path("runs/<uuid:run_id>/resume", orders.resume, name="run-resume"),
    path("runs/<uuid:run_id>/say", approvals.say, name="run-say"),
    path("approvals/", approvals.approvals, name="approvals"),
    path("pause", orders.pause_all, name="pause-all"),
    path("resume", orders.resume_all, name="resume-all"),
    path("workers/", workers.workers, name="workers"),
    path("workers/live", workers.workers_live, name="workers-live"),
    path("plans/", plans.plans, name="plans"),
    path("login/", LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("theme", theme.switch, name="theme"),
    path("webhooks/openai", webhooks.openai, name="webhook-openai"),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
]
