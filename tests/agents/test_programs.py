"""Programs as they are installed, played against the door: openai-agents 0.24, Claude Code 2.1.332 and Codex 0.171.

`npm install @anthropic-ai/claude-code@2.1.332 @openai/codex@0.171.0`, with its `node_modules/.bin` on PATH. The model
says fixed texts, cut into tokens at odd places.

Behaviours pinned here:
1. Whatever the client, API and way of answering, what was sampled is trained, and nothing else, a conversation a row.
2. A call of a tool belongs to the reply that asked for it, of sub-agents that play at once too.
3. A tool that is kept back is shown where it was searched for; a history that is too long is summed up.
4. No process of a program is left, and no file outside its folder.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import agent_envs
from agent_envs.agents.command import command
from agent_envs.episodes.record import Episode, StopReason
from tests.helpers import agents_left

pytest.importorskip("aiohttp")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

ENV = "AgentR1/GSM8KTool-v0"
SERVER = "mcp__environment__"
COMMANDS = {
    "claude": "claude -p {prompt} --mcp-config {mcp} --allowedTools mcp__environment Agent",
    "codex": "codex exec --skip-git-repo-check -m policy -c web_search=disabled -c model_context_window=12500 "
    "-c model_provider=door -c model_providers.door.name=door -c model_providers.door.base_url={url}/v1 "
    "-c model_providers.door.env_key=OPENAI_API_KEY -c mcp_servers.environment.url={url}/mcp "
    "-c mcp_servers.environment.default_tools_approval_mode=approve {prompt}",
}


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@pytest.fixture(scope="module")
def scripted(load_file):
    """Make a model that says what a function of the prompt and the number of the call returns."""

    def make(says: Any, **settings: Any) -> Any:
        class Model(load_file("tests/agents/test_agents.py").Scripted):
            async def sample(self, prompt_ids, max_tokens, seed, pictures=()):
                async with one:
                    self.texts = [says(self.tokenizer.decode(prompt_ids), len(self.sampled))]
                    return await super().sample(prompt_ids, max_tokens, seed, pictures)

        one = asyncio.Lock()
        return Model(**{"context_length": 100_000, **settings})

    return make


def rows(episode: Episode, policy: Any) -> int:
    """Return in how many rows an episode is trained, after a look at its tokens."""
    from agent_envs.adapters.torch.batch import assemble

    assert episode.error is None
    recorded = [(step.prompt_ids, step.response_ids) for step in episode.steps]
    assert sorted(recorded) == sorted(policy.sampled)
    batch = assemble([episode], [0])
    steps = [tuple(batch.ids[batch.step == number].tolist()) for number in range(len(recorded))]
    assert steps == [response for _, response in recorded]
    assert (batch.step >= 0).sum() == sum(len(response) for _, response in policy.sampled)
    return len(batch.row.unique())


@pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning")  # openai-agents' own
def test_openai_agents(scripted):
    agents, openai = (
        pytest.importorskip("agents", reason="openai-agents is not installed"),
        pytest.importorskip("openai"),
    )
    from agents.mcp import MCPServerStreamableHttp

    agents.set_tracing_disabled(True)

    async def play(env: Any, model: Any, kind: Any, stream: bool, over_mcp: bool) -> None:
        def tool(spec: Any) -> Any:
            async def invoke(_: Any, arguments: str) -> str:
                return await env.call(spec["name"], json.loads(arguments))

            return agents.FunctionTool(spec["name"], spec["description"], spec["parameters"], invoke)

        async with (
            openai.AsyncOpenAI(base_url=f"{model.url}/v1", api_key=model.key) as client,
            MCPServerStreamableHttp({"url": f"{model.url}/mcp"}) as server,
        ):
            tools = {"mcp_servers": [server]} if over_mcp else {"tools": [tool(t["function"]) for t in env.tools]}
            solver = agents.Agent("solver", instructions=env.instructions, model=kind("policy", client), **tools)
            if stream:
                run = agents.Runner.run_streamed(solver, env.observation)
                async for _ in run.stream_events():
                    pass
            else:
                run = await agents.Runner.run(solver, env.observation)
            await env.step(run.final_output)

    odd = '<tool_call>\n{"name":  "calculator", "arguments": {"expression":   "2*\\u0033"}}\n</tool_call>'
    two = call("calculator", expression="1+1") + call("calculator", expression="2+2")
    texts = [f"Let me see. {odd}", f"<think>\nHm.\n</think>\n\n{two}", odd, "#### 7"]
    policy = scripted(lambda prompt, number: texts[number])
    loop = agent_envs.run_episode(gym.make(ENV), policy, seed=0)
    for kind in (agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel):
        for stream in (False, True):
            for over_mcp in (False, True):
                agent = partial(play, kind=kind, stream=stream, over_mcp=over_mcp)
                policy.sampled.clear()
                episode = agent_envs.run_episode(gym.make(ENV), policy, seed=0, agent=agent)
                assert rows(episode, policy) == 1 and episode.stop_reason is StopReason.TERMINATED
                assert [step.info["env_steps"] for step in episode.steps] == [1, 2, 1, 1]
                for one, other in zip(episode.steps, loop.steps, strict=True):
                    assert (one.prompt_ids, one.response_ids) == (other.prompt_ids, other.response_ids)


def traces(name: str) -> set[str]:
    """Return what a program may leave: processes, and files in the places for temporary ones and at home."""
    folders = (Path(tempfile.gettempdir()), Path.home(), Path.home() / ".config", Path.home() / ".cache")
    files = {str(path) for folder in folders if folder.is_dir() for path in folder.iterdir()}
    return agents_left() | {path for path in files if name in path or "/cc-" in path}


both = pytest.mark.parametrize("program", sorted(COMMANDS), indirect=True)
claude = pytest.mark.parametrize("program", ["claude"], indirect=True)


@pytest.fixture
def program(request):
    """The name and the command line of a program that is installed, and leaves nothing."""
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not on PATH; see this file's first lines")
    before = traces(request.param)
    yield request.param, COMMANDS[request.param]
    assert traces(request.param) <= before


def play(policy: Any, line: str) -> Episode:
    settings: Any = {"on_error": "record", "progress": False, "env_kwargs": {"max_episode_steps": 100}}
    (episode,) = agent_envs.run_episodes(ENV, policy, 1, agent=command(line, timeout=100), **settings)
    return episode


@both
def test_a_program_plays(scripted, program):
    add = partial(call, f"{SERVER}calculator")
    texts = [add(expression="1+1"), f"<think>Hm.</think>{add(expression='1+1')}{add(expression='2+3')}", "#### 7"]
    policy = scripted(lambda prompt, number: texts[number])
    episode = play(policy, program[1])
    assert rows(episode, policy) == 1 and episode.stop_reason is StopReason.TERMINATED
    assert [step.action for step in episode.steps] == texts and [step.after for step in episode.steps] == [None, 0, 1]
    assert [step.info["env_steps"] for step in episode.steps] == [1, 2, 1]
    assert [m["content"][-1] for m in episode.steps[2].observation if m["role"] == "tool"] == ["2", "2", "5"]


@claude
def test_sub_agents_at_once(scripted, program):
    def says(prompt: str, number: int) -> str:
        asked = next((who for who in ("FIRST", "SECOND") if who in prompt and "Solve the problem" not in prompt), None)
        if asked is None and number == 0:
            spawn = partial(call, "Agent", subagent_type="general-purpose", run_in_background=False)
            return "".join(spawn(description=who, prompt=who) for who in ("FIRST", "SECOND"))
        if asked is None:
            return "#### 7"
        done = "<tool_response>" in prompt.rpartition(asked)[2]
        return "Done." if done else call(f"{SERVER}calculator", expression="1+1" if asked == "FIRST" else "2+2")

    policy = scripted(says)
    episode = play(policy, program[1])
    assert rows(episode, policy) == 3 and [step.after for step in episode.steps[:3]] == [None, None, None]
    assert {step.after for step in episode.steps[3:5]} == {1, 2} and episode.steps[5].after == 0
    assert [step.info["env_steps"] for step in episode.steps] == [0, 1, 1, 0, 0, 1]
    for step in episode.steps[1:3]:
        assert step.info["tool_results"][0]["content"] == ("2" if "1+1" in step.action else "4")


@both
def test_a_long_history_is_summed_up(scripted, program):
    name, line = program
    line = line.replace("{prompt}", "{prompt} --tools ''") if name == "claude" else line

    def says(prompt: str, number: int) -> str:
        if any(words in prompt[-6000:] for words in ("detailed summary", "CHECKPOINT COMPACTION")):
            return "<summary>Sums.</summary>"
        return call(f"{SERVER}calculator", expression=f"{number}+1") if number < 40 else "#### 7"

    policy = scripted(says, context_length=7200 if name == "claude" else 12500)
    episode = play(policy, line)
    summed = [step for step in episode.steps if step.action.startswith("<summary>")]
    assert summed and len(episode.steps) > 40 and episode.stop_reason is StopReason.TERMINATED
    assert rows(episode, policy) == 1 + 2 * len(summed)


@claude
def test_a_tool_that_is_searched_for(scripted, program):
    search = call("ToolSearch", query=f"select:{SERVER}calculator", max_results=3)
    texts = [search, call(f"{SERVER}calculator", expression="3*4"), "#### 12"]
    policy = scripted(lambda prompt, number: texts[number])
    episode = play(policy, program[1])
    assert rows(episode, policy) == 1 and [step.info["env_steps"] for step in episode.steps] == [0, 1, 1]
    shown = episode.steps[1].observation[-1]["content"]
    assert shown.startswith("<function>") and "arithmetic expression" in shown
