"""The receiving side of an effect: a Django view that acts once for each Idempotency-Key, however often it is asked.

    @csrf_exempt
    @require_POST
    @idempotent
    def notify(request): ...

For any project that has agentruns among its INSTALLED_APPS (for the table of keys); no worker is needed.
"""

from agentruns.receiving.guard import idempotent

__all__ = ["idempotent"]
