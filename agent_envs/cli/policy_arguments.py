"""Who plays: the arguments that name a policy are the same in every command that needs one.

    parser: add_policy_arguments(parser)
    run:    policy = chosen_policy(arguments, seed=0)

A policy is a row of `POLICIES`: the options it reads and a function that makes it, which imports what it needs. Without
`--policy` a checkpoint or a folder is run in this process, and any other model is a server's.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agent_envs.cli.env_arguments import json_object
from agent_envs.errors import ConfigError, did_you_mean
from agent_envs.policies.policy import Policy

__all__ = ["POLICIES", "PolicyKind", "add_policy_arguments", "chosen_policies", "chosen_policy", "policy_settings"]


class PolicyKind(NamedTuple):
    """A kind of policy that `--policy` can name."""

    make: Callable[[dict[str, Any], int], Policy]
    """From the options that were given (their names with underscores) and a seed to the policy."""
    options: tuple[str, ...]
    """Names of the options it reads; any other that is given is refused."""
    needs: tuple[str, ...]
    """Names of the options it cannot do without."""
    help: str
    """A few words for `--help`."""
    seeded: bool = True
    """Whether what it draws depends on its seed and the task alone: samples of a task then need seeds of their own."""


def _openai(options: dict[str, Any], seed: int) -> Policy:
    from agent_envs.policies import OpenAIPolicy

    url = options.get("base_url")
    if url is not None and not url.startswith(("http://", "https://")):
        raise ConfigError(f"--base-url is an address such as http://localhost:8000/v1, got {url!r:.200}")
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
    return {**options, "template_kwargs": template_kwargs}


def _folder(options: dict[str, Any]) -> str:
    """The model to load, a checkpoint's converted first."""
    model, checkpoint = options.pop("model", None), options.pop("checkpoint", None)
    if (model is None) == (checkpoint is None):
        raise ConfigError("expected one of --model FOLDER and --checkpoint FOLDER")
    if checkpoint is None:
        return model
    from agent_envs.adapters.verl.run.checkpoints import hugging_face_folder

    return str(hugging_face_folder(checkpoint))


def _expert(options: dict[str, Any], seed: int) -> Policy:
    from agent_envs.policies import ExpertPolicy

    return ExpertPolicy(noise=options.get("demo_noise", 0.0), seed=seed)


def _random(options: dict[str, Any], seed: int) -> Policy:
    from agent_envs.policies import RandomPolicy

    return RandomPolicy(seed=seed)


_IN_PROCESS = (
    "model", "checkpoint", "temperature", "top_p", "top_k", "max_tokens", "context_length", "tool_mode", "dtype",
    "template_kwargs",
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
        "a Hugging Face model or a checkpoint of `agentr1 train`, in this process, on a CPU or GPU",
    ),
    "vllm": PolicyKind(_vllm, (*_IN_PROCESS, "engine"), (), "the same in vLLM's engine, which this process starts"),
    "expert": PolicyKind(_expert, ("demo_noise",), (), "the environment's own solver"),
    "random": PolicyKind(_random, (), (), "random valid actions"),
}  # fmt: skip
"""What `--policy` can name."""

# What does not change what a policy answers: a stopped run may go on with other values.
_HARMLESS = frozenset({"timeout", "stream", "stall_timeout", "max_retries", "max_wait", "max_in_flight", "device"})


def add_policy_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--policy` and the options of all policies.

    Args:
        parser: A command's parser.
    """
    group = parser.add_argument_group("policy", "who plays; the key of a server comes from OPENAI_API_KEY")
    add = group.add_argument
    kinds = "; ".join(f"{name}: {kind.help}" for name, kind in POLICIES.items())
    said = "default: transformers with --checkpoint or a folder as --model, else openai"
    add("--policy", metavar="NAME", help=f"{kinds} ({said})")
    add("--model", help="the model's name at the server, or a Hugging Face folder or name")
    add(
        "--checkpoint",
        metavar="DIR",
        help="instead of --model: what `agentr1 train` left, its --out or a global_step_N",
    )
    add("--base-url", metavar="URL", help="the server, such as http://localhost:8000/v1 (default: OPENAI_BASE_URL)")
    add(
        "--temperature", type=float, help="sampling temperature; 0 is greedy (default: the server's; 1 in this process)"
    )
    add("--top-p", type=float, help="nucleus sampling (default: the server's; 1 in this process)")
    add("--top-k", type=int, metavar="K", help="in this process: sample among the K likeliest tokens (default: all)")
    add("--max-tokens", type=int, metavar="N", help="tokens of one response at most")
    add("--context-length", type=int, metavar="N", help="in this process: tokens of prompt and response at most")
    add("--tool-mode", choices=("native", "text"), help="tools as tools= of the request, or told in the prompt")
    add("--logprobs", action="store_true", default=None, help="record log-probabilities of the sampled tokens")
    add("--token-ids", action="store_true", default=None, help="record the tokens themselves (vLLM, SGLang)")
    add("--keep-reasoning", action="store_true", default=None, help="keep what the server tells apart as reasoning")
    add("--max-episode-tokens", type=int, metavar="N", help="prompt and response tokens an episode may use")
    add("--max-in-flight", type=int, metavar="N", help="requests at the same time (default: one per episode)")
    add("--timeout", type=float, metavar="SECONDS", help="of one request (default: 600)")
    add("--stream", action="store_true", default=None, help="stream replies, so that a server that stalls is noticed")
    add("--stall-timeout", type=float, metavar="SECONDS", help="with --stream: of silence (default: 60)")
    add("--max-retries", type=int, metavar="N", help="further attempts of a failed request (default: 5)")
    add("--max-wait", type=float, metavar="SECONDS", help="a request waits for rate limits (default: 600)")
    add("--request", metavar="JSON", help='further fields of each request, such as {"extra_body": {"top_k": 20}}')
    add("--device", help="transformers: such as cpu or cuda:1 (default: a GPU where there is one)")
    add("--dtype", help="in this process: of the weights, such as bfloat16")
    add("--template-kwargs", metavar="JSON", help='in this process: of the chat template: {"enable_thinking": false}')
    add("--engine", metavar="JSON", help='vllm: further arguments of its engine, such as {"tensor_parallel_size": 2}')
    add("--best-of", type=int, metavar="N", help="play the best of N candidates for every action")
    add("--best-by", choices=("majority", "logprob", "reward"), help="what is best (default: majority; reward cheats)")
    add("--demo-noise", type=float, metavar="P", help="expert: share of calls that are wrong on purpose")


def _best(policy: Policy, arguments: argparse.Namespace) -> Policy:
    """The policy as it is, or the best of its candidates."""
    if arguments.best_of is None:
        if arguments.best_by is not None:
            raise ConfigError("--best-by says how --best-of chooses: give --best-of N too")
        return policy
    from agent_envs.policies import BestOfN

    return BestOfN(policy, arguments.best_of, arguments.best_by or "majority")


def chosen_policy(arguments: argparse.Namespace, *, seed: int = 0) -> Policy:
    """The policy that parsed arguments name.

    Args:
        arguments: With what `add_policy_arguments` added.
        seed: Of a policy that draws.

    Raises:
        ConfigError: There is no such policy, it needs an option that is missing, or does not read one that is given.
        MissingExtraError: It needs a package that is not installed.
    """
    _, kind, options = _chosen(arguments)
    return _best(kind.make(dict(options), seed), arguments)


def chosen_policies(arguments: argparse.Namespace, samples: int, *, seed: int = 0) -> list[Policy]:
    """The policy of each sample of a task: the same one, or one with a seed of its own where samples need that.

    Args:
        arguments: With what `add_policy_arguments` added.
        samples: Episodes per task.
        seed: Of a policy that draws; sample i has seed + i.

    Raises:
        ConfigError: As `chosen_policy`.
    """
    _, kind, options = _chosen(arguments)
    policy: Any = kind.make(dict(options), seed)
    seeded = [policy.with_seed(seed + sample) if kind.seeded else policy for sample in range(samples)]
    return [_best(one, arguments) for one in seeded]


def policy_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the answers of a policy depend on, by name: its kind and its options, without time-outs and the like.

    Raises:
        ConfigError: As `chosen_policy`.
    """
    name, _, options = _chosen(arguments)
    settings = {"policy": name, **{name: v for name, v in options.items() if name not in _HARMLESS}}
    if "request" in settings:
        settings["request"] = _without_secrets(json_object("--request", settings["request"]))
    if arguments.best_of is not None:
        settings |= {"best_of": arguments.best_of, "best_by": arguments.best_by or "majority"}
    return settings


def _without_secrets(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request's fields as they may be written down: of headers and of an address's query the names alone.

    >>> _without_secrets({"top_p": 0.9, "extra_headers": {"X-Key": "secret"}})
    {'top_p': 0.9, 'extra_headers': ['X-Key']}
    """
    return {
        name: sorted(value) if name in ("extra_headers", "extra_query") and isinstance(value, Mapping) else value
        for name, value in request.items()
    }


def _chosen(arguments: argparse.Namespace) -> tuple[str, PolicyKind, Mapping[str, Any]]:
    """The name of the policy, its kind, and the options that were given."""
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
    given = {k: v for k, v in vars(arguments).items() if k in every and v is not None}
    for option in sorted(given.keys() - set(kind.options)):
        readers = ", ".join(other for other, row in POLICIES.items() if option in row.options)
        raise ConfigError(f"{_spelled(option)} is not read by --policy {name} (but by {readers}); leave it out")
    for option in kind.needs:
        if option not in given:
            raise ConfigError(f"--policy {name} needs {_spelled(option)}: {kind.help}")
    return name, kind, given


def _is_path(model: str | None) -> bool:
    """Whether a model can only be meant as a folder."""
    return model is not None and (os.path.isabs(model) or model.startswith(("./", "../", "~")))


def _spelled(option: str) -> str:
    return "--" + option.replace("_", "-")
