"""`agentr1 serve`: serve environments over HTTP and WebSocket with OpenEnv's protocol."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

from agent_envs.checks import json_object, number
from agent_envs.cli.arguments import add_address, add_env_arguments, chosen_env
from agent_envs.files import allow_open_files

__all__ = ["add_arguments", "run"]

_EPILOG = """examples:
  agentr1 serve --env AgentR1/GSM8KTool-v0
  agentr1 serve --env AgentR1/ALFWorld-v0 --also 'AgentR1/HotpotQA-v0{"hops": 2}' --port 9000
  AGENT_ENVS_TOKEN=... agentr1 serve --env AgentR1/WebShop-v0 --host 0.0.0.0

A trainer connects with
  gymnasium.make("agent_envs:AgentR1/Remote-v0", url="http://HOST:PORT")
OpenEnv's own clients work too; docs/serving.md describes the protocol."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add_env_arguments(parser, split="the client's choice, or train")
    add = parser.add_argument_group("further environments").add_argument
    add(
        "--also", action="append", default=[], metavar="ID{JSON}",
        help="another environment, at /ID, in the same wrappers; may be repeated",
    )  # fmt: skip
    add(
        "--allow", action="append", metavar="NAME",
        help="an argument that clients may choose; may be repeated (default: split, unless --split is given)",
    )  # fmt: skip
    add = parser.add_argument_group("server").add_argument
    add_address(add)
    add("--workers", type=int, metavar="N", help="processes that play the episodes (default: one for each core)")
    add(
        "--worker-memory", type=float, metavar="MB",
        help="memory that a worker may take before it is replaced (default: they share four fifths of the machine's)",
    )  # fmt: skip
    add(
        "--episode-mb", type=int, default=512, metavar="MB",
        help="most megabytes of messages and answers of an episode (default: %(default)s)",
    )  # fmt: skip
    add(
        "--max-episodes", type=int, default=256, metavar="N",
        help="most episodes at the same time (default: %(default)s)",
    )  # fmt: skip
    add(
        "--max-waiting", type=int, default=1024, metavar="N",
        help="most messages that may wait for an answer (default: %(default)s)",
    )  # fmt: skip
    seconds = (
        ("--step-timeout", 120.0, "that a step may take"),
        ("--stall-timeout", 30.0, "that a step may hold its interpreter before its worker is replaced"),
        ("--idle-timeout", 1800.0, "without a message after which an episode is closed"),
        ("--ping", 20.0, "between pings, which detect clients that are gone"),
        ("--grace", 30.0, "that running steps may still take when the server stops"),
    )
    add(
        "--drain", type=float, default=0.0, metavar="SECONDS",
        help="seconds that episodes may still take when the server stops, while none begins (default: %(default)g)",
    )  # fmt: skip
    for name, default, meaning in seconds:
        add(name, type=float, default=default, metavar="SECONDS", help=f"seconds {meaning} (default: {default:g})")


def run(arguments: argparse.Namespace) -> str:
    from agent_envs.serving.access import read_token
    from agent_envs.serving.served_env import ServedEnv
    from agent_envs.serving.server import EnvServer

    choice = chosen_env(arguments)
    envs = [ServedEnv(choice.env_id, choice.env_kwargs, choice.wrappers, arguments.allow)]
    for text in arguments.also:
        env_id, brace, rest = text.partition("{")
        envs.append(ServedEnv(env_id.strip(), json_object("--also", brace + rest or None), choice.wrappers))
    grace, drain = (number(f"--{name}", getattr(arguments, name), minimum=0) for name in ("grace", "drain"))
    server = EnvServer(
        envs,
        arguments.host,
        arguments.port,
        token=read_token(arguments.token_file),
        workers=arguments.workers,
        worker_memory=arguments.worker_memory,
        episode_bytes=arguments.episode_mb << 20,
        max_episodes=arguments.max_episodes,
        max_waiting=arguments.max_waiting,
        step_timeout=arguments.step_timeout,
        stall_timeout=arguments.stall_timeout,
        idle_timeout=arguments.idle_timeout,
        ping=arguments.ping,
    )

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
