"""OpenEnv's own clients play on the server, and its own models read what the server sends."""

from __future__ import annotations

import json
import urllib.request

import gymnasium as gym
import pytest

from agent_envs.serving import EnvServer, ServedEnv

pytest.importorskip("aiohttp")
pytest.importorskip("openenv.core.sync_client")  # since 0.3
from openenv.core.env_server import types
from openenv.core.generic_client import GenericAction, GenericEnvClient
from openenv.core.mcp_client import MCPToolClient

TOOL = "AgentR1/GSM8KTool-v0"
TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def server():
    with EnvServer([ServedEnv(TOOL), ServedEnv("AgentR1/ALFWorld-v0")], port=0, workers=0, max_episodes=3) as running:
        yield running


def test_the_generic_client_plays_what_is_played_here(server):
    here = gym.make(TOOL)
    with GenericEnvClient(base_url=server.url).sync() as env:
        for seed in (1, 2):
            question, info = here.reset(seed=seed)
            result = env.reset(seed=seed, episode_id=f"episode-{seed}")
            assert (result.observation["text"], result.observation["info"]) == (question, info)
            assert (result.reward, result.done) == (None, False)
            assert result.observation["instructions"] == here.unwrapped.instructions
            assert result.observation["tools"] == here.unwrapped.tools
            call = here.unwrapped.format_call("calculator", {"expression": "12*7"})
            for action in (call, "nonsense <tool_call>", here.unwrapped.expert_action(), "#### 1"):
                text, reward, terminated, truncated, info = here.step(action)
                result = env.step(GenericAction(text=action))
                shown = result.observation
                assert (shown["text"], result.reward, result.done) == (text, reward, terminated or truncated)
                assert (shown["info"], shown["terminated"], shown["truncated"]) == (info, terminated, truncated)
                if result.done:
                    break
            assert env.state() == {
                "episode_id": f"episode-{seed}", "step_count": env.state()["step_count"], "env": TOOL, "done": True,
            }  # fmt: skip
        with pytest.raises(RuntimeError, match="RESET_NEEDED"):
            env.step({"text": "after the end"})
        with pytest.raises(RuntimeError, match=r"VALIDATION_ERROR"):
            env.reset(index=10**9)
        assert env.reset(index=7).observation["info"]["index"] == 7


def test_the_other_environments_are_found_by_their_names(server):
    with GenericEnvClient(base_url=f"{server.url}/AgentR1/ALFWorld-v0").sync() as env:
        assert "TextWorld" in env.reset(seed=0).observation["text"]
        assert env.step({"text": "look"}).reward == 0.0


def test_the_tool_client_lists_and_calls_tools(server):
    with MCPToolClient(base_url=server.url).sync() as env:
        env.reset(seed=1)
        (tool,) = env.list_tools()
        assert tool.name == "calculator" and "expression" in tool.input_schema["properties"]
        assert env.call_tool("calculator", expression="12*7") == "84"
        assert env.state().step_count == 1
    with MCPToolClient(base_url=f"{server.url}/AgentR1/ALFWorld-v0").sync() as env:
        assert env.list_tools() == []
        with pytest.raises(RuntimeError, match="no tools: its actions are commands"):
            env.call_tool("look")


def test_beyond_the_capacity_openenvs_client_is_told_so(server):
    clients = [GenericEnvClient(base_url=server.url).sync() for _ in range(4)]
    for client in clients[:3]:
        client.reset()
    with pytest.raises(ConnectionError, match="503"):
        clients[3].reset()
    for client in clients:
        client.close()


def test_a_token_travels_in_the_address():
    with EnvServer([ServedEnv(TOOL)], port=0, workers=0, token=TOKEN) as server:
        with pytest.raises(ConnectionError, match="401"):
            GenericEnvClient(base_url=server.url).sync().connect()
        with GenericEnvClient(base_url=f"ws://any:{TOKEN}@127.0.0.1:{server.port}").sync() as env:
            assert env.reset(seed=1).observation["text"]


def test_openenvs_model_reads_the_health(server):
    with urllib.request.urlopen(f"{server.url}/health", timeout=10) as reply:
        assert types.HealthResponse(**json.loads(reply.read())).status == "healthy"
