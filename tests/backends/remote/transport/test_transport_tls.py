"""https: the certificate is checked, the server's name is sent, and only HTTP/1.1 is offered."""

import asyncio
import ssl
from pathlib import Path

import httpx
import pytest

from tests.backends.remote.transport.conftest import Make
from tests.backends.remote.transport.raw_upstream import Peer, RawUpstream, answer, body_of, echo_forever, request

# Made for these tests: self-signed, for the name localhost only.
CERTIFICATE = Path(__file__).with_name("localhost.pem")


@pytest.fixture
def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


@pytest.fixture
def client_context() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=CERTIFICATE)


async def test_requests_over_tls_reuse_one_connection(
    make: Make, server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    seen: list[tuple[str, str]] = []
    server_context.sni_callback = lambda tls, name, context: seen.append((name, ""))

    async def script(peer: Peer) -> None:
        seen.append(("", peer.writer.get_extra_info("ssl_object").selected_alpn_protocol()))
        while await peer.request():
            await peer.send(answer(b"x" * 500_000))

    transport = make(ssl_context=client_context)
    async with RawUpstream(script, server_context) as upstream:
        for _ in range(3):
            url = upstream.url.replace("127.0.0.1", "localhost")
            assert await body_of(await transport.handle_async_request(request(url))) == b"x" * 500_000
        assert seen == [("localhost", ""), ("", "http/1.1")]
        assert upstream.num_connections == 1


@pytest.mark.parametrize("is_trusted", [False, True])
async def test_certificate_of_somebody_else_is_a_connect_error(
    make: Make, server_context: ssl.SSLContext, client_context: ssl.SSLContext, is_trusted: bool
) -> None:
    transport = make(ssl_context=client_context) if is_trusted else make()
    async with RawUpstream(echo_forever, server_context) as upstream:
        # Trusted, but not under that name; or under that name, but not trusted.
        url = upstream.url if is_trusted else upstream.url.replace("127.0.0.1", "localhost")
        with pytest.raises(httpx.ConnectError, match="certificate"):
            await transport.handle_async_request(request(url))
        assert transport.counts.open == 0


async def test_server_that_does_not_speak_tls(make: Make, client_context: ssl.SSLContext) -> None:
    transport = make(ssl_context=client_context)

    async def script(peer: Peer) -> None:
        await peer.reader.read(10)
        await peer.send(answer())
        await peer.gone()

    async with RawUpstream(script) as upstream:
        with pytest.raises(httpx.ConnectError):
            await transport.handle_async_request(request(upstream.url.replace("http:", "https:")))


async def test_handshake_that_does_not_come_is_a_connect_timeout(make: Make, client_context: ssl.SSLContext) -> None:
    transport = make(ssl_context=client_context)

    async def script(peer: Peer) -> None:
        await peer.gone()

    async with RawUpstream(script) as upstream:
        with pytest.raises(httpx.ConnectTimeout):
            await transport.handle_async_request(request(upstream.url.replace("http:", "https:"), connect=0.1))
        assert transport.counts.open == 0
        await asyncio.sleep(0)
