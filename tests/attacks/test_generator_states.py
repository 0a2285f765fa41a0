"""The state of a random generator from the network: NumPy takes any numbers, and with some it never returns.

With an even increment PCG64 repeats a few numbers, and `integers` waits forever for another, with the interpreter held.
Server and client read the same structure, so each must refuse what the other could send.
"""

from __future__ import annotations

import copy
import json
import threading

import numpy as np
import pytest

from agent_envs.errors import BackendReplyError, ConfigError
from agent_envs.serving import RemoteEnv
from agent_envs.serving.protocol import generator_from, generator_state
from agent_envs.serving.served_env import ServedEnv

VALID = generator_state(np.random.default_rng(3))


def changed(path, value):
    """The valid state with one entry changed, or taken out if the value is None."""
    state = copy.deepcopy(VALID)
    *outer, last = path.split(".")
    place = state
    for name in outer:
        place = place[name]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return state


BROKEN = [
    changed("state", {"state": 0, "inc": 0}),  # integers() never returns
    changed("state.inc", VALID["state"]["inc"] - 1),
    changed("state.inc", 2),
    changed("state.inc", -1),
    changed("state.inc", 2**128 + 1),
    changed("state.inc", "1"),
    changed("state.inc", 1.0),
    changed("state.inc", True),
    changed("state.inc", None),
    changed("state.state", -1),
    changed("state.state", 2**128),
    changed("state.state", [1]),
    changed("state.state", None),
    changed("state", [0, 1]),
    changed("state", None),
    changed("has_uint32", 2),
    changed("has_uint32", False),
    changed("has_uint32", None),
    changed("uinteger", 2**32),
    changed("uinteger", -1),
    changed("uinteger", None),
    changed("bit_generator", "MT19937"),
    changed("bit_generator", 3),
    changed("bit_generator", None),
    {},
    [],
    "PCG64",
    0,
    None,
]


@pytest.mark.parametrize("state", BROKEN)
def test_a_state_that_is_none_is_refused(state):
    with pytest.raises(ConfigError, match="expected the state of a PCG64 generator"):
        generator_from(state)


def test_every_valid_state_is_taken_as_it_is():
    for seed in range(200):
        generator = np.random.default_rng(seed)
        generator.integers(5, dtype=np.uint32, size=seed % 3)  # with and without half a number kept
        state = json.loads(json.dumps(generator_state(generator)))
        assert generator_from(state).bit_generator.state == generator.bit_generator.state
    least = {**VALID, "state": {"state": 0, "inc": 1}}
    most = {**VALID, "state": {"state": 2**128 - 1, "inc": 2**128 - 1}, "has_uint32": 1, "uinteger": 2**32 - 1}
    for state in (least, most):
        assert generator_from(state).bit_generator.state == state


@pytest.mark.timeout(60)
def test_a_server_refuses_it_and_goes_on():
    pytest.importorskip("aiohttp")
    connect = pytest.importorskip("websockets.sync.client").connect
    from agent_envs.serving import EnvServer

    with (
        EnvServer([ServedEnv("AgentR1/GSM8KTool-v0")], port=0) as server,
        connect(f"ws://127.0.0.1:{server.port}/ws") as ws,
    ):

        def ask(kind, data):
            ws.send(json.dumps({"type": kind, "data": data}))
            return json.loads(ws.recv(timeout=10))

        for state in BROKEN[:-1]:  # None is the same as no state
            for kind, data in (("reset", {"rng": state}), ("demo_action", {"rng": state, "noise": 0.5})):
                reply = ask(kind, data)
                assert reply["type"] == "error" and "PCG64" in reply["data"]["message"], (kind, state)
        assert ask("reset", {"rng": VALID})["type"] == "observation"


@pytest.mark.timeout(60)
def test_a_client_refuses_it_from_a_server():
    pytest.importorskip("websockets")
    from websockets.sync.server import serve

    about = {
        "protocol": 1, "max_message": 1000, "split": "train", "num_tasks": 3, "messages": False, "parser": None,
        "observation_length": 10, "action_length": 10, "instructions": "", "tools": [], "tool_instructions": "",
    }  # fmt: skip
    episode = {"text": "Begin.", "info": {}, "instructions": "", "tools": [], "tool_instructions": ""}
    answers: list[object] = []

    def answer(ws):
        for _ in ws:
            ws.send(json.dumps({"type": "?", "data": answers.pop(0)}))

    with serve(answer, "127.0.0.1", 0) as strange:
        threading.Thread(target=strange.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{strange.socket.getsockname()[1]}"
        for state in BROKEN:
            answers[:] = [about, {"observation": episode, "rng": state}]
            env = RemoteEnv(url)
            with pytest.raises(BackendReplyError, match="PCG64"):
                env.reset()
            env.close()
        answers[:] = [about, {"observation": episode, "rng": VALID}]
        env = RemoteEnv(url)
        env.reset()
        for state in BROKEN:
            answers[:] = [{"value": "x", "demo_rng": state}]
            with pytest.raises(BackendReplyError, match="PCG64"):
                env.demo_action(np.random.default_rng(0), 0.5)
        env.close()
        strange.shutdown()
