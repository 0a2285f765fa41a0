"""`agentr1 record`: a proxy in front of a model's server that records what an agent does."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
from pathlib import Path
from typing import Any

from agent_envs.cli.arguments import add_address
from agent_envs.errors import ConfigError
from agent_envs.files import allow_open_files

__all__ = ["add_arguments", "run"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_EPILOG = """\
example:
  vllm serve Qwen/Qwen3-4B-Instruct-2507                # any OpenAI-compatible server
  agentr1 record --upstream http://localhost:8000/v1 --out runs/mine
  OPENAI_BASE_URL=http://localhost:8100/v1 python my_agent.py

The agent sends X-Episode-Id with every call, or uses the base URL http://localhost:8100/episodes/ID/v1. To end an
episode, post {"reward": 1.0} to http://localhost:8100/episodes/ID/reward, with the header X-Judge-Token: the token in
runs/mine/judge_token, which agents should not be able to read. The episodes go to runs/mine/episodes.jsonl.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("--upstream", required=True, metavar="URL", help="URL of the model's server, with its /v1")
    add("--out", required=True, metavar="DIR", help="folder of episodes.jsonl; episodes are added to it")
    add_address(add, port=8100, sent=" as their API key or as X-Record-Token")
    add(
        "--upstream-key-env", metavar="NAME",
        help="environment variable with the server's API key (default: pass on the clients' keys)",
    )  # fmt: skip
    add("--tokenizer", metavar="NAME", help="tokenizes text if the server does not return tokens")
    add("--env-id", default="recorded", metavar="ID", help="env_id of the episodes (default: %(default)s)")
    add(
        "--episode-timeout", type=float, default=3600.0, metavar="SECONDS",
        help="end an episode after so long without a call (default: %(default)s)",
    )  # fmt: skip
    add(
        "--call-timeout", type=float, default=600.0, metavar="SECONDS",
        help="fail a call after so long without a byte from the server (default: %(default)s)",
    )  # fmt: skip
    add("--max-request-mb", type=int, default=64, metavar="MB", help="largest request (default: %(default)s)")
    add("--keep-open", action="store_true", help="keep unfinished episodes open for the next start")


def run(arguments: argparse.Namespace) -> str:
    from agent_envs.recording import RecordingServer
    from agent_envs.serving.access import read_token

    server = RecordingServer(
        arguments.upstream,
        arguments.out,
        host=arguments.host,
        port=arguments.port,
        token=read_token(arguments.token_file),
        judge_token=read_token(_judge_token(Path(arguments.out))),
        upstream_key=_secret(arguments.upstream_key_env),
        tokenizer=arguments.tokenizer,
        env_id=arguments.env_id,
        episode_timeout=arguments.episode_timeout,
        call_timeout=arguments.call_timeout,
        max_request=arguments.max_request_mb << 20,
        keep_open=arguments.keep_open,
    )

    def stop(*_: Any) -> None:
        for number in _SIGNALS:  # a second signal ends the process at once
            signal.signal(number, signal.SIG_DFL)
        server.stop()

    allow_open_files()
    with server:
        for number in _SIGNALS:
            signal.signal(number, stop)
        print(f"recording {arguments.upstream} at {server.url} into {arguments.out}", flush=True)
        server.wait()
    left = len(server.store.open)
    return f"stopped: {server.store.finished} episodes in {server.store.path}" + (
        f"; {left} unfinished ones stay open for the next start" if left else ""
    )


def _judge_token(folder: Path) -> Path:
    """Return the file with the folder's token for verdicts, which is made if there is none."""
    path = folder / "judge_token"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(f"{secrets.token_urlsafe()}\n")
    except FileExistsError:
        pass
    except OSError as e:
        raise ConfigError(f"{path} cannot be written: {e}") from e
    return path


def _secret(variable: str | None) -> str | None:
    if variable is None:
        return None
    if not os.environ.get(variable):
        raise ConfigError(f"the environment variable {variable} is not set")
    return os.environ[variable]
