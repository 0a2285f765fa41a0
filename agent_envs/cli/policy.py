"""The policy that a command line names.

A policy is a row of `POLICIES`, made by a function that imports what it needs from the options that it reads. Without
`--policy`, a checkpoint or a folder runs in this process, and any other model is expected behind a server.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple

from agent_envs import policies
from agent_envs.checks import json_object
from agent_envs.cli.environments import RunOptions, response_limit
from agent_envs.cli.options import Folder, Json, Seconds, Url, given_options, option, refuse_unread
from agent_envs.errors import ConfigError, did_you_mean
from agent_envs.policies import MadePolicy, Policy
from agent_envs.policies.named import model_path


class PolicyKind(NamedTuple):
    """A kind of policy that `--policy` can name."""

    make: Callable[[dict[str, Any], int], Policy]
    """Makes the policy from the options that were given (names with underscores) and a seed."""
    help: str
    seeded: bool = True
    """Whether its draws depend on its seed and the task only, so that each sample of a task needs its own seed."""


def _openai(options: dict[str, Any], seed: int) -> Policy:
    request = json_object("--request", options.pop("request", None))
    if "top_p" in options:
        request["top_p"] = options.pop("top_p")
    return policies.OpenAIPolicy(**options, request=request)


def _vllm(options: dict[str, Any], seed: int) -> Policy:
    engine = json_object("--engine", options.pop("engine", None))
    if "dtype" in options:
        engine["dtype"] = options.pop("dtype")
    return policies.VLLMPolicy(**_in_process(options), seed=seed, engine=engine)


def _in_process(options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a policy whose model is loaded in this process; a checkpoint is converted first."""
    model, checkpoint, trust = options.pop("model", None), options.pop("checkpoint", None), options.pop("trust", False)
    if (model is None) == (checkpoint is None):
        raise ConfigError("give either --model FOLDER or --checkpoint FOLDER")
    if checkpoint is not None:
        from agent_envs.adapters.verl.run.checkpoints import hugging_face_folder

        model = str(hugging_face_folder(checkpoint, trust=trust))
    template_kwargs = json_object("--template-kwargs", options.pop("template_kwargs", None))
    return {**options, "model": model, "template_kwargs": template_kwargs, "trust_remote_code": trust}


POLICIES: dict[str, PolicyKind] = {
    "openai": PolicyKind(
        _openai, "a chat model behind any OpenAI-compatible server (vLLM, SGLang, llama.cpp, OpenAI)", seeded=False
    ),
    "transformers": PolicyKind(
        lambda given, seed: policies.TransformersPolicy(**_in_process(given), seed=seed),
        "a Hugging Face model or a checkpoint of `agentr1 train` in this process, on a CPU or GPU",
    ),
    "vllm": PolicyKind(_vllm, "the same with vLLM's engine in this process"),
    "expert": PolicyKind(
        lambda given, seed: policies.ExpertPolicy(noise=given.get("demo_noise", 0.0), seed=seed),
        "the environment's own solver",
    ),
    "random": PolicyKind(lambda given, seed: policies.RandomPolicy(seed=seed), "random valid actions"),
}
"""What `--policy` can name."""

_KINDS = "; ".join(f"{name}: {kind.help}" for name, kind in POLICIES.items())
_HERE = "transformers vllm"  # in this process
_MODELS = f"openai {_HERE}"

# Options that do not change a policy's answers: a run may be resumed with other values.
_HARMLESS = frozenset(
    {"timeout", "stream", "stall_timeout", "max_retries", "max_wait", "max_in_flight", "device", "trust"}
)


@dataclass(kw_only=True)
class PolicyOptions(RunOptions):
    """A policy, and the environment that it plays; `of` names the policies that read an option."""

    group = "policy: what chooses the actions; the server's key is read from OPENAI_API_KEY"
    policy: str | None = option(None, f"{_KINDS} (default: transformers for a folder, else openai)", metavar="NAME")
    model: str | None = option(None, "name of the model on the server, or a Hugging Face folder or name", of=_MODELS)
    checkpoint: Folder | None = option(None, "instead of --model: a run, or a global_step_N in it", of=_HERE)
    base_url: Url | None = option(None, "such as http://localhost:8000/v1 (default: OPENAI_BASE_URL)", of="openai")
    temperature: float | None = option(None, "0 is greedy (default: the server's; 1 in this process)", of=_MODELS)
    top_p: float | None = option(None, "nucleus sampling (default: the server's; 1 in this process)", of=_MODELS)
    top_k: int | None = option(None, "in this process: sample among the K likeliest tokens (default: all)", of=_HERE)
    max_tokens: int | None = option(None, "most tokens of a response (default: a checkpoint's in training)", of=_MODELS)
    context_length: int | None = option(None, "in this process: most tokens of prompt and response together", of=_HERE)
    tool_mode: str | None = option(None, "tools as tools= or in the prompt", choices=("native", "text"), of=_MODELS)
    logprobs: bool = option(False, "record log-probabilities of the sampled tokens", of="openai")
    token_ids: bool = option(False, "record the tokens themselves (vLLM, SGLang)", of="openai")
    keep_reasoning: bool = option(False, "keep what the server returns as reasoning", of="openai")
    max_episode_tokens: int | None = option(None, "prompt and response tokens an episode may use", of="openai")
    max_in_flight: int | None = option(None, "requests at the same time (default: one per episode)", of="openai")
    timeout: Seconds | None = option(None, "time limit of a request (default: 600)", of="openai")
    stream: bool = option(False, "stream replies, which shows when a server stalls", of="openai")
    stall_timeout: Seconds | None = option(None, "with --stream: longest silence (default: 60)", of="openai")
    max_retries: int | None = option(None, "retries of a failed request (default: 5)", of="openai")
    max_wait: Seconds | None = option(None, "longest wait for rate limits (default: 600)", of="openai")
    request: Json | None = option(None, 'more fields of requests, such as {"extra_body": {"top_k": 20}}', of="openai")
    device: str | None = option(None, "such as cpu or cuda:1 (default: a GPU if there is one)", of="transformers")
    dtype: str | None = option(None, "in this process: type of the weights, such as bfloat16", of=_HERE)
    template_kwargs: Json | None = option(None, 'for the chat template, such as {"enable_thinking": false}', of=_HERE)
    engine: Json | None = option(None, 'arguments of the engine, such as {"tensor_parallel_size": 2}', of="vllm")
    demo_noise: float | None = option(None, "share of actions that are wrong on purpose", of="expert")

    def source(self) -> str | None:
        return self.run or self.checkpoint

    def chosen_policies(self, samples: int = 1, *, seed: int = 0) -> list[Policy]:
        """Make the policy of each sample of a task: the same one, or with seed + i if it draws."""
        name, given = self._chosen()
        policy: Any = POLICIES[name].make(given, seed)
        return [policy.with_seed(seed + sample) if POLICIES[name].seeded else policy for sample in range(samples)]

    def policies_there(self, samples: int, *, seed: int) -> Sequence[Policy]:
        """Return what `chosen_policies` does, but made by each worker: models and clients are not sent to them."""
        self._chosen()  # what is wrong with the options is said here
        first = MadePolicy(partial(self.chosen_policies, samples, seed=seed), 0)
        return [first.with_number(sample) for sample in range(samples)]

    def policy_settings(self) -> dict[str, Any]:
        """Return what a policy's answers depend on: its kind and options, without time-outs and the like."""
        name, given = self._chosen()
        settings = {"policy": name, **{name: value for name, value in given.items() if name not in _HARMLESS}}
        if "request" in settings:
            settings["request"] = _without_secrets(json_object("--request", settings["request"]))
        return settings

    def _chosen(self) -> tuple[str, dict[str, Any]]:
        """Return the name of the policy, and the options that were given."""
        name = self.policy
        if name is None:
            folder = self.model is not None and self.base_url is None and os.path.isdir(model_path(self.model))
            name = "transformers" if folder or self.checkpoint is not None else "openai"
            path = self.model is not None and (os.path.isabs(self.model) or self.model.startswith(("./", "../", "~")))
            if name == "openai" and self.base_url is None and path:
                raise ConfigError(f"--model {self.model}: there is no such folder")
        if name not in POLICIES:
            raise ConfigError(f"unknown policy {name!r}.{did_you_mean(name, POLICIES)}")
        refuse_unread(self, name, f"--policy {name}")
        read = [each.name for each in fields(self) if name in each.metadata.get("of", "").split()]
        chosen = given_options(self, [*read, *(["trust"] if name in _HERE.split() else [])])
        if name == "openai" and "model" not in chosen:
            raise ConfigError(f"--policy openai needs --model: {POLICIES[name].help}")
        if "checkpoint" in chosen and "max_tokens" not in chosen and (limit := response_limit(chosen["checkpoint"])):
            chosen["max_tokens"] = limit
        return name, chosen


def _without_secrets(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request's fields without secrets: only the names of headers and query parameters.

    >>> _without_secrets({"top_p": 0.9, "extra_headers": {"X-Key": "secret"}})
    {'top_p': 0.9, 'extra_headers': ['X-Key']}
    """
    return {
        name: sorted(value) if name in ("extra_headers", "extra_query") and isinstance(value, Mapping) else value
        for name, value in request.items()
    }
