"""The tools of servers of the Model Context Protocol, for tasks and checks of a user's own.

Behaviours pinned here:
1. Episodes are those of the protocol's own client: the same tools, the same results.
2. The contract of text environments holds; every episode has a server of its own; snapshots are played again.
3. A server that ends, stalls, lies or floods is a typed error within the time limit, never a reward.
4. Nothing of a server outlives its environment or the process, whatever it starts.
5. A record may not start a program; wrong arguments are one message.
"""

import asyncio
import gzip
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import pytest

from agent_envs.errors import (
    BackendDownError,
    BackendReplyError,
    BackendSlowError,
    ConfigError,
    DataError,
)
from agent_envs.testing import check_text_env
from agent_envs.wrapping.recorded import recorded_env
from tests.helpers import until

ENV_ID = "AgentR1/MCP-v0"
NOTES = Path(__file__).with_name("mcp_notes.py")
pytest.importorskip("mcp", reason="needs the extra mcp: pip install 'agent-envs[mcp]'")


def command(*arguments):
    return [sys.executable, "-I", "-S", str(NOTES), *arguments]


def call(name, **arguments):
    return {"name": name, "arguments": arguments}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    rows = []
    for index in range(200):
        texts = [f"note {index}.{number}" for number in range(index % 5)]
        rows.append({
            "question": f"How many notes are there at noon on day {index}, with one more?",
            "answer": str(len(texts) + 1),
            "setup": [call("add_note", text=text) for text in texts],
            "solution": [call("add_note", text="one more"), call("count_notes")],
        })  # fmt: skip
    file = tmp_path_factory.mktemp("mcp") / "tasks.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(file)


@pytest.fixture
def make(tasks):
    made = []

    def make(*arguments, **kwargs):
        made.append(gym.make(ENV_ID, **{"command": command(*arguments), "data": tasks, **kwargs}))
        return made[-1]

    yield make
    for env in made:
        env.close()


async def _played_by_the_protocols_client(rows):
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    played = []
    program, *arguments = command()
    for row in rows:
        server = StdioServerParameters(command=program, args=arguments)
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            calls = [*row["setup"], *row["solution"], call("find", pattern="zebra")]
            results = [await session.call_tool(each["name"], each["arguments"]) for each in calls]
            played.append([(r.content[0].text, r.isError) for r in results[len(row["setup"]) :]])
    return played


def test_episodes_are_those_of_the_protocols_client(make, tasks, episodes):
    rows = [json.loads(line) for line in Path(tasks).read_text(encoding="utf-8").splitlines()][:episodes]
    env = make()
    for index, wanted in enumerate(asyncio.run(_played_by_the_protocols_client(rows))):
        assert env.reset(options={"index": index})[0] == rows[index]["question"]
        found = []
        for each in (*rows[index]["solution"], call("find", pattern="zebra")):
            info = env.step(env.unwrapped.format_call(each["name"], each["arguments"]))[4]
            (result,) = info["tool_results"]
            found.append((result["content"].removeprefix("error: "), result["error"]))
        assert found == wanted
        _, reward, terminated, truncated, info = env.step(rows[index]["answer"])
        assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)


def test_it_keeps_the_contract(tasks):
    """With one server for all episodes, which keeps nothing: to start one takes longer than to play an episode."""
    kwargs = {"command": command("forgetful"), "data": tasks, "fresh": False}
    check_text_env(ENV_ID, env_kwargs=kwargs, vectors=False)


@pytest.mark.slow
def test_it_keeps_the_contract_with_a_server_for_each_episode_and_in_vectors(tasks):
    check_text_env(ENV_ID, env_kwargs={"command": command(), "data": tasks})


def test_episodes_do_not_share_a_server_and_snapshots_are_played_again(make):
    env = make()
    add = env.unwrapped.format_call("add_note", {"text": "a"})
    count = env.unwrapped.format_call("count_notes", {})
    env.reset(options={"index": 1})
    assert env.step(add)[0] == "Note 2 is kept."
    kept = env.unwrapped.snapshot()
    copy = pickle.loads(pickle.dumps(env))
    assert env.step(add)[0] == "Note 3 is kept."
    env.reset(options={"index": 0})
    assert env.step(count)[0] == "0"
    env.unwrapped.restore(kept)
    assert env.step(count)[0] == copy.step(count)[0] == "2"
    copy.close()
    shared = make(fresh=False)
    shared.reset(options={"index": 0})
    assert shared.step(add)[0] == "Note 1 is kept."
    shared.reset(options={"index": 0})
    assert shared.step(count)[0] == "1"


def test_a_check_of_ones_own_asks_the_server(make):
    def kept(row, answer, ask):
        return 0.5 * (ask("count_notes", {}) == "1") + 0.5 * (answer == "done")

    env = make(check=kept)
    env.reset(options={"index": 0})
    env.step(env.unwrapped.format_call("add_note", {"text": "a"}))
    _, reward, terminated, _, info = env.step("<think>I think so</think> done")
    assert (reward, terminated, info["success"]) == (1.0, True, True)
    env.reset(options={"index": 0})
    assert env.step("done")[1] == 0.5


def test_the_servers_words_are_instructions_tools_and_results(make):
    env = make("slow pattern")
    assert env.unwrapped.instructions.endswith("Keep notes.")
    names = [tool["function"]["name"] for tool in env.unwrapped.tools]
    assert names == ["add_note", "count_notes", "find"]
    env.reset(options={"index": 0})
    begin = time.monotonic()
    observation = env.step(env.unwrapped.format_call("find", {"pattern": "a" * 60 + "!"}))[0]
    assert observation == "error: There is no such note." and time.monotonic() - begin < 5
    invalid = env.step(env.unwrapped.format_call("add_note", {"text": 3}))[4]
    assert invalid["invalid_action"]


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ("ends", BackendDownError, r"ends with: \x1b\[2Jout of notes"),
        ("stalls", BackendSlowError, "0.5 seconds"),
        ("lies", BackendReplyError, "answered what it should not"),
        ("endless", BackendReplyError, "a line of over"),
    ],
)
def test_a_broken_server_is_an_error(make, fault, error, message):
    env = make(fault, timeout=0.5 if fault == "stalls" else 20)
    env.reset(options={"index": 0})
    with pytest.raises(error, match=message):
        env.step(env.unwrapped.format_call("count_notes", {}))
    assert env.reset(options={"index": 0})[1]["index"] == 0  # the next episode has a server again


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ("mute", BackendSlowError, "start"),
        ("version", BackendReplyError, "1066"),
        ('{"tools": [{"name": "f", "inputSchema": {"$ref": "file:///x"}}]}', BackendReplyError, "to nothing outside"),
        ('{"tools": 3}', BackendReplyError, "start"),
        ("same names", BackendReplyError, "two tools of one name"),
    ],
)
def test_a_server_that_cannot_be_used(make, fault, error, message):
    with pytest.raises(error, match=message):
        make(fault, start_timeout=0.7 if fault == "mute" else 20)


def test_a_tool_that_cannot_be_offered_is_left_out(make, caplog):
    env = make("outside")
    assert [tool["function"]["name"] for tool in env.unwrapped.tools] == ["count_notes", "find"]
    assert "the tool 'add_note' is left out: the schema must refer to nothing outside of it" in caplog.text


def _part(**fields):
    return {"result": {"content": [{"type": "text", **fields}]}}


ANSWERS = [
    *(({"error": {"code": code, "message": "no such file"}}, "error: no such file") for code in
      (-32602, -32601, -32603, -32700, -32600, -32000, -32002, -32042, 0, 1, 404)),
    ({"error": {"code": -32000, "message": "Connection closed"}}, "error: Connection closed"),  # of a database
    ({"error": {"code": 5, "message": ""}}, "error: failed with code 5"),
    (_part(text=""), ""),
    (_part(text=None), ""),
    (_part(text="a\ud800"), "a\ufffd"),
    ({"result": {}}, ""),
    ({"result": {"content": None, "structuredContent": {"n": 1}, "isError": None}}, '{"n": 1}'),
    ({"result": {"content": [], "isError": True}}, "error: "),
    ({"result": {"content": [{"type": "novel", "uri": "x://y"}, {"type": "image", "data": "", "mimeType": "a/b"}]}},
     "[novel: x://y]\n[image: a/b]"),
    ({"result": {"content": [{"type": "resource", "resource": {"text": ""}}, {}]}}, "\n[None: no type]"),
]  # fmt: skip


def test_whatever_a_tool_answers_is_a_result(make):
    """One server gives all the answers: none of them is its end."""
    env = make(json.dumps({"answers": [answer for answer, _ in ANSWERS]})).unwrapped
    env.reset(options={"index": 0})
    for answer, shown in ANSWERS:
        observation, _, terminated, _, info = env.step(env.format_call("count_notes", {}))
        assert observation == shown and not terminated and not info["invalid_action"], answer
        assert info["tool_results"][0]["error"] is shown.startswith("error")


def test_whatever_a_policy_writes_reaches_the_server(make):
    env = make(json.dumps({"tools": [{"name": "add_note", "inputSchema": {}}]}))
    env.reset(options={"index": 0})
    for arguments, said in (
        ('{"text": "\\ud83d", "\\ud800": 1}', "Note 1 is kept."),
        ('{"text": "a", "self": null, "name": 2, "arguments": {}, "call": []}', "Note 2 is kept."),
        ('{"text": NaN}', "error: the tool call is not valid JSON: NaN is no finite number"),
    ):
        action = f'<tool_call>{{"name": "add_note", "arguments": {arguments}}}</tool_call>'
        assert env.step(action)[0].startswith(said)


def test_a_server_that_answers_otherwise_cannot_be_played_again(make):
    env = make("clock")
    env.reset(options={"index": 0})
    env.step(env.unwrapped.format_call("count_notes", {}))
    kept = env.unwrapped.snapshot()
    env.reset(options={"index": 0})
    env.unwrapped.restore(kept)
    with pytest.raises(BackendReplyError, match="same way when an episode is played again"):
        env.step(env.unwrapped.format_call("count_notes", {}))


def _gone(pids, seconds=5.0):
    return until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pids), seconds)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_nothing_outlives_the_environment(make, tmp_path):
    env = make(f"children:{tmp_path / 'pids'}")
    pids = (tmp_path / "pids").read_text().split()
    assert not _gone(pids, 0.1)
    env.close()
    assert _gone(pids)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_nothing_outlives_a_killed_process(tasks, tmp_path):
    server = command(f"children:{tmp_path / 'pids'}")
    code = (
        "import time, gymnasium as gym, agent_envs\n"
        f"env = gym.make({ENV_ID!r}, command={server!r}, data={tasks!r})\n"
        "print('made', flush=True)\ntime.sleep(100)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=os.environ)
    try:
        assert process.stdout.readline() == b"made\n"
        pids = (tmp_path / "pids").read_text().split()
        assert not _gone(pids, 0.1)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert _gone(pids)


def notes(asked, number):
    """A server over HTTP with one tool; the path says which fault its answers to calls have."""
    if asked.method == "GET":
        return 405, b""
    message, fault = json.loads(asked.body), asked.path.strip("/")
    if asked.headers.get("Authorization") != "Bearer open sesame":
        return 401, b""
    if "id" not in message:
        return 202, b""
    result = {"content": [{"type": "text", "text": "counted"}]}
    if message["method"] == "initialize":
        version = message["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "n", "version": "1"}}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": "count", "inputSchema": {"type": "object"}}]}
    elif fault == "stalls":
        time.sleep(3)
    elif fault == "fails":
        return 500, b"no such luck"
    elif fault == "lies":
        result = [1]
    elif fault == "packed":
        return 200, gzip.compress(b" " * 10_000_000), {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    elif fault == "elsewhere":
        return 307, b"", {"Location": "http://127.0.0.2:9/mcp"}
    return 200, {"jsonrpc": "2.0", "id": message["id"], "result": result}, {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("", None),
        ("stalls", BackendSlowError),
        ("fails", BackendReplyError),
        ("lies", BackendReplyError),
        ("packed", BackendReplyError),
        ("elsewhere", BackendReplyError),
    ],
)
def test_a_server_over_http(make, fake_service, monkeypatch, fault, error):
    monkeypatch.setenv("NOTES_TOKEN", "open sesame")
    arguments = {
        "command": [],
        "url": f"{fake_service(notes).url}/{fault}",
        "token_variable": "NOTES_TOKEN",
        "fresh": False,
    }
    env = make(**arguments, timeout=0.7 if fault == "stalls" else 10)
    env.reset(options={"index": 0})
    call_it = env.unwrapped.format_call("count", {})
    if error is None:
        assert env.step(call_it)[0] == "counted"
        return
    begin = time.monotonic()
    with pytest.raises(error):
        env.step(call_it)
    assert time.monotonic() - begin < 8


def test_a_server_that_refuses_the_token(make, fake_service, monkeypatch):
    monkeypatch.setenv("NOTES_TOKEN", "wrong")
    with pytest.raises(BackendReplyError, match="401"):
        make(command=[], url=fake_service(notes).url, token_variable="NOTES_TOKEN")


def test_a_record_may_not_start_a_program(tasks):
    record = {"env": ENV_ID, "env_kwargs": {"command": ["true"], "data": tasks}}
    with pytest.raises(ConfigError, match="a record may not set"):
        recorded_env(record, "run.json")
    with pytest.raises(ConfigError, match="a record may not set"):
        recorded_env(record, "run.json", env_id=ENV_ID)
    assert recorded_env(record, "run.json", trust=True).env_id == ENV_ID


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"command": []}, ConfigError, "give either command"),
        ({"command": "echo hello"}, ConfigError, "a list of strings"),
        ({"command": ["no-such-program-here"]}, ConfigError, "no program 'no-such-program-here'"),
        ({"command": [], "url": "ftp://x"}, ConfigError, "http://127.0.0.1"),
        ({"environment": ["NO_SUCH_VARIABLE"]}, ConfigError, "is not set"),
        ({"data": "generated"}, ConfigError, "path of a file"),
        ({"data": "no/such/file.jsonl"}, DataError, "no/such/file"),
        ({"timeout": 0}, ConfigError, "timeout"),
        ({"check": "no_such_module:check"}, ConfigError, "no_such_module"),
        ({"tools": []}, ConfigError, "'tools'"),
        ({"command": [], "url": "http://127.0.0.1:9/mcp"}, BackendDownError, "cannot be reached"),
    ],
)
def test_wrong_arguments(make, kwargs, error, message):
    with pytest.raises(error, match=message):
        make(**kwargs)
