"""What question answering costs: the encyclopaedia, a step with a search, memory, concurrent episodes over HTTP.

A step is compared in the same run with the bare search it makes, and concurrent episodes with as many threads that send
the same requests with http.client and do nothing else. Step rates are per CPU second.

    python benchmarks/qa_speed.py [--articles 100000] [--episodes 64]
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import resource
import statistics
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import gymnasium as gym

import agent_envs
from agent_envs.datasets.qa.corpus import generated_retriever
from agent_envs.datasets.qa.generated.articles import article_rows
from agent_envs.datasets.qa.generated.encyclopaedia import World, encyclopaedia

ENV = "AgentR1/HotpotQA-v0"
LATENCY = 0.05  # seconds a search takes on the server
SEARCHES = 8  # of each concurrent episode


class SlowSearch(BaseHTTPRequestHandler):
    """Answers every query with the same passage, after a while."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave together

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(LATENCY)
        document = {"id": "1", "title": "Korvath", "text": "Korvath is a town. " * 20}
        body = json.dumps({"result": [[{"document": document, "score": 1.0}]]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


class SlowServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


def resident_megabytes() -> float:
    """Most memory the process has had at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def small_world() -> list[tuple[str, str, str]]:
    generated_retriever(World("train", 200))  # what is loaded once
    times = []
    for articles in (1000, 1001, 1002):
        begin = time.process_time()
        generated_retriever(World("train", articles))
        times.append(time.process_time() - begin)
    return [("1,000 articles, written and indexed", f"{statistics.median(times):.2f} s", "below 1 s")]


def large_world(articles: int, steps: int) -> list[tuple[str, str, str]]:
    world = encyclopaedia("train", articles)
    begin = time.perf_counter()
    for _ in article_rows(world):
        pass
    written = time.perf_counter() - begin
    begin = time.perf_counter()
    retriever = generated_retriever(world)
    built = time.perf_counter() - begin
    env: Any = gym.make(ENV, articles=articles).unwrapped
    queries = [" ".join(env.tasks[index].question.split()[-6:]) for index in range(steps)]
    calls = [env.format_call("search", {"query": query}) for query in queries]
    retriever.search_many(queries, 5)
    rates = {"step": [], "search": []}  # type: dict[str, list[float]]
    for _ in range(3):
        begin = time.process_time()
        for place, call in enumerate(calls):
            if place % SEARCHES == 0:
                env.reset(options={"index": place})
            env.step(call)
        rates["step"].append(steps / (time.process_time() - begin))
        begin = time.process_time()
        for query in queries:
            retriever.search(query, 5)
        rates["search"].append(steps / (time.process_time() - begin))
    step, search = (statistics.median(rates[name]) for name in ("step", "search"))
    return [
        (f"{articles:,} articles, written alone", f"{written:.1f} s", f"{articles / written:,.0f} a second"),
        (f"{articles:,} articles, streamed to an index on disk", f"{built:.1f} s", ""),
        (f"steps with one search, {articles:,} articles", f"{step:,.0f}/s", "at least 1,500/s per core at 100,000"),
        (
            f"bare searches, {articles:,} articles",
            f"{search:,.0f}/s",
            f"a step takes {search / step:.2f} times as long",
        ),
        ("most memory resident so far", f"{resident_megabytes():.0f} MB", ""),
    ]


def memory(articles: int, count: int = 64) -> list[tuple[str, str, str]]:
    import tracemalloc

    gym.make(ENV, articles=articles).reset(seed=0)
    tracemalloc.start()
    envs: list[Any] = [gym.make(ENV, articles=articles) for _ in range(count)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
        env.step(env.unwrapped.expert_action())
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    shared = len({id(env.unwrapped.registry["search"].retriever) for env in envs})
    return [(f"memory per env, {count} envs, {shared} index", f"{used / count / 1e3:.0f} kB", "below 1 MB")]


def concurrent(episodes: int) -> list[tuple[str, str, str]]:
    server = SlowServer(("127.0.0.1", 0), SlowSearch)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    call = gym.make(ENV).unwrapped.format_call("search", {"query": "town"})  # type: ignore[attr-defined]
    policy = agent_envs.policies.ScriptedPolicy([call] * SEARCHES + ["<answer>x</answer>"])
    body = json.dumps({"queries": ["town"], "topk": 5, "return_scores": True}).encode()

    def bare() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
        for _ in range(SEARCHES):
            connection.request("POST", "/retrieve", body, {"Content-Type": "application/json"})
            connection.getresponse().read()
        connection.close()

    times = {"ours": [], "bare": []}  # type: dict[str, list[float]]
    for _ in range(5):
        begin = time.perf_counter()
        threads = [threading.Thread(target=bare) for _ in range(episodes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        times["bare"].append(time.perf_counter() - begin)
        begin = time.perf_counter()
        done = agent_envs.run_episodes(
            ENV, policy, episodes, env_kwargs={"retriever": url}, concurrency=episodes, progress=False
        )
        times["ours"].append(time.perf_counter() - begin)
        assert all(len(episode.steps) == SEARCHES + 1 for episode in done)
    server.shutdown()
    ours, peer = (statistics.median(times[name]) for name in ("ours", "bare"))
    return [
        (f"{episodes} episodes of {SEARCHES} searches of 50 ms", f"{ours:.2f} s", "at most 1.2 times the bare loop"),
        (f"{episodes} bare http.client threads", f"{peer:.2f} s", f"ours takes {ours / peer:.2f} times as long"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--articles", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--episodes", type=int, default=64)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["AGENT_ENVS_DATA"] = folder
        rows = concurrent(arguments.episodes) + small_world()
        rows += large_world(arguments.articles, arguments.steps) + memory(arguments.articles)
    width = max(len(row[0]) for row in rows)
    for name, value, note in rows:
        print(f"{name:<{width}}  {value:>12}  {note}")


if __name__ == "__main__":
    main()
