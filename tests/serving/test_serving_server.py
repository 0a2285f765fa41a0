"""What a server does with clients: many at once, slow ones, hostile ones, vanished ones, and its own end.

1. A step that blocks keeps nobody waiting; one that takes too long ends its episode with a clear error.
2. No message, whatever its form, is answered by anything but a clear error, and none leaves anything behind.
3. A client that is gone, also without a word, frees its place; beyond the limits there is a clear refusal.
4. Only who has the token, or is on this machine and no web page, is answered.
5. SIGTERM lets running steps finish, closes episodes and ends with status 0; with time to drain, it lets running
   episodes finish, begins none, and says so to load balancers.
6. What is counted is what happened, in the format of Prometheus.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import json
import os
import re
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import gymnasium as gym
import pytest

from agent_envs import errors
from agent_envs.serving import EnvServer, RemoteEnv, ServedEnv
from agent_envs.serving.access import check_binding, is_loopback, read_token
from agent_envs.serving.session import Session
from tests.helpers import until
from tests.serving.odd_env import ODD, ODD_ID, started

pytest.importorskip("aiohttp")
connect = pytest.importorskip("websockets.sync.client").connect
ConnectionClosed = pytest.importorskip("websockets.exceptions").ConnectionClosed
InvalidStatus = pytest.importorskip("websockets.exceptions").InvalidStatus

TOOL = "AgentR1/GSM8KTool-v0"
TOKEN = "a-token-of-some-length"


@contextlib.contextmanager
def serving(*ids, **limits):
    """A server that plays in this process, which is quicker to start and knows the slow environment."""
    with EnvServer([ServedEnv(i) for i in ids or (TOOL,)], port=0, **{"workers": 0, **limits}) as server:
        yield server
        assert until(lambda: server.pool.episodes == 0 and not server.pool.open), "a place was not freed"


@contextlib.contextmanager
def socket_to(server, path="/ws", **options):
    with connect(f"ws://127.0.0.1:{server.port}{path}", compression=None, max_size=None, **options) as ws:

        def ask(message, raw=False):
            ws.send(message if raw else json.dumps(message))
            return json.loads(ws.recv(timeout=10))

        ask.ws = ws
        yield ask


def asked(url, path):
    """Status and content of a plain request."""
    try:
        with urllib.request.urlopen(url + path, timeout=10) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as e:
        with e:
            return e.code, json.loads(e.read())


def test_blocking_steps_keep_nobody_waiting(tmp_path):
    with serving(ODD) as server, ThreadPoolExecutor(25) as pool:
        envs = [RemoteEnv(server.url) for _ in range(25)]
        for env in envs:
            env.reset(seed=0)
        quick, *sleepers = envs
        for mark in (tmp_path / "first", tmp_path / "second"):  # at first nobody knows that they are slow
            sleeping = [pool.submit(env.step, f"wait {mark}") for env in sleepers]
            for _ in range(25):
                assert quick.step("x")[0] == "done x"
            assert until(lambda begun=f"{mark}.begun": os.path.getsize(begun) == 24, seconds=30), "not side by side"
            assert not any(future.done() for future in sleeping)
            mark.touch()
            assert [future.result(timeout=30)[0] for future in sleeping] == [f"done wait {mark}"] * 24
        for env in envs:
            env.close()


def test_the_first_message_does_not_overtake_its_session(monkeypatch):
    class Slow(Session):
        def __init__(self, *arguments):
            time.sleep(0.1)  # longer than a worker waits until another thread reads
            super().__init__(*arguments)

    monkeypatch.setattr("agent_envs.serving.worker.Session", Slow)
    with serving() as server, socket_to(server) as ask:
        assert ask({"type": "reset"})["type"] == "observation"


def test_it_runs_on_another_event_loop(monkeypatch):
    uvloop = pytest.importorskip("uvloop")  # Ray's processes use it where it is installed
    monkeypatch.setattr(asyncio, "new_event_loop", uvloop.new_event_loop)
    with serving() as server, contextlib.closing(RemoteEnv(server.url)) as env:
        env.reset(seed=0)
        assert asked(server.url, "/health")[0] == 200


def test_garbage_is_collected_when_connections_have_closed(monkeypatch):
    monkeypatch.setattr("agent_envs.serving.listener._COLLECT_AFTER", 2)
    monkeypatch.setattr("agent_envs.serving.listener._TICK", 0.05)
    before, collected = gc.get_threshold(), []

    def note(phase, info):
        if phase == "stop" and info["generation"] == 2:
            collected.append(info)

    gc.callbacks.append(note)
    try:
        with serving() as server:
            server.listener.collect_garbage()
            for number in range(3):
                assert not collected, number
                with socket_to(server):
                    pass
            assert until(lambda: collected, seconds=30), "nobody collects it"
            assert until(lambda: server.listener.closed == 0, seconds=30)
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)


def test_a_server_that_stood_still_does_not_take_its_workers_for_silent():
    async def stand_still(pool):
        (worker,) = pool.workers
        worker.asked = asyncio.get_running_loop().time()  # its answer comes while nobody reads
        time.sleep(1.5)
        await asyncio.sleep(0.3)  # the limits are looked at
        worker.asked = None
        return len(pool.workers)

    with serving(workers=1) as server:
        asked = asyncio.run_coroutine_threadsafe(stand_still(server.pool), server.listener.loop)
        assert asked.result(30) == 1


def test_a_step_that_takes_too_long_ends_its_episode():
    with serving(ODD, step_timeout=0.2, max_episodes=2) as server:
        env, other = RemoteEnv(server.url), RemoteEnv(server.url)
        env.reset(seed=0)
        other.reset(seed=0)
        with pytest.raises(errors.BackendSlowError, match=r"in 0\.2 seconds; the episode is lost"):
            env.step("sleep 1")
        with pytest.raises(gym.error.ResetNeeded, match="lost"):
            env.step("x")
        assert other.step("x")[0] == "done x"
        with pytest.raises(errors.BackendBusyError, match="2 of 2 episodes"):
            RemoteEnv(server.url, busy_timeout=0.1)  # a step that hangs keeps its place: it cannot be stopped
        third = RemoteEnv(server.url)
        third.reset(seed=0)
        for each in (env, other, third):
            each.close()


def test_silent_clients_lose_their_episode_and_can_begin_another():
    with serving(ODD, idle_timeout=0.2) as server:
        env = RemoteEnv(server.url)
        env.reset(seed=0)
        assert until(lambda: server.pool.episodes == 0)
        with pytest.raises(errors.BackendDownError, match=r"no message in 0\.2 seconds|ended"):
            env.step("x")
        assert env.reset(seed=0)[0] == "Begin."
        assert until(lambda: server.pool.episodes == 0)
        assert env.reset(seed=0)[0] == "Begin."
        env.close()


@pytest.mark.parametrize(
    ("message", "code", "words"),
    [
        ("", "INVALID_JSON", "expected JSON"),
        ("{", "INVALID_JSON", "expected JSON"),
        ("\x00", "INVALID_JSON", "expected JSON"),
        (b"\xff\xfe", "INVALID_JSON", "expected JSON"),
        ("[" * 200_000, "INVALID_JSON", "expected JSON"),
        ("9" * 10_000, "INVALID_JSON", "expected JSON"),
        ("[]", "VALIDATION_ERROR", "got list"),
        ("null", "VALIDATION_ERROR", "got NoneType"),
        ("{}", "UNKNOWN_TYPE", "unknown message type None"),
        ('{"type": "nope"}', "UNKNOWN_TYPE", "the types are reset, step"),
        ('{"type": ["reset"]}', "UNKNOWN_TYPE", "unknown message type"),
        ('{"type": "__init__"}', "UNKNOWN_TYPE", "unknown message type"),
        ('{"type": "reset", "data": []}', "VALIDATION_ERROR", "must be an object, got list"),
        ('{"type": "reset", "data": {"sed": 1}}', "VALIDATION_ERROR", "got 'sed'"),
        ('{"type": "reset", "data": {"seed": -1}}', "VALIDATION_ERROR", "seed must be"),
        ('{"type": "reset", "data": {"seed": true}}', "VALIDATION_ERROR", "seed must be"),
        ('{"type": "reset", "data": {"seed": 1e400}}', "VALIDATION_ERROR", "seed must be"),
        ('{"type": "reset", "data": {"options": 3}}', "VALIDATION_ERROR", "options must be"),
        ('{"type": "reset", "data": {"index": "../etc"}}', "VALIDATION_ERROR", "must be an integer"),
        ('{"type": "reset", "data": {"index": 99999999999999999999}}', "VALIDATION_ERROR", "tasks 0 to"),
        ('{"type": "reset", "data": {"rng": {"state": {"state": 0, "inc": 0}}}}', "VALIDATION_ERROR", "got 'rng'"),
        ('{"type": "step"}', "VALIDATION_ERROR", "expected an action"),
        ('{"type": "step", "data": {"text": 3}}', "VALIDATION_ERROR", "expected an action"),
        ('{"type": "step", "data": {"message": "x"}}', "VALIDATION_ERROR", "got 'message'"),
        ('{"type": "step", "data": {"text": "too early"}}', "RESET_NEEDED", "reset"),
        ('{"type": "step", "data": {"type": "call_tool", "tool_name": 3}}', "VALIDATION_ERROR", "expected a tool call"),
        ('{"type": "snapshot"}', "RESET_NEEDED", "reset"),
        ('{"type": "restore", "data": {"value": "gASVAAAA"}}', "VALIDATION_ERROR", "not a snapshot"),
        ('{"type": "restore", "data": {"value": "\\ud800"}}', "VALIDATION_ERROR", "not a snapshot"),
        ('{"type": "demo_action", "data": {"seed": -1, "noise": 0}}', "VALIDATION_ERROR", "seed must be"),
        ('{"type": "demo_action", "data": {"noise": 0}}', "VALIDATION_ERROR", "seed must be"),
        ('{"type": "hello", "data": {"protocol": 99}}', "VALIDATION_ERROR", "same version"),
    ],
)
def test_messages_that_cannot_be_understood(hostile, message, code, words):
    with socket_to(hostile) as ask:
        reply = ask(message, raw=True)
        assert reply["type"] == "error" and reply["data"]["code"] == code and words in reply["data"]["message"]
        assert len(reply["data"]["message"]) < 1000
        assert ask({"type": "reset", "data": {"seed": 1}})["type"] == "observation"  # the session goes on


def test_texts_of_megabytes_are_actions_like_any_other(hostile):
    with socket_to(hostile) as ask:
        for text in ("\ud800\x00" + "\U0010ffff" * 400_000, "x" * ((1 << 22) + 1)):
            ask({"type": "reset"})
            reply = ask({"type": "step", "data": {"text": text}})
            assert reply["type"] == "observation" and "\ud800" not in reply["data"]["observation"]["text"]


@pytest.fixture(scope="module")
def hostile():
    with serving() as server:
        yield server


def test_frames_that_are_too_large_or_no_text_end_the_connection():
    with serving(max_message=1 << 16) as server:
        with socket_to(server) as ask:
            ask.ws.send("x" * (1 << 17))
            with pytest.raises(ConnectionClosed) as caught:
                ask.ws.recv(timeout=5)
            assert caught.value.rcvd.code == 1009
        env = RemoteEnv(server.url)
        env.reset(seed=0)
        with pytest.raises(errors.ConfigError, match="the server reads at most 65536"):
            env.step("x" * (1 << 17))
        assert env.step("#### 1")[2]
        env.close()
        with socket_to(server) as ask:
            ask.ws.socket.sendall(b"\x81\x82\0\0\0\0\xff\xfe")  # a text that is no UTF-8
            with pytest.raises(ConnectionClosed) as caught:
                ask.ws.recv(timeout=5)
            assert caught.value.rcvd.code == 1007
        assert asked(server.url, "/health") == (200, {"status": "healthy"})


def test_clients_that_vanish_free_their_places(tmp_path):
    with serving(ODD, ping=0.2) as server:
        rude = []
        for _ in range(5):  # the connection is cut
            context = socket_to(server)
            ask = context.__enter__()
            ask({"type": "reset", "data": {}})
            rude.append(context)
        assert server.pool.episodes == 5
        for context in rude:
            context.gen.gi_frame.f_locals["ws"].socket.shutdown(socket.SHUT_RDWR)
        assert until(lambda: server.pool.episodes == 0)
        for context in rude:
            with contextlib.suppress(ConnectionClosed):
                context.__exit__(None, None, None)
        with socket.create_connection(("127.0.0.1", server.port)) as half:  # it stays, and never says a word again
            half.sendall(handshake())
            half.recv(4096)
            half.sendall(masked(b'{"type": "reset"}'))
            assert until(lambda: server.pool.episodes == 1)
            assert until(lambda: server.pool.episodes == 0)
        with socket_to(server) as ask:  # in the middle of a step
            ask({"type": "reset"})
            ask.ws.send(json.dumps({"type": "step", "data": {"text": f"wait {tmp_path / 'go'}"}}))
            assert until((tmp_path / "go.begun").exists)
            ask.ws.socket.shutdown(socket.SHUT_RDWR)
            assert until(lambda: not server.pool.open) and server.pool.episodes == 1
            (tmp_path / "go").touch()
            assert until(lambda: server.pool.episodes == 0)


def handshake():
    key = base64.b64encode(b"0" * 16).decode()
    return (
        "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()


def masked(content):
    return bytes((0x81, 0x80 | len(content))) + b"\0\0\0\0" + content


def test_a_client_that_writes_and_never_reads_is_cut_off():
    with serving(ping=0.2) as server, socket.create_connection(("127.0.0.1", server.port)) as deaf:
        deaf.sendall(handshake())
        deaf.recv(4096)
        message = masked(b'{"type": "reset"}')
        deaf.settimeout(0.2)
        with contextlib.suppress(OSError):
            for _ in range(2000):
                deaf.sendall(message * 100)
        assert until(lambda: not server.pool.open)


def test_a_client_that_reads_nothing_of_large_answers_is_cut_off(monkeypatch):
    """It sends few messages and stays alive: neither the limit on unanswered ones nor a ping finds it."""
    monkeypatch.setattr("agent_envs.serving.server._FAREWELL_SECONDS", 0.2)
    with serving(ping=1000, idle_timeout=1.0) as server, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        deaf.connect(("127.0.0.1", server.port))
        deaf.sendall(handshake())
        assert deaf.recv(300)
        call = {"name": "calculator", "arguments": {"expression": "x" * 8_000_000}}
        content = json.dumps({"type": "format_call", "data": call}).encode()
        deaf.sendall(masked(b'{"type": "reset"}'))
        deaf.sendall(b"\x81\xff" + len(content).to_bytes(8, "big") + b"\0\0\0\0" + content)
        assert until(lambda: not server.pool.open)


def test_beyond_the_limits_there_is_a_clear_refusal():
    with serving(ODD, max_episodes=2, max_waiting=1) as server:
        with socket_to(server) as one, socket_to(server) as two:
            assert one({"type": "reset"})["type"] == two({"type": "reset"})["type"] == "observation"
            with pytest.raises(InvalidStatus, match="503") as caught, socket_to(server):
                pass
            reply = json.loads(caught.value.response.body)
            assert reply["code"] == "CAPACITY_REACHED" and "2 of 2 episodes" in reply["detail"]
            threading.Timer(1.6, one.ws.close).start()
            waiting = RemoteEnv(server.url, connect_timeout=1.2)
            assert waiting.reset(seed=0)[0] == "Begin."  # it waited for a place
            waiting.close()
        with socket_to(server) as flood:
            with pytest.raises(ConnectionClosed) as caught:
                for _ in range(200):
                    flood.ws.send('{"type": "state"}')
                while True:
                    flood.ws.recv(timeout=5)
            assert caught.value.rcvd.code == 1008


def test_a_server_can_be_started_again_but_not_twice():
    server = EnvServer([ServedEnv(TOOL)], port=0, ping=float("inf"), workers=0)
    for _ in range(2):
        with server:
            with pytest.raises(errors.ConfigError, match="already running"):
                server.start()
            env = RemoteEnv(server.url)
            assert env.reset(seed=0)[0]
            env.close()


def test_where_tokens_come_from(tmp_path, monkeypatch):
    assert is_loopback("localhost") and not is_loopback("0.0.0.0") and not is_loopback("no.such.host.invalid")
    check_binding("0.0.0.0", TOKEN)
    monkeypatch.delenv("AGENT_ENVS_TOKEN", raising=False)
    assert read_token() is None
    (tmp_path / "token").write_text(f"{TOKEN}\n", encoding="utf-8")
    assert read_token(tmp_path / "token") == TOKEN
    (tmp_path / "short").write_text("short", encoding="utf-8")
    for path in (tmp_path / "short", tmp_path / "none", tmp_path):
        with pytest.raises(errors.ConfigError, match="token"):
            read_token(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"envs": []}, "nothing to serve"),
        ({"envs": [ServedEnv(TOOL), ServedEnv(TOOL)]}, "served once"),
        ({"max_episodes": 0}, "max_episodes"),
        ({"step_timeout": 0}, "step_timeout"),
        ({"ping": -1}, "ping"),
        ({"workers": 1025}, "workers"),
        ({"port": 99999, "workers": 0}, "cannot listen"),
        ({"envs": [ServedEnv("AgentR1/GSM9K-v0")], "workers": 0}, "GSM9K"),
        ({"envs": [ServedEnv(TOOL, {"nope": 1})], "workers": 0}, "nope"),
        ({"envs": [ServedEnv("CartPole-v1")], "workers": 0}, "not a text environment"),
        ({"envs": [ServedEnv(TOOL, {}, ["NoWrapper"])], "workers": 0}, "unknown wrapper"),
    ],
)
def test_servers_that_cannot_be(arguments, message):
    with pytest.raises(errors.ConfigError, match=message):
        EnvServer(**{"envs": [ServedEnv(TOOL)], "port": 0, **arguments}).start()
    with pytest.raises(errors.ConfigError, match="what the server sets"):
        ServedEnv(TOOL, {"split": "test"}, allow=["split"])
    with pytest.raises(errors.ConfigError, match="has no argument 'levle' that clients could choose"):
        ServedEnv(TOOL, allow=["level", "levle"])


def test_the_command_stops_when_running_steps_are_done(tmp_path):
    (tmp_path / "closed").touch()
    process, url = started(tmp_path, "--workers", "1", "--drain", "0.1", open_files=20)
    crowd = [RemoteEnv(url) for _ in range(20)]
    for env in crowd:
        env.close()
    busy, idle = RemoteEnv(url), RemoteEnv(url, connect_timeout=0.2)
    busy.reset(seed=0)
    idle.reset(seed=0)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(busy.step, "wait go")
        assert until((tmp_path / "go.begun").exists)
        process.send_signal(signal.SIGTERM)
        threading.Timer(0.5, (tmp_path / "go").touch).start()
        assert running.result()[0] == "done wait go"
    with pytest.raises(errors.BackendDownError, match="shutting down|ended"):
        idle.step("x")
    with pytest.raises(errors.BackendError, match="cannot reach|is full or shutting down"):
        idle.reset(seed=0)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out.strip()) == (
        0,
        "stopped",
    ) and err == "stopping; episodes may go on for 0.1 s, none begins\n"
    assert (tmp_path / "closed").read_text() == "xx"
    busy.close()
    idle.close()


def test_a_server_that_drains_plays_its_episodes_to_their_end():
    with serving(ODD) as server:
        playing, idle, restless = (RemoteEnv(server.url, connect_timeout=5.0, busy_timeout=0.2) for _ in range(3))
        playing.reset(seed=0)
        restless.reset(seed=0)
        assert asked(server.url, "/ready")[0] == asked(server.url, "/health")[0] == 200
        stopping = asyncio.run_coroutine_threadsafe(server.shut_down(drain=20), server.listener.loop)
        assert until(lambda: asked(server.url, "/ready")[0] == 503) and asked(server.url, "/health")[0] == 200
        with pytest.raises(errors.BackendBusyError, match="shutting down|full"):
            RemoteEnv(server.url, connect_timeout=5.0, busy_timeout=0.2)
        for env in (idle, restless):  # the one has no episode, the other gives up its own
            with pytest.raises(errors.BackendError, match="about to stop|shutting down|full"):
                env.reset(seed=0)
        assert playing.step("x")[0] == "done x" and not stopping.done()
        playing.restore(playing.snapshot())
        playing.close()
        stopping.result(10)
        idle.close()
        restless.close()


def test_an_episode_that_ends_while_the_server_drains_frees_its_client():
    with serving(TOOL) as server, EnvServer([ServedEnv(TOOL)], port=0, workers=0) as other:
        env = RemoteEnv(server.url)
        env.reset(seed=0)
        draining = asyncio.run_coroutine_threadsafe(server.pool.drain(20), server._thread.loop)
        answer = env.step(env.expert_action())
        while not answer[2]:
            answer = env.step(env.expert_action())
        assert answer[1] == 1.0
        draining.result(10)
        env._url = env._url.replace(str(server.port), str(other.port))  # as a load balancer sends new connections
        assert env.reset(seed=1)[1]["task_id"]
        assert len(other.pool.open) == 1 and not server.pool.open
        env.close()


_SAMPLE = re.compile(r'[a-z_]+(\{[a-z]+="[^"\n]*"(,le="[^"]+")?\})? [0-9.e+-]+')


def test_metrics_are_what_happened():
    with serving(TOOL, ODD, max_episodes=1, token=TOKEN) as server:
        secret = {"Authorization": f"Bearer {TOKEN}"}

        def metrics():
            request = urllib.request.Request(f"{server.url}/metrics", headers=secret)
            with urllib.request.urlopen(request, timeout=10) as reply:
                assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
                lines = reply.read().decode().splitlines()
            assert all(line.startswith("# TYPE ") or _SAMPLE.fullmatch(line) for line in lines)
            return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))

        assert asked(server.url, "/metrics")[0] == 401 and asked(server.url, "/ready") == (200, {"ready": True})
        env = RemoteEnv(server.url, env_id=ODD_ID, token=TOKEN)
        env.reset(seed=0)
        env.step("sleep 0.3")
        with pytest.raises(errors.BackendBusyError):
            RemoteEnv(server.url, token=TOKEN, busy_timeout=0.01)
        for wrong in (None, "another-token-altogether"):
            with pytest.raises(errors.ConfigError, match="requires its token"):
                RemoteEnv(server.url, token=wrong)
        with pytest.raises(errors.TaskIndexError):
            env.reset(options={"index": 10**9})
        seen = metrics()
        slow, tool = f'{{env="{ODD_ID}"}}', f'{{env="{TOOL}"}}'
        assert seen[f"agent_envs_episodes_total{slow}"] == "1" and seen[f"agent_envs_episodes_total{tool}"] == "0"
        assert seen["agent_envs_episodes"] == seen["agent_envs_episodes_limit"] == "1"
        assert seen[f"agent_envs_errors_total{slow}"] == "1" and seen[f"agent_envs_errors_total{tool}"] == "0"
        assert seen['agent_envs_refused_total{code="CAPACITY_REACHED"}'] == "1"
        for name in ("answer", "environment"):
            count = int(seen[f"agent_envs_{name}_seconds_count{slow}"])
            classes = [
                int(seen[f'agent_envs_{name}_seconds_bucket{{env="{ODD_ID}",le="{le}"}}']) for le in (0.25, "+Inf")
            ]
            assert count == classes[1] == classes[0] + 1 == 4  # hello, two resets and one slow step
            assert 0.3 <= float(seen[f"agent_envs_{name}_seconds_sum{slow}"]) < 5
        env.close()


def test_a_command_that_still_loads_its_environment_can_be_stopped(tmp_path):
    (tmp_path / "loading.py").write_text("print('loading', flush=True)\nimport time; time.sleep(60)\n")
    process, said = started(tmp_path, "--workers", "1", env=f"loading:{ODD_ID}", ready="loading")
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=30)
    finally:
        process.kill()
    assert said == "loading" and process.returncode == 130


def test_a_server_that_hangs_or_is_killed_is_a_typed_error_and_its_successor_goes_on(tmp_path):
    process, url = started(tmp_path, "--workers", "0")
    hasty, env = RemoteEnv(url, timeout=0.3), RemoteEnv(url)
    hasty.reset(seed=0)
    env.reset(seed=0)
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(errors.BackendSlowError, match=r"in 0\.3 seconds"):
        hasty.step("x" * 30_000_000)  # which does not fit the buffers
    hasty.close()
    process.kill()
    process.communicate()
    with pytest.raises(errors.BackendDownError, match="ended"):
        env.step("x")
    process, _ = started(tmp_path, "--port", url.rpartition(":")[2], "--workers", "0")
    assert env.reset(seed=0)[0] == "Begin."
    point = env.snapshot()
    assert env.step("x")[0] == "done x"
    env.restore(point)
    env.close()
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    process.communicate()


def test_the_command_refuses_bad_input(capsys, monkeypatch):
    from agent_envs.cli.main import main

    monkeypatch.delenv("AGENT_ENVS_TOKEN", raising=False)
    assert main(["serve", "--env", TOOL, "--host", "0.0.0.0"]) == 2
    assert "AGENT_ENVS_TOKEN" in capsys.readouterr().err
    assert main(["serve", "--env", TOOL, "--also", "AgentR1/GSM8K-v0{", "--port", "0"]) == 2
    assert "not valid JSON" in capsys.readouterr().err
