"""Who is answered by this package's servers: clients that send a token, or this machine alone and no web pages."""

from __future__ import annotations

import base64
import contextlib
import hmac
import ipaddress
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from agent_envs.errors import ConfigError
from agent_envs.http.addresses import host_of, names_this_machine

TOKEN_VARIABLE = "AGENT_ENVS_TOKEN"
"""The environment variable from which server and client read the token."""

_SHORTEST = 16


class StatusError(Exception):
    """A request is refused, with this HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def read_token(path: str | os.PathLike[str] | None = None) -> str | None:
    """Return the token from the first line of a file or from the environment variable, or None.

    A ConfigError says that the file cannot be read, or that the token is too short.
    """
    token = os.environ.get(TOKEN_VARIABLE, "")
    source = TOKEN_VARIABLE
    if path is not None:
        source = os.fspath(path)
        try:
            token = Path(path).read_text(encoding="utf-8").partition("\n")[0]
        except (OSError, UnicodeDecodeError) as e:
            raise ConfigError(f"cannot read the token in {source}: {e}") from e
    elif not token:
        return None
    token = token.strip()
    if len(token) < _SHORTEST or not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError(
            f"the token in {source} must be one word of at least {_SHORTEST} ASCII characters; make one with: "
            "python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    return token


def is_loopback(host: str) -> bool:
    """Return whether an address, or every address of a name, is reachable from this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("")
    (True, True, False, False)
    """
    try:
        addresses = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return False
    return bool(host) and all(
        ipaddress.ip_address(str(entry[4][0]).partition("%")[0]).is_loopback for entry in addresses
    )


def check_binding(host: str, token: str | None) -> None:
    """Make sure that a server that other machines can reach has a token; a ConfigError if not."""
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"other machines can reach {host or 'every address'}, and there is no token; set {TOKEN_VARIABLE} or pass "
            "--token-file, or listen on 127.0.0.1"
        )


def check_access(headers: Mapping[str, str], token: str | None) -> None:
    """Make sure that a request may be answered.

    With a token, the request has to bring it: `Authorization: Bearer TOKEN`, or as the password of `Basic`, as clients
    send it for `http://any:TOKEN@host`. Without one the server listens on this machine alone, where the danger is a web
    page in a browser: the request's Host has to name this machine (that of a page whose name was pointed here does
    not). With or without one, a page's Origin has to name this machine or the server: a browser adds the password that
    it remembers to requests of any page. Otherwise it raises a StatusError.

    >>> check_access({"Host": "localhost:8000"}, None)
    >>> check_access({"Authorization": "Bearer correct horse"}, "correct horse")
    """
    host = f"//{headers.get('Host', '')}"
    if token is not None:
        if not holds_token(headers.get("Authorization", ""), token):
            raise StatusError(401, "expected the server's token: Authorization: Bearer TOKEN")
    elif not names_this_machine(host):
        raise StatusError(403, "expected a Host of this machine, such as localhost; the server has no token")
    origin = headers.get("Origin")
    own = {host_of(host)} - {""} if token is not None else set()
    if origin is not None and not names_this_machine(origin) and host_of(origin) not in own:
        raise StatusError(403, "requests from web pages of other machines are refused")


def holds_token(authorization: str, token: str) -> bool:
    """Return whether the header `Authorization` holds the token.

    >>> holds_token("bearer  correct horse", "correct horse"), holds_token("Bearer wrong", "correct horse")
    (True, False)
    """
    scheme, _, value = authorization.partition(" ")
    sent = value.strip() if scheme.lower() == "bearer" else ""
    if scheme.lower() == "basic":
        with contextlib.suppress(ValueError):
            sent = base64.b64decode(value, validate=True).decode().partition(":")[2]
    return hmac.compare_digest(sent.encode("utf-8", "surrogateescape"), token.encode())
