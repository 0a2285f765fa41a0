"""Programs as agents: what they get, how they end, and that nothing of them is left.

Behaviours pinned here:
1. A program on an SDK, which calls the environment's tools over MCP, plays as the plain loop does.
2. It gets the task, a folder of its own and a handful of variables, and none of this process's secrets.
3. Its end: the last reply, its output or nothing is the answer; a status, a signal and a time-out have their reasons.
4. Whatever it has started is gone when the episode is over, daemons too; whenever it is killed, no answer is lost.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import agent_envs
from agent_envs.agents.command import command
from agent_envs.agents.loading import load_agent
from agent_envs.episodes.record import Episode, StopReason
from agent_envs.errors import ConfigError
from tests.helpers import agents_left

pytest.importorskip("aiohttp")
pytest.importorskip("transformers")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what a program leaves behind is found on Linux alone")

ENV = "AgentR1/GSM8KTool-v0"
CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "1+1"}}\n</tool_call>'
TWICE = CALL + CALL.replace("1+1", "2+3")

HARNESS = """
import asyncio, json, os, sys
import openai
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

async def main(task):
    address = json.load(open(sys.argv[2]))["mcpServers"]["environment"]["url"]
    assert address == os.environ["AGENTR1_MCP_URL"]
    async with streamablehttp_client(address) as (read, write, _), ClientSession(read, write) as session:
        await session.initialize()
        tools = [
            {"type": "function", "function": {
                "name": t.name, "description": t.description, "parameters": t.inputSchema}}
            for t in (await session.list_tools()).tools
        ]
        client, messages = openai.AsyncOpenAI(), [{"role": "user", "content": task}]
        while True:
            asked = client.chat.completions.create(model="policy", messages=messages, tools=tools)
            said = (await asked).choices[0].message
            messages.append(said.model_dump(exclude_none=True))
            for call in said.tool_calls or ():
                result = await session.call_tool(call.function.name, json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result.content[0].text})
            if not said.tool_calls:
                print(said.content)
                return

asyncio.run(main(sys.argv[1]))
"""


ASK = """
import os, urllib.request

def ask():
    body = b'{"messages": [{"role": "user", "content": "?"}]}'
    urllib.request.urlopen(urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)).read()

"""


@pytest.fixture(scope="module")
def scripted(load_file):
    return load_file("tests/agents/test_agents.py").Scripted


@pytest.fixture
def program(tmp_path):
    """Write a program, and return the start of its command line."""

    def written(text: str) -> str:
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(text))
        return f"{sys.executable} {path}"

    return written


def play(scripted: Any, agent: Any, *texts: str, env: str = ENV, **settings: Any) -> Episode:
    policy = scripted(*texts)
    (episode,) = agent_envs.run_episodes(
        env, policy, 1, agent=agent, on_error="record", progress=False, **settings
    )  # fmt: skip
    recorded = [(s.prompt_ids, s.response_ids) for s in episode.steps if s.response_ids]
    assert sorted(recorded) == sorted(policy.sampled)
    return episode


def test_a_program_with_an_sdk_and_mcp_plays(scripted, program):
    pytest.importorskip("openai")
    pytest.importorskip("mcp")
    episode = play(scripted, f"{program(HARNESS)} {{prompt}} {{mcp}}", CALL, TWICE, "#### 7")
    assert episode.error is None and episode.stop_reason is StopReason.TERMINATED
    assert [step.action for step in episode.steps] == [CALL, TWICE, "#### 7"]
    assert [s.after for s in episode.steps] == [None, 0, 1] and [s.time for s in episode.steps] == [0, 1, 3]
    assert [result["content"] for result in episode.steps[1].info["tool_results"]] == ["2", "5"] and episode.calls == 3
    assert "#### 7" not in str(episode.steps[2].observation)


@pytest.mark.parametrize(("answer", "reward"), [("last", 0.0), ("stdout", 1.0), ("none", None)])
def test_what_the_environment_gets_when_the_program_ends(scripted, program, answer, reward):
    env = gym.make(ENV)
    env.reset(seed=0)
    says = f"{ASK}ask(); print('#### {env.unwrapped.task.answer}')"
    episode = play(scripted, command(program(says), answer=answer), "#### -77", seeds=0)
    assert episode.stop_reason is (StopReason.TRUNCATED if reward is None else StopReason.TERMINATED)
    assert episode.reward == (reward or 0.0) and len(episode.steps) == 1


def test_what_a_program_gets(scripted, program, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("WANTED", "yes")
    says = """
        import os, sys
        at_home = os.getcwd() == os.environ["HOME"] == os.environ["TMPDIR"]
        print(sorted(os.environ), at_home, os.listdir("."), sys.argv[1:], len(sys.stdin.read()))
    """
    agent = command(f"{program(says)} {{workdir}}/a 'b c' {{url}}", answer="stdout", env=["WANTED"])
    said = play(scripted, agent).steps[0].action
    assert "HF_TOKEN" not in said and "secret" not in said and "'WANTED'" in said and "'PATH'" in said
    assert "True ['mcp.json']" in said and "'b c'" in said and not said.endswith(" 0")
    seen = play(scripted, command(f"{program('import sys; print(repr(sys.argv[1]))')} {{prompt}}", answer="stdout"))
    assert "Solve the problem" in seen.steps[0].action and "{" not in seen.steps[0].action.partition("\\n")[0]


@pytest.mark.parametrize(
    ("says", "reason", "words"),
    [
        ("raise SystemExit(3)", StopReason.ERROR, "ended with status 3"),
        ("ask(); raise ValueError('no plan')", StopReason.AGENT_ERROR, "ValueError: no plan"),
        ("ask(); print('The last', 'words'); raise SystemExit(1)", StopReason.AGENT_ERROR, "status 1: The last words"),
        ("ask(); os.kill(os.getpid(), 9)", StopReason.ERROR, "was ended by signal 9"),
        ("ask(); import time; time.sleep(60)", StopReason.AGENT_ERROR, "took longer than 3 seconds"),
    ],
)
def test_how_a_program_ends(scripted, program, says, reason, words):
    began = time.monotonic()
    episode = play(scripted, command(program(ASK + says), timeout=3), "hm")
    assert episode.stop_reason is reason and words in str(episode.error) and time.monotonic() - began < 30


def test_what_a_program_wrote_is_judged(scripted, program):
    def score(episode, env, workdir):
        assert len(episode.steps) == 1
        return float(Path(workdir, "done.txt").read_text() == "yes")

    says = f"{ASK}ask(); open('done.txt', 'w').write('yes')"
    episode = play(scripted, command(program(says), answer="none"), "hm", score=score)
    assert episode.success and episode.reward == 1.0 and episode.stop_reason is StopReason.TERMINATED


def test_nothing_of_a_program_is_left(scripted, program, tmp_path):
    says = f"""
        import os, subprocess, sys, time
        if os.fork() == 0:  # a daemon
            os.setsid()
            if os.fork() == 0:
                open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
                time.sleep(60)
            os._exit(0)
        while not os.path.exists({str(tmp_path / "pid")!r}):
            time.sleep(0.01)
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        print("#### 1")
    """
    play(scripted, command(program(says), answer="stdout"))
    pid = int((tmp_path / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists()


TALKER = """
import http.client, json, os, random, subprocess, sys, time
noted, seconds = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND), random.uniform(0, 0.4)
subprocess.Popen(["setsid", "sleep", "60"])  # a daemon
if os.fork() == 0:
    time.sleep(seconds)
    os.kill(os.getppid(), 9)
    time.sleep(60)
address, _, path = os.environ["ANTHROPIC_BASE_URL"].removeprefix("http://").partition("/")
server = http.client.HTTPConnection(address)

def post(where, body):
    server.request("POST", f"/{path}/{where}", json.dumps(body), {"Content-Type": "application/json"})
    return server.getresponse().read().decode()

for number in range(10**6):
    stream = number % 2 == 1
    body = {"stream": stream, "messages": [{"role": "user", "content": f"{number}?"}]}
    told = post("v1/chat/completions", body)
    if stream:
        assert told.endswith("data: [DONE]\\n\\n"), told
        told = told.partition("data: ")[2].partition("\\n")[0]
    choice = json.loads(told)["choices"][0]
    os.write(noted, (choice.get("message") or choice["delta"])["content"].encode() + b"\\n")
    call = {"name": "calculator", "arguments": {"expression": f"{number}+1"}}
    post("mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
"""


@pytest.mark.slow
def test_no_answer_is_lost_in_a_hundred_kills(scripted, program, tmp_path):
    class Model(scripted):
        async def sample(self, prompt_ids, max_tokens, seed, pictures=()):
            await asyncio.sleep(random.random() / 50)
            self.texts.append(f"reply {next(numbers)}")
            return await super().sample(prompt_ids, max_tokens, seed, pictures)

    noted, policy, numbers = tmp_path / "noted", Model(), itertools.count()
    noted.touch()
    settings: Any = {"on_error": "record", "progress": False, "concurrency": 4}
    agent = f"{program(TALKER)} {noted}"
    episodes = agent_envs.run_episodes(ENV, policy, 100, agent=agent, **settings)
    assert all("was ended by signal 9" in str(episode.error) for episode in episodes)
    recorded = [step.action for episode in episodes for step in episode.steps]
    received = noted.read_text().split("\n")[:-1]
    assert len({*recorded}) == len(recorded) and {*received} <= {*recorded} and len(received) > 50
    assert not agents_left()
    agent_envs.write_episodes(tmp_path / "episodes.jsonl", episodes)
    read = agent_envs.read_episodes(tmp_path / "episodes.jsonl")
    assert [step.action for episode in read for step in episode.steps] == recorded
    assert play(scripted, command(f"{sys.executable} -c \"print('#### 1')\"", answer="stdout")).error is None


def test_commands_that_cannot_be_run():
    for wrong, says in (("a 'b", "cannot be split"), ("  ", "is empty")):
        with pytest.raises(ConfigError, match=says):
            command(wrong)
    with pytest.raises(ConfigError, match="answer must be"):
        command("a b", answer="first")
    with pytest.raises(ConfigError, match="which is not set"):
        command("a b", env=["NO_SUCH_VARIABLE"])
    assert callable(load_agent("claude -p {prompt}")) and callable(load_agent("command(program='a b', answer='none')"))
