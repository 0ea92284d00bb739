"""The dashboard, and the admin beside it."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("agentruns.web.urls")),
]

handler400 = "agentruns.web.trouble.bad_request"
handler403 = "agentruns.web.trouble.denied"
handler404 = "agentruns.web.trouble.missing"
handler500 = "agentruns.web.trouble.broken"
