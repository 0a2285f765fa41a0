"""`agentr1 record` killed at random moments, and without room on the disk, while agents play.

1. What an agent was answered, calls and verdicts, is in the file of episodes, once; the next start goes on with it.
2. What an agent was told has failed has not happened: a refused verdict leaves the episode open for another one.
"""

import http.client
import itertools
import json
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent_envs.episodes.record import read_episodes

pytest.importorskip("aiohttp")
resource = pytest.importorskip("resource")

UNREACHABLE = (urllib.error.URLError, http.client.HTTPException, OSError)


class Recorder:
    """The command, which is started again on the port that it had; it is up once `wait` returns."""

    def __init__(self, upstream: str, folder: Path, log: Path, *options: str) -> None:
        self.folder, self.log, self.port = folder, log, 0
        self._command = [sys.executable, "-m", "agent_envs", "record", "--upstream", upstream]
        self._command += ["--out", str(folder), *options]
        self.process: subprocess.Popen[str]

    def start(self, room: int | None = None) -> None:
        """Start, with so many bytes of room for a file."""

        def limit() -> None:
            if room is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [*self._command, "--port", str(self.port)],
                stdout=subprocess.PIPE, stderr=log, text=True, preexec_fn=limit,
            )  # fmt: skip

    def wait(self) -> None:
        """Wait until it listens."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("recording"), self.log.read_text()
        self.port = int(line.split(" at ")[1].split("/v1")[0].rsplit(":", 1)[1])

    def end(self, how: signal.Signals) -> str:
        """Send a signal; return what it printed since it listened."""
        self.process.send_signal(how)
        return self.process.communicate(timeout=60)[0]

    def post(self, path: str, body: Any) -> str:
        """Return the whole answer, streamed or not; an error of UNREACHABLE if it breaks off."""
        url = f"http://127.0.0.1:{self.port}{path}"
        headers = {
            "Content-Type": "application/json",
            "X-Judge-Token": (self.folder / "judge_token").read_text().strip(),
        }
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.read().decode()

    def call(self, episode: str, text: str, *, stream: bool) -> str:
        """Return what the model says to a text."""
        messages = [{"role": "user", "content": text}]
        body = {"model": "m", "messages": messages, "stream": stream}
        answer = self.post(f"/episodes/{episode}/v1/chat/completions", body)
        if not stream:
            return json.loads(answer)["choices"][0]["message"]["content"]
        events = [line.removeprefix("data: ") for line in answer.splitlines() if line]
        assert events.pop() == "[DONE]"
        deltas = [choice["delta"] for event in events for choice in json.loads(event)["choices"]]
        return "".join(delta.get("content") or "" for delta in deltas)


@pytest.fixture
def recorder(tmp_path, chat_server):
    """A recorder before a model that never says the same twice; to be started."""
    numbers = itertools.count()
    model = chat_server(lambda request: f"answer {next(numbers)}.")
    recorder = Recorder(model.url, tmp_path / "run", tmp_path / "log")
    yield recorder
    recorder.process.kill()
    recorder.process.communicate()


class Agent(threading.Thread):
    """Plays episodes until told to stop; whatever breaks off is asked again until it is answered."""

    def __init__(self, recorder: Recorder, name: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.answers: dict[str, list[str]] = {}
        """What it was answered, by episode."""
        self.rewards: dict[str, float] = {}
        """The verdicts that were accepted."""
        self.broken_off = 0
        self.failure: Exception | None = None
        self.stopping = False
        self._recorder, self._name, self._rng = recorder, name, random.Random(seed)

    def run(self) -> None:
        try:
            for number in itertools.count():
                if self.stopping:
                    return
                self._play(f"{self._name}-{number}", float(number))
        except Exception as e:  # noqa: BLE001  the test raises it
            self.failure = e

    def _play(self, episode: str, reward: float) -> None:
        said = self.answers[episode] = []
        for turn in range(self._rng.randint(1, 4)):
            text, stream = f"turn {turn} " + "word " * self._rng.randint(1, 3000), self._rng.random() < 0.5
            said.append(self._until_answered(partial(self._recorder.call, episode, text, stream=stream)))
        self._until_answered(partial(self._recorder.post, f"/episodes/{episode}/reward", {"reward": reward}))
        self.rewards[episode] = reward

    def _until_answered(self, request: Callable[[], str]) -> str:
        deadline = time.monotonic() + 60
        while True:
            try:
                return request()
            except urllib.error.HTTPError as e:
                with e:
                    raise AssertionError(f"{e.code}: {e.read()!r}") from e
            except UNREACHABLE:
                if time.monotonic() > deadline:
                    raise
                self.broken_off += 1
                time.sleep(0.05)


def cut_lines(folder: Path, rng: random.Random) -> None:
    """Leave beginnings of lines, as kills in the middle of a write do."""
    files = [folder / "episodes.jsonl", *(folder / "open").glob("*.jsonl")]
    for path in files:
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        if lines and rng.random() < 0.5:
            with path.open("ab") as file:
                file.write(lines[0][: rng.randint(1, len(lines[0]) - 1)])


@pytest.mark.parametrize("kills", [1, pytest.param(25, marks=pytest.mark.slow)])
def test_kills_at_any_moment_lose_and_double_nothing_that_was_answered(recorder, kills):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201  shown if the test fails
    rng = random.Random(seed)
    recorder.start()
    recorder.wait()
    agents = [Agent(recorder, f"agent{i}", seed + i) for i in range(3)]
    for agent in agents:
        agent.start()
    for number in range(kills):
        if number % 5 != 4:  # every fifth is killed while it starts
            time.sleep(rng.uniform(0.05, 0.4))
        else:
            time.sleep(rng.uniform(0, 1))
        recorder.end(signal.SIGKILL)
        cut_lines(recorder.folder, rng)
        recorder.start()
        if number % 5 != 3:
            recorder.wait()
    episodes = recorder.folder / "episodes.jsonl"
    for agent in agents:
        agent.stopping = True
    for agent in agents:
        agent.join(60)
        assert not agent.is_alive()
        if agent.failure is not None:
            raise agent.failure
    said = recorder.end(signal.SIGTERM)
    assert recorder.process.returncode == 0 and "Traceback" not in recorder.log.read_text()
    content = episodes.read_bytes()
    assert content.endswith(b"\n") and all(json.loads(line) for line in content.splitlines())
    records = list(read_episodes(episodes))
    found = {episode.episode_id: episode for episode in records}
    assert len(found) == len(records) and f"stopped: {len(found)} episodes" in said
    actions = [step.action for episode in records for step in episode.steps]
    assert len(set(actions)) == len(actions)
    answered = {name: texts for agent in agents for name, texts in agent.answers.items()}
    assert all(set(texts) <= {step.action for step in found[name].steps} for name, texts in answered.items())
    # a call whose answer a kill cut off may be in the file too, and no other
    assert len(actions) <= sum(map(len, answered.values())) + sum(agent.broken_off for agent in agents)
    assert {name: e.reward for name, e in found.items()} == {k: v for agent in agents for k, v in agent.rewards.items()}
    assert not list((recorder.folder / "open").glob("*.jsonl"))


def test_a_refused_verdict_is_none(recorder):
    """There is room for the calls of each episode, but not for a second episode in the file of episodes."""
    recorder.start(20_000)
    recorder.wait()
    for name in ("first", "second"):
        answered = [recorder.call(name, "word " * 600, stream=stream) for stream in (False, True, False)]
    recorder.post("/episodes/first/reward", {"reward": 1.0})
    with pytest.raises(urllib.error.HTTPError) as refused:
        recorder.post("/episodes/second/reward", {"reward": 1.0})
    with refused.value as reply:
        assert reply.code == 507 and "cannot be written" in reply.read().decode()
    assert "1 unfinished ones stay open" in recorder.end(signal.SIGTERM)
    assert "'second' stays open" in recorder.log.read_text()
    recorder.start(20_000)  # there still is no room
    recorder.wait()
    recorder.end(signal.SIGKILL)
    recorder.start()
    recorder.wait()
    recorder.post("/episodes/second/reward", {"reward": 0.5})
    first, second = read_episodes(recorder.folder / "episodes.jsonl")
    assert (first.reward, second.reward) == (1.0, 0.5) and [step.action for step in second.steps] == answered


def test_what_does_not_fit_is_not_answered(recorder):
    recorder.start(20_000)
    recorder.wait()
    answered = [recorder.call("x", "word " * 600, stream=False) for _ in range(4)]
    with pytest.raises(urllib.error.HTTPError, match="507"):
        while True:
            answered.append(recorder.call("x", "word " * 600, stream=False))
    with pytest.raises(UNREACHABLE):  # no stream comes to a good end
        recorder.call("x", "word " * 600, stream=True)
    recorder.end(signal.SIGKILL)
    recorder.start()
    recorder.wait()
    answered.append(recorder.call("x", "and now?", stream=True))
    recorder.post("/episodes/x/reward", {"reward": 1.0})
    (episode,) = read_episodes(recorder.folder / "episodes.jsonl")
    assert [step.action for step in episode.steps] == answered
