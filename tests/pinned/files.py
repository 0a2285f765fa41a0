"""Files that are written, and what commands print."""

import base64
import dataclasses
import io
import json
import re
import signal
import subprocess
import sys
import threading
import urllib.request
import zlib
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import agent_envs
from agent_envs import wrappers
from agent_envs.policies import ExpertPolicy, RandomPolicy, ScriptedPolicy
from pinned.pins import pin, ran, same_package, written
from pinned.play import CALL, HOUSE, ODD, PAPERS, POLICIES, QA, SHOP, TOOLS, drawn, plain_episode, played
from pinned.wrapped import OddAndExpert


def episode_files() -> list[Any]:
    """What `write_episodes` and `RecordEpisodes` write, cut episodes and those that an error ended among them."""
    episodes = agent_envs.run_episodes(QA, OddAndExpert(), 3, concurrency=1, on_error="record", progress=False)
    named = [dataclasses.replace(episode, episode_id=str(number)) for number, episode in enumerate(episodes)]
    agent_envs.write_episodes("episodes.jsonl", named)
    env = wrappers.RecordEpisodes(gym.make(TOOLS, split="test"), path="{env}.jsonl")
    for action in ("#### 1", ODD[4], CALL % ('"calculator"', '{"expression": "1+1"}')):
        env.reset(seed=1)
        env.step(action)
    env.close()
    for policy in (ExpertPolicy(), ScriptedPolicy(["inventory"]), RandomPolicy(seed=1)):
        played(HOUSE, policy, 2, specs=["ChatMessages", "RecordEpisodes(path='recorded/')", "FormatReward"])
    again = [plain_episode(episode.to_dict()) for episode in agent_envs.read_episodes("episodes.jsonl")]
    rows = written("AgentR1-GSM8KTool-v0.jsonl", "episodes.jsonl", "recorded")
    traceback = re.compile(r'"error": "(?:[^"\\]|\\.)*"')
    return again + [[path, traceback.sub("", line)] for path, line in rows]


def generated(task: str, env_id: str, *options: str, **kwargs: Any) -> list[Any]:
    """The files of generated tasks, and what is played from them."""
    rows = [ran("generate", task, "--out", "files", "--quiet", *options), *written("files")]
    rows += drawn(env_id, each=5, seeds=3, data="files", **kwargs)
    for policy in ("expert", "random"):
        rows += played(env_id, POLICIES[policy], 3, data="files", **kwargs)
    return rows


GENERATED: dict[str, tuple[str, str, list[str], dict[str, Any]]] = {
    "alfworld": ("alfworld", HOUSE, ["--n", "12"], {"split": "train"}),
    "alfworld-options": (
        "alfworld", HOUSE,
        ["--n", "5", "--split", "valid_unseen", "--size", "1-5",
         "--families", "pick_heat_then_place_in_recep,look_at_obj_in_light"],
        {"split": "valid_unseen"},
    ),
}  # fmt: skip


def indexed(*options: str) -> list[Any]:
    """The folder of an index over documents of every form, and what is found in it."""
    env = gym.make(QA, split="train")
    texts = [env.reset(options={"index": index})[0] for index in range(60)]
    forms = [
        lambda i, text: {"id": f"d{i}", "title": text[:12], "text": text},
        lambda i, text: {"id": str(i), "text": f"{text} été 中文 {i}"},
        lambda i, text: {"id": f"c{i}", "contents": f'"{text[:9]}"\n{text}'},
    ]
    Path("corpus").mkdir()
    for part in range(2):
        rows = [json.dumps(forms[i % 3](i, text)) for i, text in enumerate(texts) if i % 2 == part]
        Path(f"corpus/{part}.jsonl").write_text("\n".join(rows) + "\n")
    said = ran("index", "corpus", "--out", "index", "--quiet", "--processes", "0", *options)
    found = [f"<search>{text}</search>" for text in (*texts[:9], "été", "中文", "the", "no such word", "'quoted' a-b")]
    env = gym.make(QA, style="search_r1", corpus="index", top_k=5, max_episode_steps=50)
    env.reset(seed=0)
    return [said, *written("index"), *(list(env.step(action)) for action in found)]


def evaluated() -> list[Any]:
    """The folders of evaluations, and what other commands make of them."""
    rows = []
    for name, *command in (
        ["noisy", "--env", TOOLS, "--policy", "expert", "--demo-noise", "0.3", "--n", "6", "--samples", "3"],
        ["houses", "--env", HOUSE, "--policy", "expert", "--indices", "0-3,7", "--env-kwargs", '{"size": 1}'],
        ["papers", "--env", PAPERS, "--policy", "expert", "--n", "3", "--seed", "5", "--split", "validation"],
        ["random", "--env", SHOP, "--policy", "random", "--n", "2", "--wrapper", "AsTool", "--wrapper", "ChatMessages"],
    ):
        rows += [
            ran("eval", *command, "--out", name, "--quiet", "--concurrency", "1", *more) for more in ([], ["--json"])
        ]
        rows += written(name)
    for more in ("--thresholds 0,0.5 --top-k 25,10", "--json"):
        rows.append([f"eval-papers papers {more}", *ran("score", "papers", "--by", "papers", *more.split())[1:]])
    for more in (
        ["noisy", "--wrapper", "StepPenalty(penalty=0.02)", "--out", "new.jsonl", "--quiet"],
        ["random", "--env-kwargs", '{"reward": "agentr1"}', "--out", "shop.jsonl", "--quiet"],
    ):
        rows.append([f"rescore {' '.join(more)}", *ran("score", *more)[1:]])
    return rows + written("new.jsonl", "shop.jsonl")


_PACKED = re.compile(r"(?<=>)e[A-Za-z0-9+/]{100,}=*(?=<)")
_BUILD = re.compile(r'"build":"[0-9a-f]{16}"')  # tells a page's files from another's


def viewed() -> list[Any]:
    """The page of episodes, what is packed in it unpacked, and episodes as notebooks show them."""
    episodes = agent_envs.run_episodes(QA, OddAndExpert(), 3, concurrency=1, on_error="record", progress=False)
    agent_envs.write_episodes("e.jsonl", [dataclasses.replace(e, episode_id=str(i)) for i, e in enumerate(episodes)])
    page = [ran("view", "e.jsonl", "--out", "page.html", "--title", "Pinned")]
    for path, line in written("page.html"):
        line = _PACKED.sub(lambda found: zlib.decompress(base64.b64decode(found[0])).decode(), line)
        page.append([path, _BUILD.sub('"build":"drawn"', line)])
    return [*page, *(episode.to_html() for episode in agent_envs.read_episodes("e.jsonl")), repr(episodes[0])]


def frame() -> list[Any]:
    episodes = agent_envs.run_episodes(TOOLS, OddAndExpert(), 3, concurrency=1, on_error="record", progress=False)
    table = agent_envs.episodes_to_frame([dataclasses.replace(e, episode_id=str(i)) for i, e in enumerate(episodes)])
    return [list(table.columns), *json.loads(table.to_json(orient="records"))]


def plotted() -> list[Any]:
    """What is told of two evaluations beside each other; the figure is the drawing library's."""
    for seed in ("1", "2"):
        ran("eval", "--env", TOOLS, "--policy", "expert", "--demo-noise", "0.3", "--n", "12", "--seed", seed,
            "--out", f"noisy-seed{seed}", "--quiet", "--concurrency", "1")  # fmt: skip
    return ran("plot", "noisy-seed1", "noisy-seed2", "--out", "curves.svg")


DEMOS: dict[str, list[str]] = {
    "gsm8k-tool": ["--env", TOOLS, "--noise", "0.3", "--all"],
    "alfworld-AsTool": ["--env", HOUSE, "--wrapper", "AsTool", "--seed", "3", "--env-kwargs", '{"size": 1}'],
    "hotpotqa-rebuilt": ["--env", QA, "--wrapper", "RebuildPrompt", "--split", "validation"],
    "papersearch": ["--env", PAPERS, "--noise", "0.2"],
    "webshop-window": ["--env", SHOP, "--wrapper", "ChatMessages", "--wrapper", "SlidingWindow(k=1)"],
}


def demonstrated(kind: str, options: list[str]) -> list[Any]:
    return [ran("demos", *options, "--n", "6", "--out", f"demos.{kind}", "--quiet"), *written(f"demos.{kind}")]


def scaffold(*options: str) -> list[Any]:
    return [ran("new-task", "night_shop", *options), *written("night_shop")]


def listed() -> list[Any]:
    rows = json.loads("\n".join(ran("list", "--json")[1:]))
    for row in rows:
        for extra in row["extras"]:
            del extra["installed"]
    return rows


def typed() -> list[Any]:
    """What is printed where lines are typed, and what is saved."""
    lines = ["1 12*7", "/help", "/expert", "/undo", "/info", "/expert play", "/history", "5", "/quit"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        return [*ran("play", "--env", TOOLS, "--seed", "0", "--save", "e.jsonl"), *written("e.jsonl")]


class FakeModel(BaseHTTPRequestHandler):
    """A server of chat completions that tells tokens as vLLM does; a prompt grows by what was said."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number = sum(message["role"] == "assistant" for message in body["messages"])
        prompt = [1, *(ord(c) for message in body["messages"] for c in message["content"])]
        text = f"answer {number}"
        logprobs = [{"token": c, "logprob": -0.5 * i, "bytes": None, "top_logprobs": []} for i, c in enumerate(text)]
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        choice |= {"logprobs": {"content": logprobs}, "token_ids": [ord(c) for c in text]}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(text), "total_tokens": len(prompt) + len(text)}
        reply = {"id": "c", "object": "chat.completion", "created": 1, "model": body["model"], "choices": [choice]}
        content = json.dumps({**reply, "usage": usage, "prompt_token_ids": prompt}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


def recorded() -> list[Any]:
    """What the recorder leaves of an agent's calls: ended episodes, and one that is left open."""
    model = ThreadingHTTPServer(("127.0.0.1", 0), FakeModel)
    threading.Thread(target=model.serve_forever, args=(0.01,), daemon=True).start()
    upstream = f"http://127.0.0.1:{model.server_port}/v1"
    code = "import sys; from agent_envs.cli import main; sys.exit(main(sys.argv[1:]))"
    command = ["record", "--upstream", upstream, "--out", "run", "--port", "0", "--env-id", "mine", "--keep-open"]
    recorder = subprocess.Popen([sys.executable, "-c", code, *command], env=same_package(), stdout=subprocess.PIPE)
    try:
        assert recorder.stdout is not None
        url = recorder.stdout.readline().decode().split()[3].removesuffix("/v1")

        def post(path: str, body: Any, **headers: str) -> None:
            headers |= {"X-Task-Index": "4", "X-Judge-Token": Path("run/judge_token").read_text().strip()}
            request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
            urllib.request.urlopen(request, timeout=60).close()

        for name in ("first", "second", "open"):
            messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"é {name}?"}]
            for number in range(2):
                call = {"model": "tiny", "messages": messages, "temperature": 0.5}
                post(f"/episodes/{name}/v1/chat/completions", call, **{"X-Group-Id": "g"})
                messages += [{"role": "assistant", "content": f"answer {number}"}, {"role": "user", "content": "more"}]
            if name != "open":
                post(
                    f"/episodes/{name}/reward", {"reward": 0.5} if name == "first" else {"reward": 1.0, "success": True}
                )
        recorder.send_signal(signal.SIGINT)
        told = recorder.stdout.read().decode().split("\n")
        recorder.wait(60)
    finally:
        recorder.kill()
        recorder.wait()
        recorder.stdout.close()
        model.shutdown()
        model.server_close()
    return [told, *(row for row in written("run") if row[0] != "run/judge_token")]  # which is another each time


for name, (task, env_id, options, kwargs) in GENERATED.items():
    pin(
        f"files/generate/{name}",
        partial(generated, task, env_id, *options, **kwargs),
        needs=("alfworld",) if task == "alfworld" else (),
    )
for name, options in DEMOS.items():
    pin(f"files/demos/{name}.jsonl", partial(demonstrated, "jsonl", options))
pin("files/demos/gsm8k-tool.parquet", partial(demonstrated, "parquet", DEMOS["gsm8k-tool"]), needs=("pyarrow",))
pin("files/episodes", episode_files)
pin("files/eval", evaluated)
pin("files/frame", frame, needs=("pandas",))
pin("files/index", indexed)
pin("files/index-options", partial(indexed, "--k1", "1.2", "--b", "0.75"))
pin("files/record", recorded, needs=("aiohttp",))
pin("files/view", viewed)
pin("text/list", listed)
pin("text/play", typed)
pin("text/plot", plotted, needs=("matplotlib",))
for kind, options in {"commands": [], "tools": ["--tools", "--namespace", "Lab"]}.items():
    pin(f"text/new-task/{kind}", partial(scaffold, *options))
