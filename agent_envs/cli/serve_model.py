"""Serve a model with vLLM's OpenAI server, whose flags for tool calls are those of the model's chat template.

examples:
  agentr1 serve-model models/mine --port 8000
  agentr1 serve-model runs/mine --name mine --engine '{"tensor_parallel_size": 2, "max_model_len": 16384}'
  agentr1 chat --env AgentR1/HotpotQA-v0 --base-url http://127.0.0.1:8000/v1 --model mine
  agentr1 eval --env AgentR1/HotpotQA-v0 --base-url http://127.0.0.1:8000/v1 --model mine --n 200
  AGENT_ENVS_TOKEN=... agentr1 serve-model models/mine --host 0.0.0.0      # clients: OPENAI_API_KEY=...
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_envs.checks import json_object
from agent_envs.cli.options import AddressOptions, File, Json, option
from agent_envs.errors import ConfigError, MissingExtraError
from agent_envs.files import read_text
from agent_envs.policies.named import model_path

# What a chat template writes in a call, and vLLM's parser of it. If several match, the first is right.
_TOOL_PARSERS = (
    ("<|channel|>", "openai"),
    ("<｜tool▁call", "deepseek_v31"),
    ("[TOOL_CALLS]", "mistral"),
    ("<function=", "qwen3_coder"),
    ("<arg_key>", "glm45"),
    ("<tool_call>", "hermes"),
    ("<|python_tag|>", "llama3_json"),
)


@dataclass(kw_only=True)
class Options(AddressOptions):
    model: str = option(..., "a Hugging Face folder or name, or a run or checkpoint, which is converted first", "model")
    name: str | None = option(None, "what clients call it (default: the folder's name)")
    tool_parser: str | None = option(None, "vLLM's parser of calls (default: by the chat template)", metavar="NAME")
    chat_template: File | None = option(None, "file with another chat template (default: the model's)")
    engine: Json | None = option(None, 'more arguments of vllm serve, such as {"max_model_len": 8192}')
    trust: bool = option(False, "run code that a checkpoint's files hold (docs/security.md)")
    dry_run: bool = option(False, "print vLLM's command instead of running it")


def run(options: Options) -> str:
    """Replace this process by the server."""
    from agent_envs.serving.access import check_binding

    token = options.token()
    check_binding(options.host, token)
    command = _command(options)
    if not options.dry_run:
        if importlib.util.find_spec("vllm") is None:
            raise MissingExtraError("vllm", "vllm")
        if token:
            os.environ["VLLM_API_KEY"] = token
        os.execv(sys.executable, command)
    return shlex.join(command)


def _command(options: Options) -> list[str]:
    model = model_path(options.model)
    folder = Path(model).expanduser()
    if folder.is_dir():
        from agent_envs.adapters.verl.run.checkpoints import hugging_face_folder

        model = str(hugging_face_folder(folder, trust=options.trust))
    name = options.name or (folder.absolute().name if folder.is_dir() else model)
    flags: dict[str, Any] = {"model": model, "served_model_name": name, "host": options.host, "port": options.port}
    if options.chat_template:
        flags["chat_template"] = options.chat_template
    template = "" if options.tool_parser else _template(options, model)
    if parser := options.tool_parser or next((parser for mark, parser in _TOOL_PARSERS if mark in template), None):
        flags |= {"enable_auto_tool_choice": True, "tool_call_parser": parser}
    else:
        print(f"{name}: its chat template has no tools; clients need --tool-mode text", file=sys.stderr)
    flags |= json_object("--engine", options.engine)
    return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *map(_flag, flags, flags.values())]


def _template(options: Options, model: str) -> str:
    from agent_envs.policies.tokens import load_tokenizer

    template = load_tokenizer(model).chat_template
    if options.chat_template:
        try:
            template = read_text(Path(options.chat_template))
        except (OSError, UnicodeDecodeError) as e:
            raise ConfigError(f"--chat-template {options.chat_template} cannot be read: {e}") from e
    if template is None:
        raise ConfigError(f"{model} has no chat template; give one with --chat-template FILE")
    return template if isinstance(template, str) else json.dumps(template, ensure_ascii=False)


def _flag(name: str, value: Any) -> str:
    """Return how vLLM's command spells an argument.

    >>> _flag("max_model_len", 8192), _flag("enforce_eager", True), _flag("enable_prefix_caching", False)
    ('--max-model-len=8192', '--enforce-eager', '--no-enable-prefix-caching')
    """
    spelled = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{spelled}" if value else f"--no-{spelled}"
    return f"--{spelled}={value if isinstance(value, str) else json.dumps(value)}"
