"""`python -m tests.effects.stripe_server PORT [--keys]`: localstripe on loopback, nothing of it kept on disk.

localstripe ignores Idempotency-Key: each POST is a charge of its own. With --keys it is as Stripe is: the first answer
under a key is given again to the same request, and another request under it is refused.
"""

import asyncio
import sys
from typing import Any

from aiohttp import web
from localstripe import resources, server

from agentruns import tether

Answer = tuple[int, bytes]


def with_keys() -> Any:
    """In front of all of localstripe, so that an error is an answer too."""
    kept: dict[str, tuple[bytes, Answer]] = {}
    one_at_a_time = asyncio.Lock()

    @web.middleware
    async def idempotency(request: web.Request, handler: Any) -> web.StreamResponse:
        key = request.headers.get("Idempotency-Key")
        if request.method != "POST" or key is None:
            return await handler(request)
        asked = request.path.encode() + b"\n" + await request.read()
        async with one_at_a_time:
            if key in kept and kept[key][0] != asked:
                error = {"type": "idempotency_error", "message": "This key came with other parameters before."}
                return web.json_response({"error": error}, status=400)
            if key in kept:
                status, body = kept[key][1]
                return web.Response(status=status, body=body, content_type="application/json")
            response = await handler(request)
            kept[key] = asked, (response.status, bytes(response.body))
            return response

    return idempotency


def main() -> None:
    tether.to_starter()
    # By itself it listens on all addresses, and writes each change to one fixed file that all copies share.
    resources.Store.dump_to_disk = lambda self: None
    if "--keys" in sys.argv:
        server.app.middlewares.insert(0, with_keys())
    web.run_app(server.app, host="127.0.0.1", port=int(sys.argv[1]), print=None)


if __name__ == "__main__":
    main()
