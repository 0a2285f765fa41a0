"""Addresses of servers."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from urllib.parse import SplitResult, urlsplit

from agent_envs.checks import shown
from agent_envs.errors import ConfigError


def server_address(
    name: str, url: object, *, schemes: Collection[str] = ("http", "https"), query: bool = False
) -> SplitResult:
    """Return the parts of a server's address, which must hold no login, no fragment, and no query unless it may.

    A ConfigError says what is expected; it does not repeat what may be a key.

    >>> server_address("url", "http://127.0.0.1:8000/v1").port
    8000
    >>> server_address("url", "http://me:secret@localhost:8000")
    Traceback (most recent call last):
        ...
    agent_envs.errors.ConfigError: url must be a server's address such as 'http://127.0.0.1:8000', without a login, ...
    """
    text = url if isinstance(url, str) else ""
    try:
        parts = urlsplit(text)
        named = parts.hostname and parts.port != 0 and not re.search(r"[\x00-\x20@\\]", parts.netloc)
        if parts.scheme in schemes and named and not parts.fragment and (query or not parts.query):
            return parts
    except ValueError:  # a port that is no number
        pass
    more = "a login or a fragment" if query else "a login, a query or a fragment"
    got = shown(bare_address(text).rpartition("@")[2] if text else url)
    raise ConfigError(f"{name} must be a server's address such as 'http://127.0.0.1:8000', without {more}, got {got}")


def bare_address(url: str) -> str:
    """Return an address without what may be a key: user, password, query and fragment.

    >>> bare_address("https://me:secret@example.com/v1?key=3")
    'https://example.com/v1'
    """
    return re.sub(r"(?<=//)[^/?#]*@|[?#].*", "", url, flags=re.DOTALL)


def host_of(url: str) -> str:
    """Return the host that an address names, "" for none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def names_this_machine(url: str) -> bool:
    """Return whether an address is `localhost` or a number of this machine alone.

    >>> names_this_machine("http://localhost:8000"), names_this_machine("ws://[::1]"), names_this_machine("http://x")
    (True, True, False)
    """
    host = host_of(url)
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
