"""Search over generated documents: ours against Lucene (pyserini) in the same run, results compared one by one.

Documents have 80 words drawn from a vocabulary as large as Wikipedia's at that length, whose frequencies fall as in
English (Zipf and Mandelbrot), the most frequent ones being Lucene's stop words. Queries are 12 words of one document.
Every measurement is a process of its own: the time to build an index from a file, and then, in a fresh process, queries
one at a time. Memory is what that process holds at the end, the pages of the index it has touched included. The peer is
left out where pyserini is not installed; `make lucene` makes a venv that has it.

The second table is 64 threads that search over HTTP, where each search takes 50 ms, against a bare http.client loop.

    python benchmarks/retrieval.py [--documents 100000] [--queries 2000] [--skip-http]
"""

from __future__ import annotations

import argparse
import http.client
import importlib.util
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from agent_envs.retrieval import BM25Retriever, HTTPRetriever, StaticRetriever
from agent_envs.retrieval.analysis.analyzer import STOP_WORDS

WORDS_PER_DOCUMENT = 80
WORDS_PER_QUERY = 12
SEARCH_SECONDS = 0.050
COLUMNS = (
    "", "build s (CPU s)", "disk MB", "open s", "first query s", "queries/s (per CPU s)", "of Lucene's", "memory MB",
    "same order as Lucene, score difference",
)  # fmt: skip


def vocabulary(count: int) -> np.ndarray:
    """As many different words as so many documents have (Heaps), of two to four syllables; stop words come first."""
    syllables = [c + v for c in "bcdfghklmnprstvz" for v in "aeiou"]
    n = len(syllables)
    number = np.arange(int(280_000 * (count / 100_000) ** 0.6))
    parts = np.array(syllables)
    words = np.char.add(parts[number % n], parts[number // n % n])
    words = np.char.add(words, np.where(number >= n**2, parts[number // n**2 % n], ""))
    words = np.char.add(words, np.where(number >= n**3, parts[number // n**3 % n], ""))
    words[: len(STOP_WORDS)] = sorted(STOP_WORDS)
    return words


def documents(count: int, seed: int = 0) -> Iterator[list[str]]:
    """The words of each document."""
    words = vocabulary(count)
    weights = (np.arange(len(words)) + 2.7) ** -1.05
    cumulated = np.cumsum(weights) / weights.sum()
    rng = np.random.default_rng(seed)
    for first in range(0, count, 10_000):
        drawn = np.searchsorted(cumulated, rng.random((min(10_000, count - first), WORDS_PER_DOCUMENT)))
        yield from words[np.minimum(drawn, len(words) - 1)].tolist()


def write_corpus(folder: Path, count: int, queries: int) -> None:
    """A file of documents, and queries from some of them."""
    rng = np.random.default_rng(1)
    asked = set(rng.choice(count, min(queries, count), replace=False).tolist())
    texts = []
    (folder / "rows").mkdir()
    with (folder / "rows" / "rows.jsonl").open("w", encoding="utf-8") as file:
        for number, words in enumerate(documents(count)):
            file.write(json.dumps({"id": str(number), "contents": " ".join(words)}) + "\n")
            if number in asked:
                texts.append(" ".join(rng.choice(words, WORDS_PER_QUERY, replace=False)))
    (folder / "queries.json").write_text(json.dumps(texts), encoding="utf-8")


def _memory() -> float:
    """Resident memory of this process in MB."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))


def _cpu_seconds() -> float:
    """Processor time of this process and of those it has waited for."""
    return sum(os.times()[:4])


def _measure(search: Callable[[str], list[tuple[str, float]]], folder: Path, name: str) -> dict[str, Any]:
    queries = json.loads((folder / "queries.json").read_text(encoding="utf-8"))
    begin = time.perf_counter()
    search(queries[0])
    first = time.perf_counter() - begin
    for query in queries[: len(queries) // 4]:
        search(query)
    begin, cpu = time.perf_counter(), _cpu_seconds()
    results = [search(query) for query in queries]
    seconds, cpu = time.perf_counter() - begin, _cpu_seconds() - cpu
    memory = _memory()
    (folder / f"{name}.json").write_text(json.dumps(results), encoding="utf-8")
    return {"first_s": first, "rate": len(queries) / seconds, "cpu_rate": len(queries) / cpu, "memory_mb": memory}


def build(folder: Path, name: str) -> dict[str, Any]:
    """Build an index."""
    out = folder / f"index-{name}"
    if name == "lucene":
        from agent_envs.retrieval import lucene

        lucene.load_pyserini("pyserini.index.lucene")
        begin, cpu = time.perf_counter(), _cpu_seconds()
        lucene.build_index(folder / "rows", out, threads=2)
    else:
        begin, cpu = time.perf_counter(), _cpu_seconds()
        BM25Retriever.build(folder / "rows" / "rows.jsonl", out, engine="numpy", processes=2)
    seconds, cpu = time.perf_counter() - begin, _cpu_seconds() - cpu
    size = sum(p.stat().st_size for p in out.rglob("*") if p.is_file())
    return {"build_s": seconds, "build_cpu_s": cpu, "disk_mb": size / 1e6, "build_memory_mb": _memory()}


def search(folder: Path, name: str) -> dict[str, Any]:
    """Search an index."""
    begin = time.perf_counter()
    if name == "lucene":
        from agent_envs.retrieval import lucene

        searcher = lucene.load_pyserini("pyserini.search.lucene").LuceneSearcher(str(folder / "index-lucene"))
        searcher.set_bm25(0.9, 0.4)
        opened = time.perf_counter() - begin

        def ask(query: str) -> list[tuple[str, float]]:
            return [(hit.docid, hit.score) for hit in searcher.search(query, k=10)]

        return {"open_s": opened, **_measure(ask, folder, name)}
    retriever = BM25Retriever.open(folder / "index-bm25", engine=name)
    opened = time.perf_counter() - begin
    return {"open_s": opened, **_measure(retriever.search, folder, name)}


def _in_process(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _agreement(folder: Path, name: str) -> str:
    """Share of queries with the same ids in the same order as Lucene's, and the largest difference of a score."""
    ours, theirs = (json.loads((folder / f"{n}.json").read_text(encoding="utf-8")) for n in (name, "lucene"))
    same = sum([i for i, _ in a] == [i for i, _ in b] for a, b in zip(ours, theirs, strict=True))
    difference = max(abs(x[1] - y[1]) for a, b in zip(ours, theirs, strict=True) for x, y in zip(a, b, strict=False))
    return f"{same}/{len(ours)}, {difference:.1e}"


def compare(count: int, queries: int) -> None:
    """The first table."""
    has_peer = importlib.util.find_spec("pyserini") is not None
    engines = ["numpy"] + ["numba"] * (importlib.util.find_spec("numba") is not None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder, count, queries)
        built = {"bm25": _in_process("--build", "bm25", "--folder", name)}
        rows = {}
        if has_peer:
            built["lucene"] = _in_process("--build", "lucene", "--folder", name)
            rows["lucene"] = _in_process("--search", "lucene", "--folder", name)
        for engine in engines:
            rows[engine] = _in_process("--search", engine, "--folder", name)
        print(f"\n{count} documents of {WORDS_PER_DOCUMENT} words, {queries} queries of {WORDS_PER_QUERY}, top 10")
        print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
        for engine, row in rows.items():
            made = built["lucene" if engine == "lucene" else "bm25"]
            first = f"{row['open_s']:.2f} | {row['first_s']:.2f}"
            ratio = f"{row['rate'] / rows['lucene']['rate']:.2f}" if has_peer else "-"
            agreement = _agreement(folder, engine) if has_peer else "-"
            title = "Lucene (pyserini)" if engine == "lucene" else f"BM25Retriever, {engine}"
            print(
                f"| {title} | {made['build_s']:.1f} ({made['build_cpu_s']:.1f}) | {made['disk_mb']:.0f} | {first} "
                f"| {row['rate']:.0f} ({row['cpu_rate']:.0f}) | {ratio} | {row['memory_mb']:.0f} | {agreement} |"
            )


class _SlowRetriever(StaticRetriever):
    def search_many(self, queries: Any, k: int = 10) -> Any:
        time.sleep(SEARCH_SECONDS)
        return super().search_many(queries, k)


def _serve(pipe: Any) -> None:
    from agent_envs.serving import SearchServer

    rows = [{"id": str(i), "text": "Some text. " * 50} for i in range(3)]
    with SearchServer(_SlowRetriever({}, rows, default=["0", "1", "2"]), port=0) as server:
        pipe.send(server.url)
        pipe.recv()  # for ever


def _threads(count: int, job: Callable[[], None]) -> float:
    """Seconds until so many threads have done the job."""
    threads = [threading.Thread(target=job) for _ in range(count)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begin


def compare_http(threads: int = 64, searches: int = 20, repeats: int = 3) -> None:
    """The second table."""
    context = multiprocessing.get_context("spawn")
    ours_end, theirs_end = context.Pipe()
    process = context.Process(target=_serve, args=(theirs_end,), daemon=True)
    process.start()
    url = ours_end.recv()
    parts = urlsplit(url)
    body = json.dumps({"queries": ["some words"], "topk": 3, "return_scores": True})

    def bare() -> None:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
        for _ in range(searches):
            connection.request("POST", "/retrieve", body, {"Content-Type": "application/json"})
            json.loads(connection.getresponse().read())
        connection.close()

    retriever = HTTPRetriever(url)

    def ours() -> None:
        for _ in range(searches):
            retriever.search("some words", 3)

    pairs = [(_threads(threads, bare), _threads(threads, ours)) for _ in range(repeats)]
    process.kill()
    process.join()
    print(f"\n{threads} threads, {searches} searches of {SEARCH_SECONDS * 1000:.0f} ms each over HTTP")
    print("| http.client s | HTTPRetriever s | ratio |")
    print("|---|---|---|")
    for them, us in pairs:
        print(f"| {them:.2f} | {us:.2f} | {us / them:.3f} |")


def main() -> None:
    """Parse the command line and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--skip-http", action="store_true")
    parser.add_argument("--build", help=argparse.SUPPRESS)
    parser.add_argument("--search", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.build:
        print(json.dumps(build(arguments.folder, arguments.build)))
    elif arguments.search:
        print(json.dumps(search(arguments.folder, arguments.search)))
    else:
        compare(arguments.documents, arguments.queries)
        if not arguments.skip_http:
            compare_http()


if __name__ == "__main__":
    main()
