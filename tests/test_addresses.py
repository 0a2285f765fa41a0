"""One check of servers' addresses for all that ask servers."""

import pytest

from agent_envs.errors import ConfigError
from agent_envs.http.addresses import names_this_machine, server_address


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://me:secret@localhost:1", "http://localhost:1"),
        ("http://me:a/secret@localhost:1", "localhost:1"),  # a password that is not escaped
        ("me:secret@localhost:1", "localhost:1"),
        ("http://localhost:1/v1?key=secret", "http://localhost:1/v1"),
        ("http://localhost:1/v1#secret", "http://localhost:1/v1"),
        ("http://local host:1", "http://local host:1"),
        ("http://localhost\\v1", "http://localhost\\v1"),
        ("http://localhost:65536", "http://localhost:65536"),
        ("http://localhost:0", "http://localhost:0"),
        ("http://[::1", "http://[::1"),
        ("ftp://localhost", "ftp://localhost"),
        ("localhost:8000", "localhost:8000"),
        ("http:///v1", "http:///v1"),
        ("", ""),
    ],
)
def test_what_is_no_servers_address_is_refused_without_its_keys(url, shown):
    with pytest.raises(ConfigError) as refusal:
        server_address("url", url)
    assert str(refusal.value).endswith(f"without a login, a query or a fragment, got {shown!r}")


@pytest.mark.parametrize("url", ["http://localhost/@user/v1", "HTTPS://Example.com:443/v1/", "http://[::1]:8000"])
def test_addresses_that_are_taken(url):
    assert server_address("url", url).hostname in ("localhost", "example.com", "::1")


def test_a_query_is_taken_where_it_may_be():
    assert server_address("url", "http://localhost/mcp?user=3", query=True).query == "user=3"
    with pytest.raises(ConfigError, match=r"without a login or a fragment, got 'http://localhost/mcp'"):
        server_address("url", "http://localhost/mcp?user=3#x", query=True)


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("ws://127.8.8.8:1/x", True),
        ("http://LOCALHOST", True),
        ("http://127.0.0.1.example.com", False),
        ("http://localhost.example.com", False),
        ("http://[::1", False),
        ("localhost", False),  # no address
    ],
)
def test_whether_an_address_is_of_this_machine(url, local):
    assert names_this_machine(url) == local
