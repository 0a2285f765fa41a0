"""Serve environments over WebSockets with OpenEnv's protocol: one episode per client.

examples:
  agentr1 serve --env AgentR1/GSM8KTool-v0
  agentr1 serve --env AgentR1/ALFWorld-v0 --also 'AgentR1/HotpotQA-v0{"hops": 2}' --port 9000
  AGENT_ENVS_TOKEN=... agentr1 serve --env AgentR1/WebShop-v0 --host 0.0.0.0

A trainer connects with
  gymnasium.make("agent_envs:AgentR1/Remote-v0", url="http://HOST:PORT")
OpenEnv's own clients work too; docs/serving.md and EnvServer's docstring describe the protocol.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from dataclasses import dataclass

from agent_envs.checks import argument_names, json_object, number
from agent_envs.cli.environments import RunOptions
from agent_envs.cli.options import AddressOptions, given_options, option
from agent_envs.files import allow_open_files


@dataclass(kw_only=True)
class _LimitOptions(AddressOptions):
    group = "server"
    workers: int | None = option(None, "processes that play the episodes (default: one for each core)")
    worker_memory: float | None = option(None, "MB at which a worker is replaced (default: 4/5 of all, shared)")
    episode_mb: int = option(512, "most megabytes of messages and answers of an episode")
    max_episodes: int = option(256, "most episodes at the same time")
    max_waiting: int = option(1024, "most messages that may wait for an answer")
    drain: float = option(0.0, "seconds that episodes may still take when the server stops, while none begins")
    step_timeout: float = option(120.0, "seconds that a step may take")
    stall_timeout: float = option(30.0, "seconds that a step may hold its interpreter before its worker is replaced")
    idle_timeout: float = option(1800.0, "seconds without a message after which an episode is closed")
    ping: float = option(20.0, "seconds between pings, which detect clients that are gone")
    grace: float = option(30.0, "seconds that running steps may still take when the server stops")


@dataclass(kw_only=True)
class Options(RunOptions, _LimitOptions):
    group = "further environments"
    split: str | None = option(None, "split to take tasks from (default: the client's choice, or train)")
    also: list[str] = option([], "another environment, at /ID; may be repeated", metavar="ID{JSON}")
    allow: list[str] = option([], "argument that clients may choose; may be repeated (default: split)", metavar="NAME")


def run(options: Options) -> str:
    from agent_envs.serving.limits import Limits
    from agent_envs.serving.served_env import ServedEnv
    from agent_envs.serving.server import EnvServer

    choice = options.chosen_env()
    envs = [ServedEnv(choice.env_id, choice.env_kwargs, choice.wrappers, options.allow or None)]
    for text in options.also:
        env_id, brace, rest = text.partition("{")
        envs.append(ServedEnv(env_id.strip(), json_object("--also", brace + rest or None), choice.wrappers))
    grace, drain = (number(f"--{name}", getattr(options, name), minimum=0) for name in ("grace", "drain"))
    limits = {**given_options(options, argument_names(Limits)), "episode_bytes": options.episode_mb << 20}
    server = EnvServer(envs, options.host, options.port, token=options.token(), **limits)
    allow_open_files()

    async def serve() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        signals = (signal.SIGINT, signal.SIGTERM)
        opening = asyncio.ensure_future(server.open())
        for signum in signals:  # loading an index may take minutes
            loop.add_signal_handler(signum, opening.cancel)
        await opening
        if server.pool.limits.workers:  # environments leave their garbage elsewhere
            server.listener.collect_garbage()
        for signum in signals:
            loop.add_signal_handler(signum, stop.set)
        print(f"serving {', '.join(server.pool.envs)} at {server.url}", flush=True)
        await stop.wait()
        for signum in signals:  # a second one ends the process at once
            loop.remove_signal_handler(signum)
        what = f"episodes may go on for {drain:g} s, none begins" if drain else "running steps may finish"
        print(f"stopping; {what}", file=sys.stderr, flush=True)
        await server.shut_down(grace, drain)

    try:
        asyncio.run(serve())
    except asyncio.CancelledError as e:
        raise KeyboardInterrupt from e
    return "stopped"
