"""OpenEnv's own clients play on the server (tokens, limits, health: test_serving_server.py and tests/attacks)."""

from __future__ import annotations

import gymnasium as gym
import pytest

from agent_envs.serving import EnvServer, ServedEnv

pytest.importorskip("aiohttp")

TOOL = "AgentR1/GSM8KTool-v0"


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("openenv.core.sync_client")  # since 0.3; here, as all of pytest's workers read this module
    with EnvServer([ServedEnv(TOOL), ServedEnv("AgentR1/ALFWorld-v0")], port=0, workers=0) as running:
        yield running


def test_the_generic_client_plays_what_is_played_here(server):
    from openenv.core.generic_client import GenericAction, GenericEnvClient

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


def test_the_tool_client_lists_and_calls_tools(server):
    from openenv.core.mcp_client import MCPToolClient

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
