"""Search over HTTP: client and server.

1. Client and server agree, in both shapes; the server keeps to the shapes others speak.
2. A server that is down or sends garbage is a BackendError, after as many attempts as were asked for; one that is
   slow or busy is so to every client (test_paper_backends.py).
3. A bad request is answered, not died of.
4. Connections are used again, across threads; a connection the server closed is replaced without counting.
"""

from __future__ import annotations

import http.client
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agent_envs.errors import BackendError, ConfigError
from agent_envs.retrieval import BM25Retriever, HTTPRetriever, Retriever, StaticRetriever
from tests.helpers import write_rows

ROWS = [
    {"id": "1", "title": "Paris", "text": "The capital of France."},
    {"id": "2", "contents": "Berlin, a capital, lies on the Spree."},
    {"id": "a/b ü?", "text": "An odd id for a capital"},
]


def serving(retriever, **settings):
    pytest.importorskip("aiohttp")
    from agent_envs.serving import SearchServer

    return SearchServer(retriever, **{"port": 0, **settings})


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with serving(BM25Retriever.build(ROWS), max_k=50) as running:
        yield running


def ask(server, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.listener.port, timeout=10)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    connection.request(method, path, data, headers or {})
    response = connection.getresponse()
    answer = response.status, json.loads(response.read())
    connection.close()
    return answer


def test_the_client_finds_what_the_index_finds(server):
    client = HTTPRetriever(server.url + "/")
    index = server.retriever
    assert isinstance(client, Retriever)
    for query in ("capital of France", "", "zzz", 'AND "\x00\ud800', "spree " * 5000):
        assert client.search(query, 2) == index.search(query.encode("utf-8", "replace").decode(), 2)
    assert client.search_many(["spree", "france"], 1) == index.search_many(["spree", "france"], 1)
    assert client.search_many([]) == []
    assert client.document("2")["contents"] == ROWS[1]["contents"]  # came with results
    fresh = HTTPRetriever(server.url)
    assert [fresh.document(row["id"]) for row in ROWS] == ROWS  # asked for
    with pytest.raises(ConfigError, match="nope"):
        fresh.document("nope")
    assert pickle.loads(pickle.dumps(fresh)).search("spree", 1) == client.search("spree", 1)
    client.close()
    fresh.close()


def test_the_shapes(server):
    asked = {"queries": ["spree", "zzz"], "topk": 1, "return_scores": True}
    status, answer = ask(server, "POST", "/retrieve", asked)
    score = server.retriever.search("spree")[0][1]
    document = {"id": "2", "contents": ROWS[1]["contents"]}
    assert (status, answer) == (200, {"result": [[{"document": document, "score": score}], []]})
    assert ask(server, "POST", "/retrieve", {"queries": ["spree"]}) == (200, {"result": [[document]]})
    paris = ask(server, "POST", "/retrieve", {"queries": "paris"})[1]["result"][0][0]
    assert paris == {**ROWS[0], "contents": '"Paris"\nThe capital of France.'}
    expected = 200, {"results": [{"id": "2", "score": score, "document": ROWS[1]}]}
    assert ask(server, "GET", "/search?query=spree&k=1") == expected
    assert ask(server, "GET", "/search?q=spree") == expected
    assert ask(server, "POST", "/search", {"query": "spree", "k": 1}) == expected
    assert ask(server, "GET", "/health") == (200, {"status": "ok", "documents": 3})


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/", None, 404),
        ("GET", "/search", None, 400),
        ("GET", "/search?query=x&k=many", None, 400),
        ("GET", "/search?query=x&k=0", None, 400),
        ("GET", "/search?query=x&k=51", None, 400),
        ("GET", "/search?query=x&k=99999999999999999999", None, 400),
        ("GET", "/document/nope", None, 404),
        ("POST", "/", {}, 404),
        ("POST", "/search", {}, 400),
        ("POST", "/search", {"query": 3}, 400),
        ("POST", "/search", {"query": "x", "k": True}, 400),
        ("POST", "/search", [1], 400),
        ("POST", "/search", b"{", 400),
        ("POST", "/search", b"[" * 100_000, 400),
        ("POST", "/search", b"\xff\xfe", 400),
        ("POST", "/retrieve", {"queries": [1]}, 400),
        ("POST", "/retrieve", {"queries": {}}, 400),
        ("POST", "/retrieve", {"queries": ["x"], "topk": -1}, 400),
        ("POST", "/retrieve", {"queries": ["x"] * 5000}, 413),
    ],
)
def test_bad_requests_are_answered(server, method, path, body, status):
    found, answer = ask(server, method, path, body)
    assert found == status and isinstance(answer["error"], str)
    assert ask(server, "GET", "/health")[0] == 200


def test_bodies_without_a_length_or_too_large(server):
    for head, status in (("", 400), ("Content-Length: -1\r\n", 400), (f"Content-Length: {17 << 20}\r\n", 413)):
        with socket.create_connection(("127.0.0.1", server.listener.port), timeout=10) as raw:
            raw.sendall(f"POST /search HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode())
            if status == 413:
                raw.sendall(b" " * (17 << 20))
            assert f" {status} ".encode() in raw.recv(1000)


def test_a_broken_retriever_is_503_and_then_a_backend_error():
    class Broken(StaticRetriever):
        def search_many(self, queries, k=10):
            raise BackendError("the index is gone")

    with serving(Broken({})) as broken, pytest.raises(BackendError, match="failed 2 times.*503.*the index is gone"):
        HTTPRetriever(broken.url, retries=1, backoff=0.01).search("x")


GOOD = b'{"result": [[{"document": {"id": 7, "contents": "c"}, "score": 1}]]}'


def test_down():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    begin = time.perf_counter()
    with pytest.raises(BackendError, match="failed 3 times; the last error: ConnectionRefusedError"):
        HTTPRetriever(url, retries=2, backoff=0.05).search("x")
    assert 0.15 <= time.perf_counter() - begin < 5
    with pytest.raises(BackendError):
        HTTPRetriever("http://no-such-host.invalid", retries=0).search("x")


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html>", b"\xff\xfe\x00", b"null", b"[]", b"3", b"{}", b'{"result": 3}', b'{"result": []}',
        b'{"result": [3]}', b'{"result": [[3]]}', b'{"result": [[{}]]}', b'{"result": [[{"document": 3}]]}',
        b'{"result": [[{"document": {"title": "no text"}}]]}', b'{"result": [[], []]}',
        b'{"result": [[{"document": {"id": 1}, "score": "x"}]]}',
        b'{"result": [[{"document": null}]]}', b'{"result": [[null]]}',
        b'{"result": [[{"document": {"id": 1}, "score": 1' + b"0" * 400 + b"}]]}",
    ],
)  # fmt: skip
def test_garbage(fake_service, body):
    service = fake_service(lambda asked, n: (200, body))
    with pytest.raises(BackendError, match="sent"):
        HTTPRetriever(service.url, backoff=0.01).search("x")
    assert len(service.asked) == 1  # saying it again would not help


def test_garbled_http_and_cut_answers(fake_service):
    cut = {"Content-Length": "1000", "Connection": "close"}
    for answer in ((200, GOOD[:10], cut), b"\x00\x01 what?\r\n\r\n"):
        service = fake_service(lambda asked, n, answer=answer: answer)
        with pytest.raises(BackendError, match="failed 2 times"):
            HTTPRetriever(service.url, retries=1, backoff=0.01).search("x")
        assert len(service.asked) == 2
    service = fake_service(lambda asked, n: (404, b"no"))
    with pytest.raises(BackendError, match="404: no"):
        HTTPRetriever(service.url, backoff=0.01).search("x")


def test_results_of_other_servers(fake_service):
    answers = {
        b'{"result": [[{"id": "1", "contents": "c"}, {"id": "2", "contents": "d"}]]}': [("1", 2.0), ("2", 1.0)],
        GOOD: [("7", 1.0)],
    }
    for body, hits in answers.items():
        service = fake_service(lambda asked, n, body=body: (200, body))
        client = HTTPRetriever(service.url + "/deep/path")
        assert client.search("x") == hits
        assert client.document(hits[0][0])["contents"] == "c"
        assert [asked.path for asked in service.asked] == ["/deep/path/retrieve"]


def test_documents_without_ids_are_told_apart_by_what_they_say(fake_service):
    """As the servers of Search-R1 that search the web answer."""
    body = b"""{"result": [[{"document": {"contents": "a"}}, {"document": {"contents": "b", "id": null}, "score": null},
        {"document": {"contents": "a"}}, {"contents": "c", "id": null}]]}"""
    service = fake_service(lambda asked, n: (200, body))
    client = HTTPRetriever(service.url)
    (first, second, third, fourth), again = client.search("x"), client.search("x")
    assert [score for _, score in (first, second, third, fourth)] == [4.0, 3.0, 2.0, 1.0]
    assert first[0] == third[0] and len({first[0], second[0], fourth[0]}) == 3 and again[0] == first
    assert [client.document(hit[0])["contents"] for hit in (first, second, fourth)] == ["a", "b", "c"]
    assert len(service.asked) == 2


def test_connections_are_kept_and_replaced(fake_service):
    service = fake_service(lambda asked, n: (200, GOOD, {"Connection": "close"} if n == 2 else {}))
    client = HTTPRetriever(service.url, retries=0)
    for _ in range(4):
        client.search("x")
        time.sleep(0.05)
    first, second, third, fourth = (asked.client for asked in service.asked)
    assert first == second != third == fourth


def test_many_threads(server):
    client = HTTPRetriever(server.url)
    with ThreadPoolExecutor(64) as pool:
        found = list(pool.map(client.search, ["capital"] * 320, [3] * 320))
    assert found == [client.search("capital", 3)] * 320
    client.close()


def test_bad_settings(server):
    with pytest.raises(ConfigError, match="url must be a server's address"):
        HTTPRetriever("localhost:8000")
    for setting in ({"timeout": 0}, {"retries": -1}, {"backoff": -1}):
        with pytest.raises(ConfigError):
            HTTPRetriever("http://x", **setting)
    with pytest.raises(ConfigError, match="cannot listen"):
        serving(StaticRetriever({}), port=server.listener.port).start()
    with pytest.raises(ConfigError):
        HTTPRetriever(server.url).search("x", 0)


def test_command_line(tmp_path, root):
    pytest.importorskip("aiohttp")
    write_rows(tmp_path / "rows.jsonl", ROWS)
    process = subprocess.Popen(
        [sys.executable, "-m", "agent_envs", "serve-search", tmp_path / "rows.jsonl", "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "PYTHONPATH": str(root)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job's shell has it ignored
    )  # fmt: skip
    try:
        line = process.stdout.readline()
        assert HTTPRetriever(line.split()[-1]).search("spree", 1)[0][0] == "2"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.communicate()
