"""Run an OpenAI-compatible proxy in front of a model's server: each call of an agent becomes a step with its tokens.

example:
  vllm serve Qwen/Qwen3-4B-Instruct-2507                # any OpenAI-compatible server
  agentr1 record --upstream http://localhost:8000/v1 --out runs/mine
  OPENAI_BASE_URL=http://localhost:8100/v1 python my_agent.py

The agent sends X-Episode-Id with every call, or uses the base URL http://localhost:8100/episodes/ID/v1. To end an
episode, post {"reward": 1.0} to http://localhost:8100/episodes/ID/reward, with the header X-Judge-Token: the token in
runs/mine/judge_token, which agents should not be able to read. The episodes go to runs/mine/episodes.jsonl.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from agent_envs.cli.options import AddressOptions, File, Folder, Seconds, Url, arguments_of, option, serve_until_stopped
from agent_envs.errors import ConfigError
from agent_envs.files import allow_open_files
from agent_envs.text import count_of


@dataclass(kw_only=True)
class Options(AddressOptions):
    upstream: Url = option(..., "URL of the model's server, with its /v1")
    out: Folder = option(..., "folder of episodes.jsonl; episodes are added to it")
    port: int = option(8100, "port to listen on, 0 for any")
    token_file: File | None = option(
        None, "the token that clients send as API key or X-Record-Token (default: AGENT_ENVS_TOKEN)"
    )
    upstream_key_env: str | None = option(None, "variable with the server's key (default: clients')", metavar="NAME")
    env_id: str = option("recorded", "env_id of the episodes", metavar="ID")
    episode_timeout: Seconds = option(3600.0, "end an episode after so long without a call")
    call_timeout: Seconds = option(600.0, "fail a call after so long without a byte from the server")
    max_request_mb: int = option(64, "largest request")
    keep_open: bool = option(False, "keep unfinished episodes open for the next start")


def run(options: Options) -> str:
    from agent_envs.recording import RecordingServer
    from agent_envs.serving.access import read_token

    key_name = options.upstream_key_env
    if key_name is not None and not os.environ.get(key_name):
        raise ConfigError(f"the environment variable {key_name} is not set")
    server = RecordingServer(
        folder=options.out,
        token=options.token(),
        judge_token=read_token(_judge_token(Path(options.out))),
        upstream_key=None if key_name is None else os.environ[key_name],
        max_request=options.max_request_mb << 20,
        **arguments_of(RecordingServer, options),
    )
    allow_open_files()
    serve_until_stopped(server, lambda opened: f"recording {options.upstream} at {opened.url} into {options.out}")
    more = f"; {left} unfinished ones stay open for the next start" if (left := len(server.store.open)) else ""
    return f"stopped: {count_of(len(server.store.finished), 'episode')} in {server.store.path}{more}"


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
