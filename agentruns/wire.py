"""One call's own connection to a provider: it can be cut from another thread, it ends in time, and it cannot flood us.

A POST never shares a connection. A kept-alive one that the server has just closed fails after the request was written,
and a call that was never received would have to be booked as maybe paid. It also gives every call a socket of its own,
which is the only thing that wakes a thread blocked in a read: closing the response from elsewhere does not.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import cache
from socket import SHUT_RDWR, socket
from typing import Any, Self

import httpcore2  # noqa: F401 - httpx2 loads it with the first client: a quarter of a second, after every fork
import httpx2

CONNECT_SECONDS = 10.0
WIRE_BYTES = 64 * 2**20  # a stream repeats its text up to five times over, escaped: this is room for a 10 MB answer

# No TCP connection, or one that a proxy refused: not a byte of the request has left.
NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
# An address or a key that cannot be put into a request at all.
UNSENDABLE = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError)


class Line:
    """A context manager around one call: `client()` makes its HTTP client, `cut()` ends it from any thread.

    `seconds` bounds the whole call, from connecting to the last byte, however slowly bytes keep dripping in.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.cut_because = ""
        self.response: httpx2.Response | None = None
        self._socket: socket | None = None
        self._clients: list[httpx2.Client] = []
        self._lock = threading.Lock()
        self._watch = threading.Timer(seconds, self.cut, [f"no complete answer within {seconds:g} s"])
        self._watch.daemon = True

    def __enter__(self) -> Self:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.cancel()
        for client in self._clients:
            client.close()

    def client(self, base_url: str, read_seconds: float) -> httpx2.Client:
        client = httpx2.Client(
            **http_options(base_url, min(read_seconds, self.seconds)),
            event_hooks={"request": [self._listen], "response": [self._answered]},
        )
        self._clients.append(client)
        return client

    def cut(self, because: str) -> None:
        """Ends the call at once: whoever reads from it gets an error; a call not yet sent is not sent any more."""
        with self._lock:
            self.cut_because = self.cut_because or because
            if self._socket:
                shut(self._socket)

    def _listen(self, request: httpx2.Request) -> None:
        request.extensions["trace"] = self._trace

    def _trace(self, event: str, details: dict[str, Any]) -> None:
        """Called by the connection at each stage; a connected stream tells its socket (TLS makes a second one)."""
        if event.rpartition(".")[0] not in {"connection.connect_tcp", "connection.start_tls", "http_proxy.start_tls"}:
            return
        if stream := details.get("return_value"):
            with self._lock:
                self._socket = stream.get_extra_info("socket")
                if self.cut_because:
                    raise httpx2.ConnectError(self.cut_because)

    def _answered(self, response: httpx2.Response) -> None:
        self.response = response
        response.stream = Bounded(response.stream)


class Bounded(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A response's bytes, up to WIRE_BYTES: an endless answer must not take the worker's memory, and its life."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._left = WIRE_BYTES

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            yield self._counted(chunk)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            yield self._counted(chunk)

    def close(self) -> None:
        self._stream.close()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def _counted(self, chunk: bytes) -> bytes:
        self._left -= len(chunk)
        if self._left < 0:
            raise httpx2.ReadError(f"the answer is longer than {WIRE_BYTES:,} bytes")
        return chunk


async def bound(response: httpx2.Response) -> None:
    """The response hook of asynchronous clients."""
    response.stream = Bounded(response.stream)


def http_options(base_url: str, read_seconds: float) -> dict[str, Any]:
    url = httpx2.URL(base_url)
    return {
        "timeout": httpx2.Timeout(read_seconds, connect=CONNECT_SECONDS),
        "verify": trusted() if url.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        # A redirected POST would send the prompt to an address that nobody configured, or become a GET.
        "follow_redirects": False,
        # A proxy of the environment is for the world outside; it cannot reach a model on this machine.
        "trust_env": url.host not in {"127.0.0.1", "localhost", "::1"},
    }


@cache
def trusted() -> ssl.SSLContext:
    """The certificates, read once a process: they take longer to load than a connection to make."""
    return httpx2.create_ssl_context()


def shut(connection: socket) -> None:
    with suppress(OSError):  # not connected any more: what we wanted
        # socket's own method: SSLSocket.shutdown would take the TLS state away under the thread that is reading.
        socket.shutdown(connection, SHUT_RDWR)
