"""Services of papers: arXiv, Semantic Scholar, the released shapes; what is kept of them, recorded and replayed.

1. The recorded replies of arXiv and Semantic Scholar are read: pages, missing abstracts and dates, versions.
2. Down, slow, busy, another shape: an error that says which, and nothing of it is kept.
3. A recording replays byte for byte with the network gone; what it lacks is an error.
4. Ids and queries of a policy lead nowhere but to the service's own addresses.
"""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent_envs import errors
from agent_envs.http.pool import HTTPPool, HTTPReply
from agent_envs.retrieval.papers import Paper, PaperBackend, open_backend, open_selector
from agent_envs.retrieval.papers.arxiv_api import ArxivAPI, read_feed, search_text
from agent_envs.retrieval.papers.graph_api import GraphAPI, SemanticScholar
from agent_envs.retrieval.papers.service import ReplyStore

FAST = {"retries": 1, "backoff": 0.01, "interval": 0, "cache": "off"}
PAPER = {"paperId": "p" * 40, "externalIds": {"ArXiv": "2009.02040"}, "title": "Graph\n attention", "abstract": None}
PAPER |= {"year": 2020, "publicationDate": "2020-09-04"}


def feed(*entries: str, total: int | None = None) -> bytes:
    return (
        '<feed xmlns:o="http://a9.com/-/spec/opensearch/1.1/" xmlns="http://www.w3.org/2005/Atom">'
        f"<o:totalResults>{len(entries) if total is None else total}</o:totalResults>{''.join(entries)}</feed>"
    ).encode()


def entry(name: str, title: str = "A title", published: str | None = "2020-01-02T03:04:05Z", summary: str = "S") -> str:
    date = "" if published is None else f"<published>{published}</published>"
    return (
        f"<entry><id>http://arxiv.org/abs/{name}</id><title>{title}</title><summary>{summary}</summary>{date}</entry>"
    )


# arXiv


@pytest.fixture(scope="module")
def arxiv_folder(data_dir, tmp_path_factory):
    """The recorded replies as a recording of ours."""
    store = ReplyStore(tmp_path_factory.mktemp("arxiv"))
    for path in sorted((data_dir / "papersearch" / "arxiv_api_fixtures").glob("*.json")):
        row = json.loads(path.read_text())
        store.put("GET", row["url"], None, HTTPReply(row["status_code"], row["body"].encode()))
    return store.folder


def recorded_arxiv(folder: Path, more: str = "") -> PaperBackend:
    return open_backend(f"arxiv:cache={folder}&offline=1{more}")


def test_arxiv_search_on_recorded_replies(arxiv_folder):
    hundred = recorded_arxiv(arxiv_folder).search("testing", 100)
    assert len(hundred) == 100 and hundred[0].id == "2202.12139" and hundred[0].date == "2022-02-24"
    assert hundred[0].title.startswith("Testing Deep Learning Models: A First") and "\n" not in hundred[0].abstract
    assert recorded_arxiv(arxiv_folder).search("testing", 10) == hundred[:10]
    paged = recorded_arxiv(arxiv_folder, "&page_size=10").search("testing", 60)  # six pages of ten
    assert len({paper.id for paper in paged}) == 60 and paged[:10] == hundred[:10]
    assert all(paper.date and "v" not in paper.id.rpartition("/")[2] for paper in paged)


def recorded_feed(data_dir: Path, name: str) -> HTTPReply:
    (path,) = (data_dir / "papersearch" / "arxiv_api_fixtures").glob(f"{name}_s0*")
    row = json.loads(path.read_text())
    return HTTPReply(row["status_code"], row["body"].encode())


def test_arxiv_papers_on_recorded_replies(data_dir, arxiv_folder):
    (paper,), _, _ = read_feed(recorded_feed(data_dir, "id_1605.08386"))
    assert (paper.id, paper.title, paper.date) == (
        "1605.08386",
        "Heat-bath random walks with Markov bases",
        "2016-05-26",
    )
    (old,), _, _ = read_feed(recorded_feed(data_dir, "id_astro-ph_0601001"))
    assert (old.id, old.date) == ("astro-ph/0601001", "2006-01-02")
    with pytest.raises(errors.BackendReplyError, match="incorrect id format"):
        read_feed(recorded_feed(data_dir, "id_abc"))
    with pytest.raises(errors.NotRecordedError, match="ask once without offline=1"):
        recorded_arxiv(arxiv_folder).search("something else")


def test_arxiv_versions_count_once_and_further_pages_fill_up(fake_service):
    pages = {
        "0": feed(entry("2001.00001v1"), entry("2001.00001v2"), entry("cs/0001001v3"), total=5),
        "3": feed(entry("2001.00002v1", published=None), entry("2001.00003", summary=""), total=5),
    }
    service = fake_service(lambda asked, n: (200, pages[asked.params["start"]]))
    arxiv = ArxivAPI(url=service.url, page_size=3, **FAST)
    found = arxiv.search("graphs")
    assert [paper.id for paper in found] == ["2001.00001", "cs/0001001", "2001.00002", "2001.00003"]
    assert found[2].date == "" and found[3].abstract == ""
    assert [asked.params["start"] for asked in service.asked] == ["0", "3"]
    assert service.asked[0].path == "/query" and service.asked[0].params["search_query"] == "graphs"


def test_arxiv_looks_for_all_words_and_then_for_any(fake_service):
    def answer(asked, n):
        both = [entry("2001.00001"), entry("2001.00002")]
        either = [entry("2001.00003"), entry("2001.00001v2"), entry("2001.00004")]
        return 200, feed(*(either if " OR " in asked.params["search_query"] else both))

    service = fake_service(answer)
    arxiv = ArxivAPI(url=service.url, **FAST)
    assert [paper.id[-1] for paper in arxiv.search("deep parsing", 2)] == ["1", "2"] and len(service.asked) == 1
    assert [paper.id[-1] for paper in arxiv.search("deep parsing", 3, "2023")] == ["1", "2", "3"]
    assert [asked.params["search_query"].partition(" AND sub")[0] for asked in service.asked[1:]] == [
        "(deep AND parsing)", "(deep OR parsing)"
    ]  # fmt: skip
    arxiv.search("parsing")
    assert len(service.asked) == 4  # a single word is asked for once


def test_arxiv_filters_by_date_twice(fake_service):
    service = fake_service(lambda asked, n: (200, feed(entry("2001.00001", published="2030-01-01"))))
    assert ArxivAPI(url=service.url, **FAST).search("x", 10, "2020") == []
    assert "submittedDate:[199101010000 TO 202012312359]" in service.asked[0].params["search_query"]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("graph neural networks", "graph AND neural AND networks"),
        ("AND OR ANDNOT", ""),  # words that say nothing, not operators
        ('au:"x" OR (all:*) ? [TO] &id_list=1', "au AND x AND all AND id_list AND 1"),
        ("état de l'art", "état AND de AND l'art"),
        ("Can you tell me the papers on graphs of graphs?", "tell AND graphs"),
        ("w" * 9 + " ".join(map(str, range(99))), "w" * 9 + " AND ".join(map(str, range(32)))),
        (" \t\n()\"'", ""),  # nothing to search for
        ("", ""),
    ],
)
def test_arxiv_queries_are_words(query, text):
    assert search_text(query) == text


def test_empty_queries_ask_nobody(fake_service):
    service = fake_service(lambda asked, n: (500, b"no"))
    for backend in (
        ArxivAPI(url=service.url, **FAST),
        SemanticScholar(url=service.url, **FAST),
        GraphAPI(service.url, **FAST),
    ):
        assert backend.search("") == backend.search(" ?!\n\ud800") == []
    assert service.asked == []


def test_arxiv_empty_pages_are_asked_for_again(fake_service):
    service = fake_service(lambda asked, n: (200, feed(total=9) if n < 3 else feed(entry("2001.00001"), total=1)))
    assert len(ArxivAPI(url=service.url, **FAST).search("x")) == 1
    service = fake_service(lambda asked, n: (200, feed(total=9)))
    with pytest.raises(errors.BackendReplyError, match="empty page"):
        ArxivAPI(url=service.url, **FAST).search("x")
    assert len(service.asked) == 3


BOMB = b'<!DOCTYPE f [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><feed>&b;</feed>'


@pytest.mark.parametrize(
    "body",
    [b"", b"<html></html>", b"not xml", b"<feed/>", feed()[:-3], BOMB, b"\xff\xfe", feed("<entry/>"),
     feed(entry("2001.00001", title=" ")), feed(entry("2001.00001", published="soon"))],
)  # fmt: skip
def test_arxiv_in_another_shape(fake_service, tmp_path, body):
    service = fake_service(lambda asked, n: (200, body))
    with pytest.raises(errors.BackendReplyError):
        ArxivAPI(url=service.url, **FAST | {"cache": f"{tmp_path}/c"}).search("x")
    assert len(service.asked) == 1 and not (tmp_path / "c").exists()  # nothing kept


def test_arxiv_expands_through_semantic_scholar(fake_service):
    def answer(asked, n):
        key = "citedPaper" if asked.path.endswith("references") else "citingPaper"
        return 200, {"data": [{key: PAPER}, {key: {**PAPER, "externalIds": None, "paperId": "h" * 40}}]}

    service = fake_service(answer)
    arxiv = ArxivAPI(url=f"{service.url}/api", s2_url=f"{service.url}/graph", **FAST)
    assert [paper.id for paper in arxiv.expand("1605.08386v2")] == ["2009.02040", "h" * 40]
    assert [a.path for a in service.asked] == [
        f"/graph/paper/ARXIV:1605.08386/{kind}" for kind in ("references", "citations")
    ]


# Semantic Scholar


@pytest.fixture(scope="module")
def s2_folder(data_dir, tmp_path_factory):
    """The recorded replies as a recording of ours."""
    yaml = pytest.importorskip("yaml")
    folder = tmp_path_factory.mktemp("s2")
    store = ReplyStore(folder)
    for path in sorted((data_dir / "papersearch" / "s2_api_fixtures").glob("*.yaml")):
        for item in yaml.load(path.read_text(), Loader=yaml.CSafeLoader)["interactions"]:
            request, response = item["request"], item["response"]
            body = response.get("content") or response["body"]["string"]
            store.put(request["method"], request["uri"], None, HTTPReply(200, body.encode()))
    return folder


def recorded_s2(folder: Path, more: str = "") -> PaperBackend:
    return open_backend(f"semanticscholar:cache={folder}&offline=1&fields=title{more}")


def test_s2_search_on_recorded_replies(s2_folder):
    s2 = recorded_s2(s2_folder)
    found = s2.search("turing", 100)
    assert len(found) == 100 and found[0].title.startswith("Using DeepSpeed and Megatron")
    assert found[0].date == found[0].abstract == ""  # only titles were asked for
    two_pages = s2.search("turing", 200)
    assert two_pages[:100] == found and len({paper.id for paper in two_pages}) == 200


def test_s2_expansion_on_recorded_replies(s2_folder):
    references = recorded_s2(s2_folder, "&page_size=50&citations=0&references=80").expand("10.2139/ssrn.2250500")
    assert len(references) == 67 - 23 and references[0].title.startswith("Group lending or individual lending?")
    cited = recorded_s2(s2_folder, "&citations=100&references=0").expand("CorpusID:14514057")
    assert len(cited) == 100 and cited[0].title.startswith("We’ve got you covered!")
    all_of_them = recorded_s2(s2_folder, "&citations=10000&references=0&page_size=100")
    with pytest.raises(errors.NotRecordedError):  # 10,000 is asked for in pages of 100; the recording ends before
        recorded_s2(s2_folder, "&citations=10000&references=0&page_size=99").expand("CorpusID:14514057")
    assert len(all_of_them.expand("CorpusID:14514057")) > 1800


def test_s2_asks_as_its_api_has_it(fake_service, monkeypatch):
    monkeypatch.setenv("SEMANTIC_SCHOLAR_API_KEY", "not-a-real-key")
    service = fake_service(lambda asked, n: (200, {"total": 0}))
    s2 = SemanticScholar(url=service.url, **FAST)
    assert s2.search("state-of-the-art  parsing", 7, "2023-10-24") == []
    asked = service.asked[0]
    assert asked.params["query"] == "state of the art parsing" and asked.params["limit"] == "7"
    assert asked.params["publicationDateOrYear"] == ":2023-10-24" and asked.headers["X-API-Key"] == "not-a-real-key"


def test_s2_odd_papers(fake_service):
    papers = [
        {"paperId": None, "title": "Not in the graph"},
        {"paperId": "a", "title": None},
        {"paperId": "b", "title": "B", "abstract": None, "year": None},
        {"paperId": "c", "title": "C", "publicationDate": "no date", "year": 1999},
        {"paperId": "d", "title": "D", "year": "sometime"},
        PAPER,
        {**PAPER, "paperId": "other", "externalIds": {"ArXiv": "2009.02040v2"}},  # the same paper
        {"paperId": "b", "title": "B again"},
    ]
    service = fake_service(lambda asked, n: (200, {"data": [{"citedPaper": p, "citingPaper": p} for p in papers]}))
    found = SemanticScholar(url=service.url, **FAST).expand("d")
    assert found == [
        Paper("b", "B"), Paper("c", "C", "", "1999"), Paper("2009.02040", "Graph attention", "", "2020-09-04")
    ]  # fmt: skip


@pytest.mark.parametrize(
    "payload",
    [{"data": None}, {"data": [None]}, {"data": [{"citedPaper": None}]},
     {"total": 0}, {"data": None, "next": None, "total": None, "citingPaperInfo": {}}],
)  # fmt: skip
def test_what_is_null_is_empty(fake_service, payload):
    service = fake_service(lambda asked, n: (200, payload))
    s2 = SemanticScholar(url=service.url, **FAST)
    assert s2.search("x") == s2.expand("a") == []


@pytest.mark.parametrize(
    "payload",
    [None, 3, [], "x", {}, {"data": 3}, {"data": [3]}, {"data": [{"title": "no id"}]}, {"data": [{"citedPaper": 3}]},
     {"data": [{"paperId": "a", "title": 3}]}, {"data": [{"paperId": "a", "title": "A", "externalIds": "x"}]},
     {"data": [], "next": "x"}, {"data": [], "next": 0}, {"data": [{"paperId": "a", "title": "A", "abstract": [1]}]}],
)  # fmt: skip
def test_s2_in_another_shape(fake_service, tmp_path, payload):
    service = fake_service(lambda asked, n: (200, payload))
    s2 = SemanticScholar(url=service.url, **FAST | {"cache": f"{tmp_path}/c"})
    with pytest.raises(errors.BackendReplyError):
        s2.search("x")
    assert not list(tmp_path.rglob("*.json"))


# any service


@pytest.fixture(params=["arxiv", "semanticscholar", "graph"])
def opened(request):
    """A function from an address and options to a backend."""
    if request.param == "graph":
        return GraphAPI
    kind = ArxivAPI if request.param == "arxiv" else SemanticScholar
    return lambda url, **options: kind(url=url, interval=0, **options)


def good(asked, n):
    if asked.path.endswith("/query"):
        return 200, feed(entry("2009.02040"))
    return 200, {"data": [PAPER]}


def test_down_slow_busy_and_well_again(opened, fake_service, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    options = {"retries": 1, "backoff": 0.01, "cache": f"{tmp_path}/kept"}
    with pytest.raises(errors.BackendDownError, match="failed 2 times"):
        opened(url, **options).search("x")
    state = {"mode": "slow"}

    def answer(asked, n):
        if state["mode"] == "slow":
            time.sleep(0.3)
        if state["mode"] == "busy":
            return 429, b"too many requests"
        if state["mode"] == "gone":
            return None
        if state["mode"] == "odd":
            return 200, b'{"error": "maintenance"}'
        if state["mode"] == "error":
            return 500, b"oops"
        return good(asked, n)

    service = fake_service(answer)
    for mode, kind in {
        "slow": errors.BackendSlowError,
        "busy": errors.BackendBusyError,
        "gone": errors.BackendDownError,
        "odd": errors.BackendReplyError,
        "error": errors.BackendReplyError,
    }.items():
        state["mode"] = mode
        with pytest.raises(kind) as caught:
            opened(service.url, **options, timeout=0.1 if mode == "slow" else 30).search("x")
        assert isinstance(caught.value, errors.BackendError)
        if mode == "slow":
            assert len(service.asked) == 2  # it was asked again
    assert not (tmp_path / "kept").exists()  # no failure is kept
    state["mode"] = "well"
    found = opened(service.url, **options).search("x")
    assert [paper.id for paper in found] == ["2009.02040"]
    state["mode"] = "error"
    assert opened(service.url, **options).search("x") == found  # kept


def test_a_kept_reply_of_another_shape_is_asked_for_again(fake_service, tmp_path):
    service = fake_service(lambda asked, n: (200, {"data": [PAPER]}))
    options = {"retries": 0, "cache": str(tmp_path)}
    GraphAPI(service.url, **options).search("x")
    (path,) = tmp_path.rglob("*.json")
    row = json.loads(path.read_text())
    path.write_text(json.dumps({**row, "body": "[3]"}))
    assert GraphAPI(service.url, **options).search("x") == GraphAPI(service.url, **options).search("x")
    assert len(service.asked) == 2
    path.write_text("{")
    with pytest.raises(errors.BackendReplyError, match=path.name):
        GraphAPI(service.url, **options).search("x")


@pytest.mark.parametrize("option", ["timeout=inf", "timeout=nan", "timeout=0", "backoff=1e300", "max_wait=-1"])
def test_waits_that_no_clock_takes_are_refused(option):
    with pytest.raises(errors.ConfigError, match=f"{option.partition('=')[0]} must be a number"):
        open_backend(f"http://localhost:1#{option}")


@pytest.mark.parametrize("address", ["http://me:secret@localhost:1", "http://localhost:1?key=secret"])
def test_addresses_with_secrets_are_refused_before_they_are_written_anywhere(address, tmp_path):
    with pytest.raises(errors.ConfigError, match="without a login, a query or a fragment") as said:
        open_backend(f"{address}#cache={tmp_path / 'recording'}")
    assert "secret" not in str(said.value) and not list(tmp_path.iterdir())


def test_retry_after_is_kept_by_all_threads(fake_service):
    service = fake_service(lambda asked, n: (429, b"", {"Retry-After": "0.4"}) if n == 1 else (200, b"{}"))
    pool = HTTPPool(service.url, retries=2, backoff=0.01)
    begin = time.monotonic()
    with ThreadPoolExecutor(3) as threads:
        threads.submit(pool.request, "GET", "/")
        time.sleep(0.15)
        for _ in range(2):
            threads.submit(pool.request, "GET", "/")
    assert sorted(asked.time - begin >= 0.35 for asked in service.asked) == [False, True, True, True]
    service = fake_service(lambda asked, n: (503, b"", {"Retry-After": "3600"}))
    with pytest.raises(errors.BackendBusyError, match="3600 seconds, longer than max_wait"):
        HTTPPool(service.url).request("GET", "/")
    assert len(service.asked) == 1


def test_requests_keep_their_pace(fake_service):
    service = fake_service(good)
    arxiv = ArxivAPI(url=service.url, cache="off", interval=0.15)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(arxiv.search, ["word 1", "word 2", "word 3", "word 4"]))
    times = sorted(asked.time for asked in service.asked)
    assert all(after - before > 0.1 for before, after in itertools.pairwise(times))


def test_an_answer_that_trickles_in_ends(fake_service):
    def answer(asked, n):
        return 200, b"", {"Content-Length": "1000000"}

    service = fake_service(answer)
    with pytest.raises(errors.BackendSlowError):
        HTTPPool(service.url, timeout=0.1, retries=0).request("GET", "/")


def test_encrypted_requests_take_the_proxy(fake_service, monkeypatch):
    service = fake_service(lambda asked, n: (403, b""))
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", service.url.replace("//", "//user:pass%20word@"))
    with pytest.raises(errors.BackendDownError, match="[Tt]unnel"):
        HTTPPool("https://export.arxiv.org", retries=0, timeout=2).request("GET", "/api/query")
    (asked,) = service.asked
    assert asked.method == "CONNECT" and asked.headers["Proxy-Authorization"] == "Basic dXNlcjpwYXNzIHdvcmQ="
    assert asked.path == "export.arxiv.org:443" or asked.path.endswith("443")
    HTTPPool(service.url, retries=0).request("GET", "/")  # not encrypted: no proxy
    assert service.asked[1].method == "GET" and service.asked[1].headers["User-Agent"].startswith("agent-envs/")


# the released shape


def graph(asked, n):
    if asked.path == "/paper/search":
        return 200, {"total": 1, "data": [PAPER]}
    if asked.path == "/paper/2009.02040/citations":
        return 200, {"data": [{"citingPaper": {**PAPER, "paperId": "x", "externalIds": {}}}]}
    if asked.path == "/paper/2009.02040/references":
        return 200, {"data": []}
    return 404, {"error": "Paper not found"}


def test_a_service_of_ones_own(fake_service):
    service = fake_service(graph)
    papers = GraphAPI(service.url, **FAST)
    assert [paper.id for paper in papers.search("x")] == ["2009.02040"]
    (asked,) = service.asked
    assert (asked.path, asked.params["query"], asked.params["limit"]) == ("/paper/search", "x", "10")
    assert [paper.id for paper in papers.expand("2009.02040")] == ["x"]
    assert [asked.params["limit"] for asked in service.asked[1:]] == ["99", "30"]
    with pytest.raises(errors.UnknownPaperError):
        papers.expand("nope")


def test_a_query_is_sent_as_written(fake_service):
    service = fake_service(lambda asked, n: graph(asked, n) if n > 1 else (200, {"data": [PAPER], "next": 1}))
    backend = open_backend(f"{service.url}")
    assert [paper.id for paper in backend.search("state-of-the-art  graphs", 2)] == ["2009.02040"]
    first, second = (asked.params for asked in service.asked)
    assert first == {"query": "state-of-the-art  graphs", "limit": "2", "fields": first["fields"]}
    assert second == {**first, "offset": "1"}


@pytest.mark.parametrize(
    "name", ["../admin", "a/../b", "", "a?b", "a#b", "a b", "a\nb", "x" * 500, "é", "\ud800", "/x", "a//b", "."]
)
def test_ids_that_lead_elsewhere_are_unknown(fake_service, name):
    service = fake_service(lambda asked, n: (200, {"data": []}))
    for backend in (GraphAPI(service.url, **FAST), SemanticScholar(url=service.url, **FAST)):
        with pytest.raises(errors.UnknownPaperError):
            backend.expand(name)
    assert service.asked == []


def test_keys_are_sent_and_never_kept(fake_service, monkeypatch, tmp_path):
    monkeypatch.setenv("PAPERS_KEY", "hush")
    service = fake_service(graph)
    GraphAPI(service.url, key_env="PAPERS_KEY", cache=str(tmp_path)).search("x")
    assert service.asked[0].headers["X-API-Key"] == "hush"
    assert all("hush" not in path.read_text() for path in tmp_path.rglob("*.json"))
    with pytest.raises(errors.ConfigError, match="NO_SUCH_KEY"):
        open_backend(f"{service.url}#key_env=NO_SUCH_KEY")


# recording and replay


def test_a_recording_replays_without_a_network(fake_service, tmp_path):
    service = fake_service(graph)
    folder = tmp_path / "recording"
    spec = f"{service.url}#retries=1&backoff=0.01&cache={folder}"
    first = open_backend(spec)

    def play(backend):
        said = [backend.search("x", 3), backend.search("y", 3), backend.search("x", 3, "2021")]
        for name in ("2009.02040", "nope"):
            try:
                said.append(backend.expand(name))
            except errors.UnknownPaperError as e:
                said.append(str(e))
        return said

    recorded = play(first)
    count = len(service.asked)
    assert play(open_backend(f"{spec}&timeout=9")) == recorded
    assert len(service.asked) == count  # what was recorded is not asked again
    service.stop()
    replay = open_backend(f"{spec}&offline=1&key_env=NO_SUCH_KEY")
    assert play(replay) == recorded == play(pickle.loads(pickle.dumps(replay)))
    assert not replay.blocking and first.blocking and copy.deepcopy(replay) is replay
    with pytest.raises(errors.NotRecordedError, match="recording has no reply to GET") as caught:
        replay.search("never asked")
    assert isinstance(caught.value, errors.BackendError)


@pytest.mark.parametrize(
    "name",
    ["http://", "http://x:y", "arxiv:timeout=soon", "arxiv:nope=1", "arxiv:page_size=0", "arxiv:timeout=0",
     "arxiv:timeout", "semanticscholar:citations=-1", "semanticscholar:offline=1&cache=off", "http://x#api=graph",
     "semanticscholar:offline=perhaps", "arxiv:timeout=1&timeout=2", "arxive", "ftp://x"],
)  # fmt: skip
def test_bad_names(name):
    with pytest.raises(errors.ConfigError):
        open_backend(name)


def test_names_open_one_each_per_process():
    assert open_backend("http://127.0.0.1:9") is open_backend("http://127.0.0.1:9")
    assert open_selector("lexical") is open_selector("lexical")
    for name in ("arxiv", "semanticscholar", "http://127.0.0.1:9"):
        backend = open_backend(name)
        assert isinstance(backend, PaperBackend) and backend.blocking
