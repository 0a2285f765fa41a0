"""Anybody's OpenEnv server, played as an environment here.

Behaviours pinned here:
1. Episodes are those of OpenEnv's own client: observations, rewards and ends, by text and by tools.
2. The contract of text environments holds; snapshots are played again.
3. A server that is not there, stalls, lies or closes is a typed error within the time limit, never a reward.
"""

import json
import threading
import time
from importlib.util import find_spec

import gymnasium as gym
import pytest

from agent_envs.errors import BackendDownError, BackendReplyError, BackendSlowError, ConfigError
from agent_envs.serving import EnvServer, ServedEnv
from agent_envs.testing import check_text_env
from agent_envs.wrapping.recorded import recorded_env

ENV_ID = "AgentR1/OpenEnv-v0"
SEED = 20_000_000  # of the first test task
# Its import takes seconds, so only the tests that use it have it.
pytestmark = pytest.mark.skipif(find_spec("openenv") is None, reason="needs agent-envs[suites]")


@pytest.fixture(scope="module")
def url():
    served = [ServedEnv("AgentR1/ALFWorld-v0"), ServedEnv("AgentR1/GSM8KTool-v0")]
    with EnvServer(served, port=0, workers=0, max_episodes=20) as server:
        yield server.url


def test_episodes_are_those_of_openenvs_client(url, episodes):
    from openenv.core.generic_client import GenericEnvClient

    here = gym.make("AgentR1/ALFWorld-v0")
    env = gym.make(ENV_ID, url=url, field="text", show="text", split="test")
    with GenericEnvClient(base_url=url).sync() as source:
        for index in range(episodes):
            wanted = source.reset(seed=SEED + index)
            here.reset(seed=SEED + index)
            assert env.reset(options={"index": index})[0] == wanted.observation["text"]
            for action in ("look", "dance", here.unwrapped.expert_action()):
                wanted = source.step({"text": action})
                observation, reward, terminated, truncated, info = env.step(action)
                assert (observation, reward, terminated or truncated) == (
                    wanted.observation["text"], wanted.reward, wanted.done,
                )  # fmt: skip
                assert info["invalid_action"] == wanted.observation["info"]["invalid_action"]
    env.close()


def test_tools_are_those_of_the_server(url):
    here = gym.make("AgentR1/GSM8KTool-v0")
    env = gym.make(ENV_ID, url=f"{url}/AgentR1/GSM8KTool-v0", field="text", show="text", split="test")
    assert env.unwrapped.tools == here.unwrapped.tools
    for index in range(3):
        question = here.reset(seed=SEED + index)[0]
        assert env.reset(options={"index": index})[0] == question
        terminated = False
        while not terminated:
            action = here.unwrapped.expert_action()
            wanted = here.step(action)
            observation, reward, terminated, _, info = env.step(action)
            assert (observation, reward, terminated) == wanted[:3]
        assert info["success"] and reward == 1.0
    env.close()


@pytest.mark.slow
def test_the_tools_of_openenvs_own_server():
    """An MCP tool environment on the package's server, beside the package's client."""
    import uvicorn
    from fastmcp import FastMCP
    from openenv.core.env_server import http_server, mcp_environment, mcp_types, types
    from openenv.core.mcp_client import MCPToolClient

    tools = FastMCP("sums")

    @tools.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    class Sums(mcp_environment.MCPEnvironment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self):
            super().__init__(tools)

        def reset(self, seed=None, episode_id=None, **kwargs):
            return types.Observation(done=False, reward=0.0, metadata={"seed": seed})

        def _step_impl(self, action, timeout_s=None, **kwargs):
            return types.Observation(done=False, reward=0.0)

        @property
        def state(self):
            return types.State(episode_id="1", step_count=0)

    app = http_server.create_fastapi_app(
        Sums, mcp_types.CallToolAction, mcp_types.CallToolObservation, max_concurrent_envs=9
    )
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    place = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        with MCPToolClient(base_url=place).sync() as source:
            source.reset()
            wanted = source.call_tool("add", a=2, b=40)
        env = gym.make(ENV_ID, url=place)
        assert [tool["function"]["name"] for tool in env.unwrapped.tools] == ["add"]
        env.reset(seed=1)
        observation, _, _, _, info = env.step(env.unwrapped.format_call("add", {"a": 2, "b": 40}))
        assert observation == str(wanted) == "42" and not info["tool_results"][0]["error"]
        env.close()
    finally:
        server.should_exit = True
        thread.join()


def test_it_keeps_the_contract(url):
    kwargs = {"url": f"{url}/AgentR1/GSM8KTool-v0", "field": "text", "show": "text"}
    check_text_env(ENV_ID, env_kwargs=kwargs, vectors=False)


@pytest.fixture(scope="module")
def liar():
    """A server whose reset says what its path asks for."""
    from websockets.sync.server import serve

    def answer(ws):
        fault = ws.request.path.strip("/").partition("/")[0]
        for raw in ws:
            kind = json.loads(raw).get("type")
            data = {"observation": {"text": "here"}, "reward": None, "done": False}
            if kind == "step" and json.loads(raw)["data"].get("type") == "list_tools":
                data["observation"] = {"tools": []}
            elif fault == "stalls":
                time.sleep(3)
            elif fault == "closes":
                return
            elif fault == "nan":
                data["reward"] = float("nan")
            elif fault == "text":
                data["observation"] = "here"
            elif fault == "fails":
                ws.send(json.dumps({"type": "error", "data": {"message": "\x1b[2J", "code": "EXECUTION_ERROR"}}))
                continue
            if fault == "list":
                ws.send("[1]")
                continue
            ws.send(json.dumps({"type": "observation", "data": data}))

    with serve(answer, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("stalls", BackendSlowError),
        ("closes", BackendDownError),
        ("nan", BackendReplyError),
        ("text", BackendReplyError),
        ("fails", BackendReplyError),
        ("list", BackendReplyError),
    ],
)
def test_a_broken_server_is_an_error(liar, fault, error):
    begin = time.monotonic()
    env = gym.make(ENV_ID, url=f"{liar}/{fault}", field="text", show="text", timeout=0.5 if fault == "stalls" else 5)
    with pytest.raises(error):
        env.reset(seed=0)
    assert time.monotonic() - begin < 8
    env.close()


def test_actions_as_json_and_a_field_that_is_not_there(liar):
    env = gym.make(ENV_ID, url=liar)
    assert env.reset(seed=0)[0] == '{"text": "here"}'
    assert env.step("dance")[4]["invalid_action"]
    assert env.step('{"move": "dance"}')[0] == '{"text": "here"}'
    env.close()
    env = gym.make(ENV_ID, url=liar, show="board")
    with pytest.raises(BackendReplyError, match="no field 'board'"):
        env.reset(seed=0)
    env.close()


def test_wrong_arguments(liar):
    for kwargs, error, message in (
        ({"url": "nowhere"}, ConfigError, "http://127"),
        ({"url": "http://127.0.0.1:9"}, BackendDownError, "cannot be reached"),
        ({"url": liar, "timeout": 0}, ConfigError, "timeout"),
    ):
        with pytest.raises(error, match=message):
            gym.make(ENV_ID, **kwargs)
    with pytest.raises(ConfigError, match="a record may not set"):
        recorded_env({"env": ENV_ID, "env_kwargs": {"url": liar}}, "run.json")
