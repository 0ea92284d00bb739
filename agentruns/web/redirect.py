"""Where a form leads: 303, so that reloading what comes next sends nothing again."""

from django.http import HttpRequest, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme


class see_other(HttpResponseRedirect):  # read as a verb, like Django's redirect()
    status_code = 303


def back(request: HttpRequest, otherwise: str) -> see_other:
    """To the page that the form was on (its `next`), never to another site."""
    url = request.POST.get("next", "")
    safe = url_has_allowed_host_and_scheme(url, {request.get_host()}, require_https=request.is_secure())
    return see_other(url if safe else otherwise)
