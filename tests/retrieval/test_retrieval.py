"""BM25Retriever.

1. On real passages the ids, their order and the scores are those that pyserini returned.
2. Scores are those of the formula; equal scores are ordered by id as a string, whatever the order of the documents.
3. Both engines, one segment or many, and a memory-mapped or a passing index give the same.
4. Every string is a query; k may exceed the corpus.
5. An index of another version is not opened (nor a broken one: tests/attacks); a killed build leaves none.
6. A stopped build of a file goes on where it was.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import gzip
import importlib.util
import itertools
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest

from agent_envs.cli.main import main
from agent_envs.errors import BackendError, ConfigError, DataError, MissingExtraError
from agent_envs.retrieval import (
    BM25Retriever,
    LuceneRetriever,
    Retriever,
    StaticRetriever,
    document_title,
    open_retriever,
    read_corpus,
)
from agent_envs.retrieval.analysis.analyzer import analyze
from agent_envs.retrieval.bm25 import retriever as bm25_module
from agent_envs.retrieval.bm25.build import IndexBuilder, inverse_norms, norm_lengths
from agent_envs.retrieval.corpus import read_objects
from agent_envs.retrieval.okapi import Okapi
from agent_envs.retrieval.storage import new_folder, write_manifest
from tests.helpers import write_rows

ENGINES = ["numpy", *["numba"] * (importlib.util.find_spec("numba") is not None)]

ROWS = [
    {"id": "10", "title": "Paris", "text": "Paris is the capital of France."},
    {"id": "9", "title": "Lyon", "text": "Lyon is a city in France, not the capital."},
    {"id": "2", "contents": "Berlin is the capital of Germany; the river Spree runs through Berlin."},
    {"id": "x", "text": ""},
]


def rows(count, seed=0, words=400):
    """Documents over a small vocabulary, so that scores are often equal."""
    rng = random.Random(seed)
    vocabulary = [f"w{i}x" for i in range(words)]
    weights = list(itertools.accumulate(1 / (i + 3) for i in range(words)))
    numbers = list(range(count))
    rng.shuffle(numbers)
    return [
        {"id": str(n), "text": " ".join(rng.choices(vocabulary, cum_weights=weights, k=rng.randint(1, 40)))}
        for n in numbers
    ]


def queries(documents, count, seed=1):
    rng = random.Random(seed)
    for _ in range(count):
        words = rng.choice(documents)["text"].split()
        yield " ".join(rng.choices(words, k=rng.randint(1, 12)))


def slow_search(documents, query, k, k1=0.9, b=0.4):
    """The formula of the module's docstring, one document at a time."""
    f = np.float32
    terms = [analyze(d["text"]) for d in documents]
    total = sum(1 for t in terms if t)
    average = f(sum(map(len, terms)) / total)
    inverse = inverse_norms(k1, b, float(average))
    norms = [max(i for i, length in enumerate(norm_lengths()) if length <= len(t)) for t in terms]
    scored = []
    for document, own, norm in zip(documents, terms, norms, strict=True):
        score, met = 0.0, False
        for term, boost in Counter(analyze(query)).items():
            found = sum(term in t for t in terms)
            if term in own:
                met = True
                idf = f(np.log(1 + (total - found + 0.5) / (found + 0.5)))
                w = f(boost) * idf
                score += float(w - w / (f(1) + f(own.count(term)) * inverse[norm]))
        if met:
            scored.append((document["id"], float(f(score))))
    return sorted(scored, key=lambda x: (-x[1], x[0]))[:k]


@pytest.mark.parametrize("engine", ENGINES)
def test_real_passages_are_found_as_by_lucene(data_dir, engine):
    index = BM25Retriever.build(read_corpus(data_dir / "hotpotqa" / "passages_open.jsonl"), engine=engine)
    golden = [
        json.loads(x) for x in (data_dir / "hotpotqa" / "lucene_top10_open.jsonl").read_text("utf-8").splitlines()
    ]
    assert len(golden) == 100
    for row, found in zip(golden, index.search_many([g["query"] for g in golden], 10), strict=True):
        assert [i for i, _ in found] == row["docids"]
        assert [s for _, s in found] == pytest.approx(row["scores"], abs=1e-4)


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.2, 0.75), (0.0, 0.0), (2.0, 1.0)])
def test_scores_are_the_formulas(k1, b):
    documents = rows(60)
    asked = [*queries(documents, 20), "w0x w0x w0x w1x w1x w2x"]
    documents += [{"id": i, "text": "w0x w1x"} for i in ("B", "a", "é", "z")]  # equal scores, and ids of other letters
    documents.append({"id": "none", "text": "the"})  # without words it counts for nothing, as in Lucene
    index = BM25Retriever.build(documents, k1=k1, b=b)
    for query in asked:
        expected = slow_search(documents, query, 64, k1, b)
        assert (index.search(query, 64), index.search(query, 5)) == (expected, expected[:5])


def test_rows_in_all_shapes_and_documents_by_id():
    index = BM25Retriever.build(ROWS)
    assert [i for i, _ in index.search("capital of France", 2)] == ["10", "9"]
    assert index.search("berlin")[0][0] == "2"
    assert [index.document(row["id"]) for row in ROWS] == ROWS
    assert isinstance(index, Retriever) and len(index) == 4
    assert document_title(ROWS[0]) == ("Paris", "Paris is the capital of France.")
    with pytest.raises(ConfigError, match="'nope'"):
        index.document("nope")


def test_engines_segments_and_windows_agree(tmp_path):
    documents = rows(12_000, words=3000)  # two windows of the compiled search
    asked = [*queries(documents, 40), "w1x w1x w1x w2x", "w0x w1x w2x w3x"]
    with new_folder(tmp_path / "small") as folder:
        builder = IndexBuilder(folder, 0.9, 0.4, segment_characters=100_000, processes=2)
        builder.add_all((row, None, "") for row in documents)
        builder.finish()
        builder.close()
    whole = BM25Retriever.build(documents, tmp_path / "whole", engine="numpy")
    for name in ("postings.docs", "postings.impacts", "postings.frequencies", "terms.bin", "ids.rank", "documents.bin"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "small" / name).read_bytes(), name
    everything = whole.search_many(asked, 13_000)  # with no document given up
    for k in (1, 10, 300):
        expected = [found[:k] for found in everything]
        for engine in ENGINES:
            assert BM25Retriever.open(tmp_path / "small", engine=engine).search_many(asked, k) == expected


def test_there_may_be_more_segments_than_files_that_can_be_open(tmp_path):
    resource = pytest.importorskip("resource")
    documents = rows(600, words=300)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        with (
            new_folder(tmp_path / "many") as folder,
            contextlib.closing(IndexBuilder(folder, 0.9, 0.4, segment_characters=1000)) as builder,
        ):
            builder.add_all((row, None, "") for row in documents)
            assert builder._segments > 30
            used = len(os.listdir("/dev/fd"))
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, limits[1]))
            builder.finish()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    BM25Retriever.build(documents, tmp_path / "whole", engine="numpy")
    for name in ("postings.docs", "postings.impacts", "postings.frequencies", "terms.bin"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "many" / name).read_bytes(), name


def test_many_threads_and_a_pickled_copy_agree(tmp_path):
    documents = rows(3000)
    index = BM25Retriever.build(documents, tmp_path / "index")
    asked = list(queries(documents, 200))
    expected = index.search_many(asked, 5)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda q: index.search(q, 5), asked)) == expected
    assert pickle.loads(pickle.dumps(index)).search_many(asked, 5) == expected
    with pytest.raises(TypeError, match="without a path"):
        pickle.dumps(BM25Retriever.build(ROWS))


HOSTILE = [
    "",
    " \n\t",
    'AND "',
    "capital AND NOT (France OR",
    "+capital -france field:value~2 ^ * ? [a TO b] \\",
    "\x00\x01\xff\x00",
    "\ud800 \udfff",
    "".join(map(chr, range(0x20, 0x3000))),
    "_" * 50_000 + "\u0301_" * 20_000,
    "a" * 100_000,
    "é'" * 30_000,
    "capital " * 13_000,
]


@pytest.mark.parametrize("engine", ENGINES)
def test_every_string_is_a_query(engine):
    index = BM25Retriever.build(ROWS, engine=engine)
    for query in HOSTILE:
        begin = time.process_time()
        found = index.search(query, 10)
        assert time.process_time() - begin < 5
        assert len(found) <= len(ROWS)
    assert index.search("") == index.search("the of") == index.search("zzz") == []
    assert index.search('AND "capital') == index.search("capital") and len(index.search("capital")) == 3


@pytest.mark.parametrize("engine", ENGINES)
def test_k(engine):
    index = BM25Retriever.build(ROWS, engine=engine)
    assert len(index.search("capital", 10**9)) == 3
    for k in (0, -1, 1.5, True, None, "3"):
        with pytest.raises(ConfigError, match="k must be an integer"):
            index.search("capital", k)
    with pytest.raises(ConfigError, match="string"):
        index.search(b"capital")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([], "no documents"),
        ([{"id": "a", "text": "x"}, {"id": "b", "text": "y"}, {"id": "a", "text": "z"}], "'a' occurs twice"),
        ([{"id": "a" * 99, "text": "x"}] * 2, "occurs twice"),
        ([{"text": "x"}], "document 0: 'id'"),
        ([{"id": "", "text": "x"}], "document 0: 'id'"),
        ([{"id": True, "text": "x"}], "'id' must be a non-empty string"),
        ([{"id": "a"}], "string 'text' or 'contents'"),
        ([{"id": "a", "text": 3}], "string 'text' or 'contents'"),
        ([{"id": "a", "title": 3, "text": "x"}], "'title'"),
        ([{"id": "a", "text": "x", "more": object()}], "JSON"),
        (["a"], "expected an object"),
    ],
)
def test_bad_rows(tmp_path, bad, message):
    with pytest.raises(DataError, match=message):
        BM25Retriever.build(bad, tmp_path / "index")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("k1", "b"), [(-1, 0.4), (float("nan"), 0.4), (0.9, 1.5), (float("inf"), 0.4), (0.9, "x"), (None, 0.4)]
)
def test_bad_parameters(k1, b):
    with pytest.raises(ConfigError, match="(k1|b) must be a number"):
        BM25Retriever.build(ROWS, k1=k1, b=b)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no list of open files on this system")
def test_a_small_index_keeps_no_file_open():
    """Processes have 1,024 files by default; an index is kept for as long as the process runs."""
    before = len(os.listdir("/proc/self/fd"))
    kept = [BM25Retriever.build([{"id": str(i), "text": f"word{i}"}]) for i in range(5)]
    assert [index.search(f"word{i}", 1)[0][0] for i, index in enumerate(kept)] == list("01234")
    assert len(os.listdir("/proc/self/fd")) == before


def test_unknown_engine(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="Did you mean 'numba'"):
        BM25Retriever.build(ROWS, engine="numbe")
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "agent_envs.retrieval.bm25.numba_search", raising=False)
    monkeypatch.delattr("agent_envs.retrieval.bm25.numba_search", raising=False)
    with pytest.raises(MissingExtraError, match="search"):
        BM25Retriever.build(ROWS, engine="numba")


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (None, "cannot be read as an index"),
        ("[]", "not an object"),
        ("{", "cannot be read"),
        ({"version": 2}, "version 2"),
        ({"analyzer": "other"}, "analyzer 'other'"),
    ],
)
def test_what_is_no_index_or_another_ones_is_not_opened(tmp_path, manifest, message):
    with pytest.raises(DataError, match="agentr1 index"):
        BM25Retriever.open(tmp_path / "index")
    BM25Retriever.build(ROWS, tmp_path / "index")
    path = tmp_path / "index" / "index.json"
    if isinstance(manifest, dict):
        write_manifest(tmp_path / "index", {**json.loads(path.read_text()), **manifest})
    elif manifest is None:
        path.unlink()
    else:
        path.write_text(manifest)
    with pytest.raises(DataError, match=message):
        BM25Retriever.open(tmp_path / "index")


def test_nothing_is_overwritten_unasked(tmp_path):
    BM25Retriever.build(ROWS, tmp_path / "index")
    with pytest.raises(ConfigError, match="already exists"):
        BM25Retriever.build(ROWS[:1], tmp_path / "index")
    (tmp_path / "mine").mkdir()
    with pytest.raises(ConfigError, match="not an index"):
        BM25Retriever.build(ROWS[:1], tmp_path / "mine", overwrite=True)
    assert len(BM25Retriever.open(tmp_path / "index")) == 4
    assert len(BM25Retriever.build(ROWS[:2], tmp_path / "index", overwrite=True)) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["index", "mine"]


KILLED = """
import sys, time
from agent_envs.retrieval import BM25Retriever
from agent_envs.retrieval.bm25 import build as bm25_build
bm25_build.IndexBuilder.__init__.__kwdefaults__["segment_characters"] = 10_000
flush = bm25_build.IndexBuilder._end_segment
def slow(self):
    flush(self)
    print(self.documents, flush=True)
    if self.documents > 500:
        time.sleep(60)
bm25_build.IndexBuilder._end_segment = slow
BM25Retriever.build(sys.argv[1], sys.argv[2])
"""


def test_a_killed_build_leaves_no_index_and_goes_on(tmp_path, monkeypatch, root):
    documents = rows(1500)
    source, out = write_rows(tmp_path / "rows.jsonl", documents), tmp_path / "index"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, source, out],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    done = 0
    while done <= 500:
        done = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not out.exists()
    with pytest.raises(DataError):
        BM25Retriever.open(out)
    with pytest.raises(DataError):
        BM25Retriever.open(tmp_path / "index.partial")

    monkeypatch.setitem(IndexBuilder.__init__.__kwdefaults__, "segment_characters", 10_000)
    added = []
    add_all = IndexBuilder.add_all
    monkeypatch.setattr(
        IndexBuilder, "add_all", lambda self, rows, **kw: (added.append(self.documents), add_all(self, rows, **kw))
    )
    index = BM25Retriever.build(source, out)
    assert added == [done]
    expected = BM25Retriever.build(documents)
    for query in queries(documents, 30):
        assert index.search(query) == expected.search(query)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("index")] == ["index"]


def test_a_helper_process_that_dies_is_a_backend_error(tmp_path, monkeypatch):
    write_rows(tmp_path / "rows.jsonl", rows(300))
    monkeypatch.setattr(bm25_module, "_SMALL_CORPUS", 0)
    with monkeypatch.context() as m:
        m.setattr(sys, "executable", shutil.which("false"))
        with pytest.raises(BackendError, match="ended"):
            BM25Retriever.build(tmp_path / "rows.jsonl", tmp_path / "index", processes=1)
    assert not (tmp_path / "index").exists()
    index = BM25Retriever.build(tmp_path / "rows.jsonl", tmp_path / "index", processes=1)
    assert len(index) == 300 and sorted(p.name for p in tmp_path.iterdir()) == ["index", "rows.jsonl"]


def test_a_stopped_build_starts_anew_when_the_file_has_changed(tmp_path, monkeypatch):
    monkeypatch.setitem(IndexBuilder.__init__.__kwdefaults__, "segment_characters", 400)
    write_rows(tmp_path / "rows.jsonl", [*rows(50), {"id": "bad"}])
    with pytest.raises(DataError, match="line 51"):
        BM25Retriever.build(tmp_path / "rows.jsonl", tmp_path / "index")
    assert (tmp_path / "index.partial" / "state.json").exists()
    write_rows(tmp_path / "rows.jsonl", [{"id": "only", "text": "one"}])
    index = BM25Retriever.build(tmp_path / "rows.jsonl", tmp_path / "index")
    assert len(index) == 1 and index.search("one")[0][0] == "only"


def test_corpora_of_files_and_folders(tmp_path):
    with pytest.raises(DataError, match="no corpus"):
        list(read_corpus(tmp_path / "missing.jsonl"))
    with pytest.raises(DataError, match="no file that ends in"):
        list(read_corpus(tmp_path))
    write_rows(tmp_path / "b.jsonl", ROWS[1:])
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write(json.dumps(ROWS[0]) + "\n\n")
    assert list(read_corpus(tmp_path)) == ROWS
    assert [row for row, _, _ in read_objects(tmp_path, skip=2)] == ROWS[2:]
    (tmp_path / "c.jsonl").write_text("{}\n")
    with pytest.raises(DataError, match=r"c\.jsonl, line 1: 'id'"):
        list(read_corpus(tmp_path))
    (tmp_path / "c.jsonl").write_text('{"id": "1"')
    with pytest.raises(DataError, match=r"c\.jsonl, line 1: not JSON"):
        list(read_corpus(tmp_path))
    (tmp_path / "c.jsonl").unlink()
    (tmp_path / "a.jsonl.gz").write_bytes(b"\x1f\x8b broken")
    with pytest.raises(DataError, match="cannot be read"):
        list(read_corpus(tmp_path))


def test_open_retriever_is_shared(tmp_path):
    write_rows(tmp_path / "rows.jsonl", ROWS)
    assert open_retriever(tmp_path / "rows.jsonl") is open_retriever(str(tmp_path / "rows.jsonl"))
    BM25Retriever.build(ROWS, tmp_path / "index")
    index = open_retriever(tmp_path / "index")
    assert index is open_retriever(tmp_path / "index") and index.search("Paris")[0][0] == "10"
    with pytest.raises(DataError, match="no corpus and no index"):
        open_retriever(tmp_path / "nope")
    with pytest.raises(ConfigError, match="ftp"):
        open_retriever("ftp://somewhere")
    (tmp_path / "lucene").mkdir()
    with pytest.raises(DataError, match="no Lucene index"):
        LuceneRetriever(tmp_path / "lucene")


def test_command_line(tmp_path, capsys, monkeypatch):
    write_rows(tmp_path / "rows.jsonl", ROWS)
    arguments = ["index", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "index"), "--quiet"]
    assert main(arguments) == 0
    assert "4 documents" in capsys.readouterr().out
    assert main(arguments) == 2
    assert "already exists; choose another folder, or replace it with --force" in capsys.readouterr().err
    assert main([*arguments, "--force", "--k1", "1.2", "--b", "0.75"]) == 0
    assert BM25Retriever.open(tmp_path / "index").k1 == 1.2
    monkeypatch.chdir(tmp_path / "index")
    assert main([*arguments[:3], ".", "--force", "--quiet"]) == 0
    assert BM25Retriever.open(tmp_path / "index").k1 == 0.9
    assert main(["index", str(tmp_path / "missing"), "--out", str(tmp_path / "other")]) == 2
    assert main(["serve-search", str(tmp_path / "missing")]) == 2


def test_a_forced_build_leaves_the_work_of_another_alone(tmp_path, capsys):
    write_rows(tmp_path / "rows.jsonl", ROWS)
    arguments = ["index", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "index"), "--quiet", "--force"]
    with new_folder(tmp_path / "index") as folder:
        (folder / "begun").write_text("x")
        assert main(arguments) == 1
        assert "another process is building" in capsys.readouterr().err
        assert (folder / "begun").exists()
    assert main(arguments) == 2 and "is not an index" in capsys.readouterr().err
    (tmp_path / "index" / "begun").unlink()
    (tmp_path / "index").rename(tmp_path / "index.partial")
    (tmp_path / "index.partial" / "left").write_text("from a build that was killed")
    assert main(arguments) == 0
    assert not (tmp_path / "index.partial").exists() and not (tmp_path / "index" / "left").exists()


@pytest.mark.parametrize(
    ("query", "scores"),
    [  # what rank_bm25 0.2.2 returned
        ("red fox", [0.51358834987696, 0.17127794212730485, 0.44152189456392854, 0.0, 0.17127794212730485]),
        ("Fox fox 7!", [0.5851691071673268, 0.0, 0.5851691071673268, 0.0, 1.0986122886681098]),
        ("blue red red", [0.44200759258659317, 0.3425558842546097, 0.2978746819605302, 1.5694461266687283,
                          0.3425558842546097]),
        ("zebra", [0.0] * 5),
    ],
)  # fmt: skip
def test_okapi_scores_as_rank_bm25(query, scores):
    texts = ["Red fox, red den", "A red owl", "The red fox-owl", "blue", "Red 7 foxes"]
    assert Okapi(texts).scores(query).tolist() == scores


def test_static():
    retriever = StaticRetriever({"a": ["x", ("y", 0.5)]}, [{"id": "x", "text": "t"}], default=["z"])
    assert retriever.search("a") == [("x", 2.0), ("y", 0.5)]
    assert retriever.search_many(["a", "b"], 1) == [[("x", 2.0)], [("z", 1.0)]]
    assert isinstance(retriever, Retriever)
    with pytest.raises(ConfigError):
        retriever.document("y")
