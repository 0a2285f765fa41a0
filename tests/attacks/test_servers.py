"""Hostile HTTP into the three servers: `serve`, `serve-search` and `record`.

1. A malformed request is refused: no traceback in the log, and the next client is answered.
2. Only clients with the token, or on this machine and not from a web page, are answered.
3. Hundreds of half-open connections keep nobody out, and are cut off; so is a client that sends without end.
4. One request for many searches is bounded in work and time, and so are many requests at once.
"""

import contextlib
import http.client
import json
import logging
import socket
import threading
import time

import pytest

from agent_envs.errors import ConfigError
from agent_envs.retrieval import StaticRetriever

pytest.importorskip("aiohttp")
from agent_envs.recording import RecordingServer
from agent_envs.serving import EnvServer, SearchServer, ServedEnv
from tests.helpers import until

TOKEN = "a-token-of-some-length"
ROWS = [{"id": "1", "text": "Paris is a city."}]
PATHS = {"serve": "/", "search": "/search?query=Paris", "record": "/episodes"}
KINDS = tuple(PATHS)


def made(kind, tmp_path, **settings):
    settings = {"port": 0, **settings}
    if kind == "serve":
        return EnvServer([ServedEnv("AgentR1/GSM8K-v0")], **settings)
    if kind == "search":
        return SearchServer(StaticRetriever({"Paris": ["1"]}, ROWS), **settings)
    return RecordingServer("http://127.0.0.1:9/v1", str(tmp_path / "episodes"), judge_token="a judge's", **settings)


def ask(server, path, method="GET", body=None, **headers):
    """The status of a request, and its answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.listener.port, timeout=20)
    with contextlib.closing(connection):
        connection.request(method, path, body, {key.replace("_", "-"): value for key, value in headers.items()})
        reply = connection.getresponse()
        return reply.status, reply.read()


def dialled(server):
    return socket.create_connection(("127.0.0.1", server.listener.port), timeout=20)


def line(text, *headers, body=b""):
    return "\r\n".join([text, "Host: localhost", *headers, "", ""]).encode("latin-1") + body


MALFORMED = [
    line("GET http://[ HTTP/1.1"),
    line("GET http://[/search?query=x HTTP/1.1"),
    line("GET //[ HTTP/1.1"),
    line("GET http://a:99999999/ HTTP/1.1"),
    line("CONNECT [ HTTP/1.1"),
    line("OPTIONS * HTTP/1.1"),
    line("GET /%00%ff HTTP/1.1"),
    line("GET /search?query=%ff%fe&k=\xb2 HTTP/1.1"),
    line("GET / HTTP/9.9"),
    line("GET /"),
    line("GET " + "/a" * 40_000 + " HTTP/1.1"),
    line("GET / HTTP/1.1", *["X: y"] * 1000),
    line("GET / HTTP/1.1", "X: " + "y" * 100_000),
    line("GET / HTTP/1.1", "Host: evil.example"),
    line("GET / HTTP/1.1", "Authorization: \xff\xfe"),
    line("GET / HTTP/1.1", "Origin: http://["),
    b"GET / HTTP/1.1\r\nHost: [\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x00garbage\r\n\r\n",
    b"\x00" * 1000 + b"\r\n\r\n",
    b"\r\n" * 1000,
    *(
        line(f"POST {path} HTTP/1.1", *headers, body=body)
        for path in ("/search", "/retrieve", "/v1/chat/completions", "/episodes/x/reward", "/nowhere")
        for headers, body in (
            (["Content-Length: " + "9" * 5000], b"{}"),
            (["Content-Length: -1"], b"{}"),
            (["Content-Length: \xb2"], b"{}"),
            (["Content-Length: 1", "Content-Length: 2"], b"{}"),
            (["Transfer-Encoding: chunked"], b"zz\r\n"),
            (["Transfer-Encoding: chunked", "Content-Length: 2"], b"{}"),
            (["Content-Length: 5", "Content-Encoding: gzip"], b"abcde"),
            (["Content-Length: 2", "Content-Encoding: br"], b"{}"),
            (["Content-Length: 2", "Expect: nonsense"], b"{}"),
            (["Content-Length: 2", "Content-Type: text/plain; charset=nope"], b"{}"),
            (["Content-Length: 100000"], b"[" * 100_000),
            (["Content-Length: 5000"], b"9" * 5000),
            (["Content-Length: 2"], b"\xff\xfe"),
        )
    ),
    line("GET /ws HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 99"),
    line("GET /ws?kwargs=%5B%5B HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_malformed_requests_leave_no_traceback(kind, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    with made(kind, tmp_path) as server:
        for request in MALFORMED:
            with dialled(server) as raw, contextlib.suppress(ConnectionError):
                raw.sendall(request)
                if request.strip():
                    raw.settimeout(0.1 if request.startswith((b"GET /\r", b"\x00", b"\x16")) else 20)
                    with contextlib.suppress(TimeoutError):
                        assert b" 500 " not in raw.recv(4096).partition(b"\r\n")[0] + b" ", request[:100]
        assert ask(server, "/health")[0] == 200
        assert ask(server, PATHS[kind])[0] == 200
    assert [record for record in caplog.records if record.exc_info or "Traceback" in record.getMessage()] == []


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_token_only_this_machine_and_no_page_is_answered(kind, tmp_path):
    for host in ("0.0.0.0", "", "::"):
        with pytest.raises(ConfigError, match="there is no token"):
            made(kind, tmp_path, host=host)
    with made(kind, tmp_path) as server:
        path = PATHS[kind]
        for host in ("localhost", "127.0.0.1:80", "[::1]"):
            assert ask(server, path, Host=host)[0] == 200
        for host in ("evil.example", "localhost.evil.example", "10.0.0.1", "[::", ""):
            assert ask(server, path, Host=host)[0] in (400, 403), host
        for origin in ("https://evil.example", "null", "http://localhost.evil", "http://["):
            assert ask(server, path, Origin=origin)[0] == 403, origin
            assert ask(server, path, "POST", b"{}", Origin=origin)[0] == 403
        assert ask(server, path, Origin="http://localhost:3000")[0] == 200


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_token_only_who_has_it_is_answered(kind, tmp_path):
    with made(kind, tmp_path, token=TOKEN) as server:
        path = PATHS[kind]
        for wrong in ("", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Token {TOKEN}", "Basic !!!"):
            status, answer = ask(server, path, Authorization=wrong)
            assert status == 401 and TOKEN.encode() not in answer
        assert ask(server, "/health")[0] == 200
        assert ask(server, path, Authorization=f"Bearer {TOKEN}", Host="models.example")[0] == 200
        # A browser sends the password that it remembers with requests of any page.
        allowed = {"Authorization": f"Bearer {TOKEN}", "Host": "models.example:80"}
        assert ask(server, path, Origin="https://evil.example", **allowed)[0] == 403
        assert ask(server, path, Origin="https://models.example", **allowed)[0] == 200


@pytest.mark.parametrize("kind", KINDS)
def test_half_open_connections_keep_nobody_out_and_are_cut_off(kind, tmp_path, monkeypatch):
    with made(kind, tmp_path) as server, contextlib.ExitStack() as stack:
        half = [stack.enter_context(dialled(server)) for _ in range(300)]
        for number, raw in enumerate(half):
            raw.sendall((b"", b"G", b"GET / HTTP/1.1\r\nHost: local", b"POST /x HTTP/1.1\r\n")[number % 4])
        begun = time.monotonic()
        assert ask(server, PATHS[kind])[0] == 200
        assert time.monotonic() - begun < 5
        assert until(lambda: len(server.listener.connections) >= 300)
        monkeypatch.setattr("agent_envs.serving.listener._HEAD_SECONDS", 0.1)
        assert until(lambda: len(server.listener.connections) < 5)
        assert ask(server, PATHS[kind])[0] == 200


def test_beyond_the_most_connections_those_that_say_nothing_go_first(tmp_path):
    with made("search", tmp_path) as server, contextlib.ExitStack() as stack:
        server.listener._max_connections = 8
        silent = [stack.enter_context(dialled(server)) for _ in range(8)]
        assert until(lambda: len(server.listener.connections) == 8)
        active = [stack.enter_context(dialled(server)) for _ in range(8)]
        for raw in active:
            raw.sendall(line("GET /health HTTP/1.1"))
            assert b" 200 " in raw.recv(4096)
        for raw in silent:
            with contextlib.suppress(ConnectionError):
                assert raw.recv(10) == b""
        with dialled(server) as late:
            assert b" 503 " in late.recv(4096)
        active[0].sendall(line("GET /health HTTP/1.1"))
        assert b" 200 " in active[0].recv(4096)
        assert len(server.listener.connections) == 8


@pytest.mark.parametrize("kind", ["search", "record"])  # `serve` takes no bodies
def test_a_client_that_sends_without_end_is_cut_off(kind, tmp_path):
    with made(kind, tmp_path) as server:
        server.listener.max_unanswered = 1 << 20
        path = {"search": "/search", "record": "/v1/chat/completions"}[kind]
        with dialled(server) as small, dialled(server) as large:
            for raw in (small, large):
                raw.sendall(line(f"POST {path} HTTP/1.1", f"Content-Length: {8 << 20}", "X-Episode-Id: x"))
            small.sendall(b" " * 1000)
            with pytest.raises(ConnectionError):
                for _ in range(100):
                    large.sendall(b" " * (1 << 16))
                    time.sleep(0.01)
            assert ask(server, PATHS[kind])[0] == 200
            small.settimeout(0.05)
            with pytest.raises(TimeoutError):
                small.recv(10)  # it still waits for the rest
        assert until(lambda: server.listener.unanswered == 0)


class Slow(StaticRetriever):
    """Takes a while for each query, and counts those that it was asked."""

    def __init__(self, seconds):
        super().__init__({}, ROWS, default=["1"])
        self.seconds, self.asked = seconds, 0
        self.go = threading.Event()

    def search_many(self, queries, k=10):
        for _ in queries:
            self.asked += 1
            self.go.wait(self.seconds)
        return super().search_many(queries, k)


def posted(server, path, content):
    status, answer = ask(server, path, "POST", json.dumps(content).encode())
    return status, json.loads(answer)


def test_one_request_for_thousands_of_searches_is_bounded():
    slow = Slow(0.01)
    with SearchServer(slow, port=0, seconds=1.0) as server:
        begun = time.monotonic()
        status, answer = posted(server, "/retrieve", {"queries": ["Paris " * 20] * 4096})
        assert (status, time.monotonic() - begun < 5) == (413, True)
        assert "longer than 1 s" in answer["error"] and slow.asked < 500
        for queries in (["x" * 300] * 4096, ["x" * (2 << 20)], ["x"] * 4097):
            asked = slow.asked
            assert posted(server, "/retrieve", {"queries": queries})[0] == 413 and slow.asked == asked
        assert posted(server, "/search", {"query": "x" * (2 << 20)})[0] == 413
    with SearchServer(StaticRetriever({}, ROWS, default=["1"]), port=0) as server:  # where each takes no time
        assert len(posted(server, "/retrieve", {"queries": ["x" * 200] * 4096})[1]["result"]) == 4096


def test_searches_for_a_client_that_has_gone_end():
    slow = Slow(0.01)
    with SearchServer(slow, port=0) as server:
        content = json.dumps({"queries": ["x"] * 4096}).encode()
        with dialled(server) as raw:
            raw.sendall(line("POST /retrieve HTTP/1.1", f"Content-Length: {len(content)}", body=content))
            assert until(lambda: slow.asked > 5)
        time.sleep(1.0)
        asked = slow.asked
        time.sleep(0.3)
        assert asked == slow.asked < 200


def test_more_requests_than_can_be_worked_on_are_refused_and_threads_are_bounded():
    slow = Slow(60)
    with SearchServer(slow, port=0, max_requests=2) as server, contextlib.ExitStack() as stack:
        before = threading.active_count()
        content = b'{"query": "x"}'
        waiting = [stack.enter_context(dialled(server)) for _ in range(40)]
        for raw in waiting:
            raw.sendall(line("POST /search HTTP/1.1", f"Content-Length: {len(content)}", body=content))
            raw.settimeout(20)
        for raw in waiting[10:]:  # two run, eight wait
            assert b" 503 " in raw.recv(4096)
        assert threading.active_count() <= before + 2
        assert ask(server, "/health")[0] == 200
        slow.go.set()
        for raw in waiting[:10]:
            assert b" 200 " in raw.recv(4096)
