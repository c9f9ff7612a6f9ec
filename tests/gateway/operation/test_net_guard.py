"""URLs of clients reach the public internet and nothing else."""

import asyncio
import ipaddress
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.net_guard import (
    MAX_ADDRESSES,
    Address,
    Target,
    UrlNotAllowed,
    check_address,
    connect_allowed,
    parse_url,
    redirected,
    resolve_allowed,
)

FORBIDDEN = [
    *("0.0.0.0", "127.0.0.1", "127.255.255.254", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.0.1", "169.254.169.254"),
    *("100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192", "198.18.0.1", "224.0.0.1", "239.255.255.250"),
    *("240.0.0.1", "255.255.255.255", "192.0.2.1", "198.51.100.1", "203.0.113.9", "192.88.99.1"),
    *("::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254"),
    *("ff02::1", "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "2001::1", "2002:7f00:1::", "2001:db8::1", "100::1"),
    *("fec0::1", "3fff::1", "5f00::1", "", "localhost", "8.8.8", "1.2.3.4.5", "0x7f000001", "example.com"),
]
PUBLIC = ["1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.1", "172.15.255.255", "172.32.0.1", "100.63.255.255", "100.128.0.1"]
PUBLIC_6 = ["2606:4700:4700::1111", "2a00:1450:4001::200e", "2001:4860:4860::8888"]


@pytest.mark.parametrize("address", FORBIDDEN)
def test_address_that_is_not_public_is_refused(address):
    assert not check_address(address)


@pytest.mark.parametrize("address", [*PUBLIC, *PUBLIC_6])
def test_public_address_is_taken(address):
    assert check_address(address)


@settings(deadline=None)
@given(st.ip_addresses(v=4))
def test_no_ipv4_address_is_taken_that_the_registry_does_not_call_global(address):
    assert not check_address(str(address)) or (address.is_global and not address.is_multicast)


@settings(deadline=None)
@given(st.ip_addresses(v=6))
def test_no_ipv6_address_is_taken_that_the_registry_does_not_call_global(address):
    assert not check_address(str(address)) or (address.is_global and not address.is_multicast)


@settings(deadline=None)
@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:{}", "::{}", "64:ff9b::{}"]))
def test_no_ipv4_address_gets_in_as_an_ipv6_one(address, form):
    assert not check_address(form.format(address))


@settings(deadline=None)
@given(st.ip_addresses(v=4))
def test_6to4_never_gets_in(address):
    assert not check_address(str(ipaddress.IPv6Address((0x2002 << 112) | (int(address) << 80))))


@settings(deadline=None)
@given(st.text(max_size=40))
def test_text_is_no_address_or_a_checked_one(text):
    if check_address(text):
        ipaddress.ip_address(text)


def test_url_is_taken_apart():
    assert parse_url("https://Example.COM./a?b#c") == Target("https", "example.com", 443)
    assert parse_url("http://[2606:4700::1]:8080/") == Target("http", "2606:4700::1", 8080)


@pytest.mark.parametrize(
    "url",
    [
        *("", "example.com", "//example.com", "ftp://example.com/", "file:///etc/passwd", "gopher://x/", "data:text/plain,x"),
        *("http://", "http:///path", "http://user@example.com/", "http://user:pw@example.com/", "http://@example.com/"),
        *("http://example.com\\@127.0.0.1/", "http://exam ple.com/", "http://example.com/\n", "http://[::1", "http://x:99999/"),
        *("http://x:port/", "http://\u2028/", "http://" + "a" * 300 + "/", "http://a/" + "b" * 9000),
    ],
)
def test_url_that_is_not_plain_http_is_refused(url):
    with pytest.raises(UrlNotAllowed) as refused:
        parse_url(url)
    assert (refused.value.status, refused.value.code) == (400, "url_not_allowed")


def test_redirect_is_checked_like_the_first_url():
    assert redirected("https://a.example/x/y", "../z") == "https://a.example/z"
    assert redirected("http://a.example/", "//b.example/c") == "http://b.example/c"
    for location in ("file:///etc/passwd", "http://b.example/", "https://u@b.example/", "https://[", "x" * 9000):
        with pytest.raises(UrlNotAllowed):
            redirected("https://a.example/", location)


@settings(deadline=None)
@given(st.text(max_size=60))
def test_redirect_leads_to_http_or_nowhere(location):
    try:
        following = redirected("https://a.example/", location)
    except UrlNotAllowed:
        return
    assert parse_url(following).scheme == "https"


class Resolver:
    """Answers look-ups from a list, one answer after the other; the last one stays."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host, port, **_):
        self.asked.append(host)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [(_family(address), socket.SOCK_STREAM, 6, "", (address, port)) for address in answer]


def _family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


@pytest.fixture
async def lookups(monkeypatch):
    def install(*answers: list[str]) -> Resolver:
        resolver = Resolver(*answers)
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolver)
        return resolver

    return install


async def test_every_address_of_a_host_must_be_public(lookups):
    lookups(["1.1.1.1", "10.0.0.1"])
    with pytest.raises(UrlNotAllowed, match="does not lead to the public internet") as refused:
        await resolve_allowed("mixed.example", 80)
    assert "10.0.0.1" not in refused.value.message


async def test_public_host_is_resolved_to_few_addresses(lookups):
    lookups([f"1.1.1.{n}" for n in range(1, 10)])
    found = await resolve_allowed("many.example", 443)
    assert found[0] == Address(socket.AF_INET, ("1.1.1.1", 443))
    assert len(found) == MAX_ADDRESSES


async def test_host_that_leads_nowhere_is_refused(lookups):
    lookups([])
    with pytest.raises(UrlNotAllowed):
        await resolve_allowed("empty.example", 80)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "::1", "::ffff:127.0.0.1"])
async def test_no_notation_of_a_loopback_address_gets_through_the_real_resolver(host):
    with pytest.raises(UrlNotAllowed):
        await resolve_allowed(host, 80)


@pytest.mark.parametrize("host", ["", "a" * 64 + ".example", "nul\0.example", "\ud800", "-", "no-such-host.invalid"])
async def test_broken_host_is_refused_and_not_an_error_of_ours(host):
    with pytest.raises(UrlNotAllowed):
        await resolve_allowed(host, 80)


async def test_allowed_host_may_lead_into_the_own_network(lookups):
    lookups(["127.0.0.1"])
    assert await resolve_allowed("Minio.Internal.", 9000, allow=["minio.internal"])
    with pytest.raises(UrlNotAllowed):
        await resolve_allowed("sub.minio.internal", 9000, allow=["minio.internal"])


async def test_connection_is_made_to_the_address_that_was_checked(monkeypatch):
    """The second look-up would lead to another place; there is none."""
    loop = asyncio.get_running_loop()
    reached = []

    async def connect(connection, address):
        reached.append(address)

    resolver = Resolver(["1.1.1.1"], ["127.0.0.1"])
    monkeypatch.setattr(loop, "getaddrinfo", resolver)
    monkeypatch.setattr(loop, "sock_connect", connect)
    with await connect_allowed("rebinding.example", 80):
        assert reached == [("1.1.1.1", 80)]
    assert resolver.asked == ["rebinding.example"]


async def test_next_address_is_tried_and_nothing_stays_open(monkeypatch):
    loop, reached = asyncio.get_running_loop(), []

    async def connect(connection, address):
        reached.append(address[0])
        if len(reached) < 2:
            raise ConnectionRefusedError

    monkeypatch.setattr(loop, "getaddrinfo", Resolver(["1.1.1.1", "1.0.0.1"]))
    monkeypatch.setattr(loop, "sock_connect", connect)
    (await connect_allowed("two.example", 80)).close()
    assert reached == ["1.1.1.1", "1.0.0.1"]


async def test_allowed_host_is_really_reached():
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with await connect_allowed("127.0.0.1", port, allow=["127.0.0.1"]) as connection:
            assert connection.getpeername() == ("127.0.0.1", port)
    with pytest.raises(UrlNotAllowed, match="takes no connection"):
        await connect_allowed("127.0.0.1", port, allow=["127.0.0.1"])
