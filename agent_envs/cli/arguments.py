"""Arguments that several commands share, above all those that choose an environment and a policy.

    parser: add_env_arguments(parser), add_policy_arguments(parser)
    run:    env = chosen_env(arguments).make(); policy = chosen_policy(arguments, seed=0)

A policy is a row of `POLICIES`: the options it reads, and a function that makes it and imports what it needs. Without
`--policy`, a checkpoint or a folder runs in this process, and any other model is expected behind a server.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym

from agent_envs.checks import json_object, shown
from agent_envs.cli.run_env import response_limit, with_run
from agent_envs.errors import ConfigError, did_you_mean
from agent_envs.policies.policy import Policy
from agent_envs.wrapping.specs import make_text_env, parse_wrapper

__all__ = [
    "POLICIES",
    "EnvChoice",
    "PolicyKind",
    "add_address",
    "add_env_arguments",
    "add_episodes",
    "add_output_arguments",
    "add_policy_arguments",
    "chosen_env",
    "chosen_policies",
    "chosen_policy",
    "output_file",
    "policy_settings",
]


@dataclass(frozen=True, slots=True)
class EnvChoice:
    """An environment as a command line names it; its three parts are arguments of `run_episodes`."""

    env_id: str
    """What `gymnasium.make` takes: "Id" or "module:Id"."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment, among them `split` and `data` if they were given."""
    wrappers: tuple[str, ...] = ()
    """Wrapper specs, innermost first."""

    def make(self, **kwargs: Any) -> gym.Env[Any, Any]:
        """Make the environment in its wrappers; `kwargs` take precedence.

        Raises:
            ConfigError: There is no such environment, it rejects the arguments, or it is not a text environment.
        """
        return make_text_env(self.env_id, {**self.env_kwargs, **kwargs}, self.wrappers)


def add_env_arguments(
    parser: argparse.ArgumentParser,
    *,
    env: str | None = None,
    split: str = "the environment's own, train",
    data: str = "generated",
) -> None:
    """Add `--env`, `--split`, `--data`, `--env-kwargs` and `--wrapper`.

    The defaults of the first three are shown by `--help`; without one, `--env` or a run is required: `--run`.
    """
    add = parser.add_argument_group("environment").add_argument
    default = "" if env is None else f" (default: {env})"
    add(
        "--env", metavar="ID",
        help=f"an environment, such as AgentR1/GSM8KTool-v0, or your own as module:ID{default}",
    )  # fmt: skip
    add("--split", help=f"split to take tasks from (default: {split})")
    add("--data", help=f"generated, official or a path to released files (default: {data})")
    add("--env-kwargs", metavar="JSON", help="further arguments of the environment, as a JSON object")
    add("--wrapper", action="append", default=[], metavar="SPEC", help='"Name(key=value)"; may be repeated')
    if env is None:
        add(
            "--run", metavar="DIR",
            help="play what this run of `agentr1 train` or `eval` played: its environment, arguments and wrappers, "
            "where none are given here; --checkpoint does so too",
        )  # fmt: skip
        add("--bare", action="store_true", help="ignore the arguments and wrappers in the run's run.json")
        about = "let a run name code, and run code that a model's files hold (docs/security.md)"
        add("--trust", action="store_true", default=None, help=about)


def chosen_env(arguments: argparse.Namespace) -> EnvChoice:
    """Return the environment that parsed arguments name, without making it.

    Raises:
        ConfigError: `--env-kwargs` or a `--wrapper` cannot be read.
    """
    kwargs = json_object("--env-kwargs", arguments.env_kwargs)
    for name in ("split", "data"):
        if name in kwargs:
            raise ConfigError(f"--env-kwargs holds {name!r}; use --{name}")
        if vars(arguments)[name] is not None:
            kwargs[name] = vars(arguments)[name]
    for spec in arguments.wrapper:
        parse_wrapper(spec)
    env_id, wrappers = arguments.env, tuple(arguments.wrapper)
    run = vars(arguments).get("run")
    source = run or vars(arguments).get("checkpoint")
    if source and not (arguments.bare and env_id):
        found = with_run(source, env_id, kwargs, wrappers, trust=bool(arguments.trust), needed=bool(run))
        env_id, kwargs, wrappers = (found[0], kwargs, wrappers) if arguments.bare else found
    if env_id is None:
        raise ConfigError("give --env ID, such as AgentR1/GSM8KTool-v0, or --run DIR with the folder of a run")
    return EnvChoice(env_id, kwargs, wrappers)


def add_output_arguments(parser: argparse.ArgumentParser, what: str, default: str | None = None) -> None:
    """Add `--out` and `--force` to a command that writes a file; without a default, `--out` is required."""
    shown = "" if default is None else f" (default: {default})"
    parser.add_argument("--out", metavar="FILE", required=default is None, default=default, help=what + shown)
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")


def output_file(arguments: argparse.Namespace) -> Path:
    """Return the file that `--out` names.

    Raises:
        ConfigError: It exists, and `--force` is not given; or something else is there.
    """
    path = Path(arguments.out)
    if os.path.lexists(path) and not (arguments.force and path.is_file()):
        if path.is_file():
            raise ConfigError(f"--out {path} exists; choose another file, or give --force to replace it")
        raise ConfigError(f"--out {path} must be a file, and there is something else")
    return path


class PolicyKind(NamedTuple):
    """A kind of policy that `--policy` can name."""

    make: Callable[[dict[str, Any], int], Policy]
    """Makes the policy from the options that were given (names with underscores) and a seed."""
    options: tuple[str, ...]
    """Names of the options it reads; any other one is rejected."""
    needs: tuple[str, ...]
    help: str
    seeded: bool = True
    """Whether its draws depend on its seed and the task only, so that each sample of a task needs its own seed."""


def _openai(options: dict[str, Any], seed: int) -> Policy:
    from agent_envs.policies import OpenAIPolicy

    url = options.get("base_url")
    if url is not None and not url.startswith(("http://", "https://")):
        raise ConfigError(f"--base-url must be a URL such as http://localhost:8000/v1, got {shown(url)}")
    request = json_object("--request", options.pop("request", None))
    if "top_p" in options:
        request["top_p"] = options.pop("top_p")
    return OpenAIPolicy(**options, request=request)


def _transformers(options: dict[str, Any], seed: int) -> Policy:
    from agent_envs.policies import TransformersPolicy

    return TransformersPolicy(_folder(options), **_in_process(options), seed=seed)


def _vllm(options: dict[str, Any], seed: int) -> Policy:
    from agent_envs.policies import VLLMPolicy

    engine = json_object("--engine", options.pop("engine", None))
    if "dtype" in options:
        engine["dtype"] = options.pop("dtype")
    return VLLMPolicy(_folder(options), **_in_process(options), seed=seed, engine=engine)


def _in_process(options: dict[str, Any]) -> dict[str, Any]:
    template_kwargs = json_object("--template-kwargs", options.pop("template_kwargs", None))
    trust = options.pop("trust", False)
    return {**options, "template_kwargs": template_kwargs, "trust_remote_code": trust}


def _folder(options: dict[str, Any]) -> str:
    """Return the folder of the model to load; a checkpoint is converted first."""
    model, checkpoint = options.pop("model", None), options.pop("checkpoint", None)
    if (model is None) == (checkpoint is None):
        raise ConfigError("give either --model FOLDER or --checkpoint FOLDER")
    if checkpoint is None:
        return model
    from agent_envs.adapters.verl.run.checkpoints import hugging_face_folder

    return str(hugging_face_folder(checkpoint, trust=options.get("trust", False)))


def _expert(options: dict[str, Any], seed: int) -> Policy:
    from agent_envs.policies import ExpertPolicy

    return ExpertPolicy(noise=options.get("demo_noise", 0.0), seed=seed)


def _random(options: dict[str, Any], seed: int) -> Policy:
    from agent_envs.policies import RandomPolicy

    return RandomPolicy(seed=seed)


_IN_PROCESS = (
    "model", "checkpoint", "temperature", "top_p", "top_k", "max_tokens", "context_length", "tool_mode", "dtype",
    "template_kwargs", "trust",
)  # fmt: skip

POLICIES: dict[str, PolicyKind] = {
    "openai": PolicyKind(
        _openai,
        (
            "model", "base_url", "temperature", "top_p", "max_tokens", "max_episode_tokens", "tool_mode", "logprobs",
            "token_ids", "keep_reasoning", "timeout", "stream", "stall_timeout", "max_retries", "max_wait",
            "max_in_flight", "request",
        ),
        ("model",),
        "a chat model behind any OpenAI-compatible server (vLLM, SGLang, llama.cpp, OpenAI)",
        seeded=False,
    ),
    "transformers": PolicyKind(
        _transformers,
        (*_IN_PROCESS, "device"),
        (),
        "a Hugging Face model or a checkpoint of `agentr1 train` in this process, on a CPU or GPU",
    ),
    "vllm": PolicyKind(_vllm, (*_IN_PROCESS, "engine"), (), "the same with vLLM's engine in this process"),
    "expert": PolicyKind(_expert, ("demo_noise",), (), "the environment's own solver"),
    "random": PolicyKind(_random, (), (), "random valid actions"),
}  # fmt: skip
"""What `--policy` can name."""

# Options that do not change a policy's answers: a run may be resumed with other values.
_HARMLESS = frozenset(
    {"timeout", "stream", "stall_timeout", "max_retries", "max_wait", "max_in_flight", "device", "trust"}
)


def add_address(add: Callable[..., argparse.Action], *, port: int = 8000, sent: str = "") -> None:
    """Add the options of a server's address and token; `sent` says how clients send the token."""
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s, this machine only)")
    add("--port", type=int, default=port, help="port to listen on, 0 for any (default: %(default)s)")
    add(
        "--token-file", metavar="FILE",
        help=f"file with the token that clients must send{sent}; this or AGENT_ENVS_TOKEN is required beyond this "
        "machine",
    )  # fmt: skip


def add_episodes(parser: argparse.ArgumentParser) -> None:
    """Add the paths of recorded episodes."""
    parser.add_argument(
        "episodes", nargs="+", metavar="PATH",
        help="episodes.jsonl (.gz too), or a folder with such files (a run's --out)",
    )  # fmt: skip


def add_policy_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--policy` and the options of all policies."""
    group = parser.add_argument_group(
        "policy", "what chooses the actions; the server's key is read from OPENAI_API_KEY"
    )
    add = group.add_argument
    kinds = "; ".join(f"{name}: {kind.help}" for name, kind in POLICIES.items())
    default = "default: transformers with --checkpoint or a folder as --model, else openai"
    add("--policy", metavar="NAME", help=f"{kinds} ({default})")
    add("--model", help="name of the model on the server, or a Hugging Face folder or name")
    add(
        "--checkpoint", metavar="DIR",
        help="instead of --model: a run of `agentr1 train`, its --out or a global_step_N in it",
    )  # fmt: skip
    add("--base-url", metavar="URL", help="the server, such as http://localhost:8000/v1 (default: OPENAI_BASE_URL)")
    add("--temperature", type=float, help="temperature; 0 is greedy (default: the server's; 1 in this process)")
    add("--top-p", type=float, help="nucleus sampling (default: the server's; 1 in this process)")
    add("--top-k", type=int, metavar="K", help="in this process: sample among the K likeliest tokens (default: all)")
    add("--max-tokens", type=int, metavar="N", help="most tokens of a response (default: a checkpoint's in training)")
    add("--context-length", type=int, metavar="N", help="in this process: most tokens of prompt and response together")
    add(
        "--tool-mode", choices=("native", "text"),
        help="send tools as tools= of the request, or describe them in the prompt",
    )  # fmt: skip
    add("--logprobs", action="store_true", default=None, help="record log-probabilities of the sampled tokens")
    add("--token-ids", action="store_true", default=None, help="record the tokens themselves (vLLM, SGLang)")
    add("--keep-reasoning", action="store_true", default=None, help="keep what the server returns as reasoning")
    add("--max-episode-tokens", type=int, metavar="N", help="prompt and response tokens an episode may use")
    add("--max-in-flight", type=int, metavar="N", help="requests at the same time (default: one per episode)")
    add("--timeout", type=float, metavar="SECONDS", help="time limit of a request (default: 600)")
    add("--stream", action="store_true", default=None, help="stream replies, which shows when a server stalls")
    add("--stall-timeout", type=float, metavar="SECONDS", help="with --stream: longest silence (default: 60)")
    add("--max-retries", type=int, metavar="N", help="retries of a failed request (default: 5)")
    add("--max-wait", type=float, metavar="SECONDS", help="longest wait for rate limits (default: 600)")
    add("--request", metavar="JSON", help='further fields of each request, such as {"extra_body": {"top_k": 20}}')
    add("--device", help="transformers: cpu, cuda:1 or the like (default: a GPU if there is one)")
    add("--dtype", help="in this process: type of the weights, such as bfloat16")
    add(
        "--template-kwargs", metavar="JSON",
        help='in this process: arguments of the chat template, such as {"enable_thinking": false}',
    )  # fmt: skip
    add("--engine", metavar="JSON", help='vllm: further arguments of the engine, such as {"tensor_parallel_size": 2}')
    add("--best-of", type=int, metavar="N", help="sample N candidates for every action and play the best")
    add(
        "--best-by", choices=("majority", "logprob", "reward"),
        help="how to choose it (default: majority; reward cheats)",
    )  # fmt: skip
    add("--demo-noise", type=float, metavar="P", help="expert: share of actions that are wrong on purpose")


def _best(policy: Policy, arguments: argparse.Namespace) -> Policy:
    """Return the policy, wrapped to play the best of its candidates if --best-of is given."""
    if arguments.best_of is None:
        if arguments.best_by is not None:
            raise ConfigError("--best-by says how --best-of chooses; give --best-of N too")
        return policy
    from agent_envs.policies import BestOfN

    return BestOfN(policy, arguments.best_of, arguments.best_by or "majority")


def chosen_policy(arguments: argparse.Namespace, *, seed: int = 0) -> Policy:
    """Make the policy that parsed arguments name; `seed` is that of a policy that draws.

    Raises:
        ConfigError: There is no such policy, it needs a missing option, or it does not read one that is given.
        MissingExtraError: The policy needs a package that is not installed.
    """
    _, kind, options = _chosen(arguments)
    return _best(kind.make(dict(options), seed), arguments)


def chosen_policies(arguments: argparse.Namespace, samples: int, *, seed: int = 0) -> list[Policy]:
    """Make the policy of each sample of a task as `chosen_policy` does: the same one, or with seed + i if it draws."""
    _, kind, options = _chosen(arguments)
    policy: Any = kind.make(dict(options), seed)
    seeded = [policy.with_seed(seed + sample) if kind.seeded else policy for sample in range(samples)]
    return [_best(one, arguments) for one in seeded]


def policy_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that a policy's answers depend on: its kind and options, without time-outs and the like."""
    name, _, options = _chosen(arguments)
    settings = {"policy": name, **{name: v for name, v in options.items() if name not in _HARMLESS}}
    if "request" in settings:
        settings["request"] = _without_secrets(json_object("--request", settings["request"]))
    if arguments.best_of is not None:
        settings |= {"best_of": arguments.best_of, "best_by": arguments.best_by or "majority"}
    return settings


def _without_secrets(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request's fields without secrets: only the names of headers and query parameters.

    >>> _without_secrets({"top_p": 0.9, "extra_headers": {"X-Key": "secret"}})
    {'top_p': 0.9, 'extra_headers': ['X-Key']}
    """
    return {
        name: sorted(value) if name in ("extra_headers", "extra_query") and isinstance(value, Mapping) else value
        for name, value in request.items()
    }


def _chosen(arguments: argparse.Namespace) -> tuple[str, PolicyKind, Mapping[str, Any]]:
    """Return the name of the policy, its kind, and the options that were given."""
    name = arguments.policy
    if name is None:
        folder = arguments.model is not None and arguments.base_url is None and os.path.isdir(arguments.model)
        name = "transformers" if folder or arguments.checkpoint is not None else "openai"
        if name == "openai" and arguments.base_url is None and _is_path(arguments.model):
            raise ConfigError(f"--model {arguments.model}: there is no such folder")
    if name not in POLICIES:
        raise ConfigError(f"unknown policy {name!r}.{did_you_mean(name, POLICIES)}")
    kind = POLICIES[name]
    every = {option for other in POLICIES.values() for option in other.options}
    every -= {"trust"} - set(kind.options)  # it is about a run too
    given = {k: v for k, v in vars(arguments).items() if k in every and v is not None}
    for option in sorted(given.keys() - set(kind.options)):
        readers = ", ".join(other for other, row in POLICIES.items() if option in row.options)
        raise ConfigError(f"--policy {name} does not read {_spelled(option)} ({readers} can); leave it out")
    for option in kind.needs:
        if option not in given:
            raise ConfigError(f"--policy {name} needs {_spelled(option)}: {kind.help}")
    if "checkpoint" in given and "max_tokens" not in given and (limit := response_limit(given["checkpoint"])):
        given["max_tokens"] = limit
    return name, kind, given


def _is_path(model: str | None) -> bool:
    """Return whether a model can only be the path of a folder."""
    return model is not None and (os.path.isabs(model) or model.startswith(("./", "../", "~")))


def _spelled(option: str) -> str:
    return "--" + option.replace("_", "-")
