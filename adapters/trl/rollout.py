"""Whole episodes for TRL's ``GRPOTrainer(rollout_func=...)``: tokens, masks and log-probabilities as sampled."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from agent_envs.adapters.failures import MAX_BROKEN, FailureBudget
from agent_envs.adapters.merging import StepTokens, TokenRow, merge_steps
from agent_envs.adapters.task_rows import as_json, make_dataset
from agent_envs.episodes.record import Episode
from agent_envs.errors import AgentEnvsError, BackendError, ConfigError, ContextLengthExceeded, DataError, check_release
from agent_envs.pictures.picture import Picture
from agent_envs.policies import TransformersPolicy
from agent_envs.policies.policy import Action, Actor, Policy, Response
from agent_envs.policies.tokens import Sampled, TokenPolicy
from agent_envs.rollout.many import run_episodes
from agent_envs.wrapping.recorded import recorded_env

__all__ = ["EpisodeRollout", "rollout_dataset"]

_LONGEST_CONTEXT = 16_384  # if the model does not specify one


def rollout_dataset(
    env_id: str, indices: Iterable[int], *, env_kwargs: Mapping[str, Any] | None = None, wrappers: Sequence[str] = ()
) -> Any:
    """Return tasks for ``EpisodeRollout``: a ``datasets.Dataset`` whose prompts name an environment and a task as JSON.

    TRL passes only prompts to a rollout function. The model's actual prompt comes from the environment.
    """
    common = {"env_id": env_id, "env_kwargs": json.loads(as_json(env_kwargs)), "wrappers": list(wrappers)}
    rows = [{**common, "index": int(index)} for index in indices]
    return make_dataset([{"prompt": [{"role": "user", "content": json.dumps(row)}]} for row in rows])


@dataclass(kw_only=True, eq=False)
class EpisodeRollout:
    """A function for ``GRPOTrainer(rollout_func=...)``: each prompt of a ``rollout_dataset`` becomes an episode.

    Episodes run at their own pace; tokens and log-probabilities are those that were sampled, and the environment's text
    is masked out (``env_mask``). TRL trains one row per completion, so it cannot train episodes whose prompts are
    rebuilt; the PyTorch loop and the verl adapter can. A broken episode is neither scored nor trained on.

    Reward functions get, besides TRL's own arguments, one entry per episode of ``episode_return`` (None if it
    broke), ``episode`` (the record, with every step), ``episode_success`` and ``stop_reason``.

    By default the model in the trainer's process plays, or its vLLM with ``use_vllm=True`` (``vllm_mode="colocate"``
    without tensor parallelism, or a server with a single process: episodes request tokens at their own pace, and
    processes cannot wait for each other).
    """

    max_tokens: int | None = None
    """Maximum tokens of one response; by default the trainer's ``max_completion_length``, which bounds all tokens after
    the first prompt: an episode ends when the next response would not fit."""
    context_length: int | None = None
    """Maximum tokens of prompt and response; by default the model's."""
    policy: Policy | None = None
    """A policy that reports tokens and plays instead: for a model served elsewhere, whose weights you update."""
    concurrency: int = 64
    """Episodes played at the same time."""
    step_timeout: float | None = None
    """Seconds a step may take, the model's part included."""
    episode_timeout: float | None = None
    """Seconds an episode may take."""
    max_broken: float = MAX_BROKEN
    """Share of the episodes of three calls that may break; more stop the run."""
    trust: bool = False
    """Whether prompts may name code and servers (docs/security.md)."""

    def __post_init__(self) -> None:
        check_release("trl", "trl")
        self._calls = 0
        self._failures = FailureBudget(self.max_broken)

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Play the prompts' tasks.

        Raises:
            ConfigError: A prompt has no task, or processes would wait for each other in vLLM.
            DataError: An episode does not fit into one row.
            BackendError: Too many episodes broke.
        """
        tasks = [_task(prompt, self.trust) for prompt in prompts]
        budget = trainer.max_completion_length or sys.maxsize  # None: whatever the context holds
        if self.policy is not None:
            episodes = self._play(tasks, _Budget(self.policy, budget))
        elif trainer.use_vllm:
            episodes = self._play_with_vllm(tasks, trainer, budget)
        else:
            episodes = self._play_with_model(tasks, trainer, budget)
        self._failures.note((episode.stop_reason, episode.error) for episode in episodes)
        filler = int(trainer._tokenizer.eos_token_id)
        rows = [_row(episode, filler) for episode in episodes]
        sampled = all(step.response_logprobs is not None for e in episodes for step in e.steps if step.response_ids)
        return {
            "prompt_ids": [row.prompt_ids for row in rows],
            "completion_ids": [row.response_ids for row in rows],
            "logprobs": [row.logprobs for row in rows] if sampled else None,
            "env_mask": [row.response_mask for row in rows],
            "episode": episodes,
            "episode_return": [None if e.stop_reason.broken or not e.steps else e.reward for e in episodes],
            "episode_success": [e.success for e in episodes],
            "stop_reason": [e.stop_reason.value for e in episodes],
        }

    def _play_with_model(self, tasks: list[dict[str, Any]], trainer: Any, budget: int) -> list[Episode]:
        from trl.models import unwrap_model_for_generation

        self._calls += 1
        args = trainer.args
        with unwrap_model_for_generation(
            trainer.model_wrapped,
            trainer.accelerator,
            gather_deepspeed3_params=args.ds3_gather_for_generation,
            gradient_checkpointing_kwargs=args.gradient_checkpointing_kwargs,
        ) as model:
            training = model.training
            policy = TransformersPolicy(
                model.eval(),
                tokenizer=trainer._tokenizer,
                temperature=trainer.temperature,
                max_tokens=self.max_tokens or budget,
                context_length=self.context_length,
                concurrency=self.concurrency,
                # every process and every call draws its own
                seed=(args.seed * 1_000_003 + self._calls) * 1_009 + trainer.accelerator.process_index,
            )
            try:
                return self._play(tasks, _Budget(policy, budget))
            finally:
                policy.close()
                model.train(training)

    def _play_with_vllm(self, tasks: list[dict[str, Any]], trainer: Any, budget: int) -> list[Episode]:
        from agent_envs.policies.local.loading import context_length

        generation = trainer.vllm_generation
        alone = generation.mode == "colocate" and generation.tensor_parallel_size == 1
        if not alone and trainer.accelerator.num_processes > 1:
            raise ConfigError(
                "several processes would wait for each other in TRL's vLLM: use vllm_mode='colocate' with "
                "vllm_tensor_parallel_size=1, or EpisodeRollout(policy=) with a server of your own"
            )
        longest = self.context_length or context_length(trainer.model) or _LONGEST_CONTEXT
        policy = _VLLMPolicy(
            trainer._tokenizer, generation, max_tokens=min(self.max_tokens or budget, longest), context_length=longest
        )
        before, generation.max_completion_length = generation.max_completion_length, policy.max_tokens
        try:
            return self._play(tasks, _Budget(policy, budget))
        finally:
            generation.max_completion_length = before

    def _play(self, tasks: list[dict[str, Any]], policy: Policy) -> list[Episode]:
        """The episodes in the order of their tasks; those of one environment share its instances."""
        kinds: dict[str, list[int]] = {}
        for i, task in enumerate(tasks):
            kinds.setdefault(json.dumps({**task, "index": None}, sort_keys=True), []).append(i)
        episodes: dict[int, Episode] = {}
        for own in kinds.values():
            first = tasks[own[0]]
            played = run_episodes(
                first["env_id"], policy, len(own), options=[{"index": tasks[i]["index"]} for i in own], seeds=0,
                env_kwargs=first["env_kwargs"], wrappers=first["wrappers"], on_error="record", progress=False,
                concurrency=self.concurrency, step_timeout=self.step_timeout, episode_timeout=self.episode_timeout,
            )  # fmt: skip
            episodes.update(zip(own, played, strict=True))
        return [episodes[i] for i in range(len(tasks))]


class _VLLMPolicy(TokenPolicy):
    """Samples from a trainer's vLLM: what is asked for while it is busy is its next batch."""

    def __init__(self, tokenizer: Any, generation: Any, *, max_tokens: int, context_length: int) -> None:
        ends = () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
        super().__init__(tokenizer, max_tokens=max_tokens, context_length=context_length, stop_token_ids=ends)
        self._generation = generation
        self._waiting: list[tuple[list[int], asyncio.Future[Sampled]]] = []
        self._busy: asyncio.Task[None] | None = None

    async def sample(
        self, prompt_ids: list[int], max_tokens: int, seed: int, pictures: Sequence[Picture] = ()
    ) -> Sampled:
        future: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        self._waiting.append((prompt_ids, future))
        if self._busy is None or self._busy.done():
            self._busy = asyncio.create_task(self._serve())
        sampled = await future
        return Sampled(sampled.token_ids[:max_tokens], (sampled.log_probs or ())[:max_tokens] or None)

    async def _serve(self) -> None:
        await asyncio.sleep(0.01)  # those that start together arrive one after the other
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                _, ids, logprobs, _ = await asyncio.to_thread(
                    self._generation.generate, prompts=[prompt for prompt, _ in batch], images=None, num_generations=1
                )
            except Exception as e:  # noqa: BLE001  it goes to the episodes, whose steps record it
                for _, future in batch:
                    if not future.done():
                        future.set_exception(BackendError(f"TRL's vLLM failed: {e}"))
                continue
            for (_, future), tokens, tops in zip(batch, ids, logprobs, strict=True):
                if not future.done():  # given up meanwhile
                    future.set_result(Sampled(list(tokens), [top[0] for top in tops]))


class _Budget:
    """A policy whose episodes end where the tokens after the first prompt would be more than a budget."""

    def __init__(self, policy: Policy, budget: int) -> None:
        self.policy, self.budget = policy, budget

    def start(self, env: gym.Env[Any, str]) -> Actor:
        return _BudgetActor(self.policy.start(env), self.budget)


class _BudgetActor:
    def __init__(self, actor: Actor, budget: int) -> None:
        self.actor, self.budget = actor, budget
        self.first: int | None = None  # tokens of the first prompt

    async def act(self, observation: Any, info: dict[str, Any]) -> Response:
        action: Any = self.actor.act(observation, info)
        response: Action = action if isinstance(action, (str, Response)) else await action
        if isinstance(response, str) or not response.prompt_ids or response.response_ids is None:
            raise ConfigError("TRL trains tokens: EpisodeRollout(policy=) needs a policy that reports them")
        self.first = len(response.prompt_ids) if self.first is None else self.first
        used = len(response.prompt_ids) - self.first + len(response.response_ids)
        if used > self.budget:
            raise ContextLengthExceeded(f"{used} tokens after the first prompt, max_completion_length is {self.budget}")
        return response


def _row(episode: Episode, filler: int) -> TokenRow:
    """The one row of an episode; one that trains nothing where there is nothing to train."""
    trained = not episode.stop_reason.broken
    steps = [
        StepTokens(i, step.prompt_ids, step.response_ids, step.response_logprobs, trained)
        for i, step in enumerate(episode.steps)
        if step.prompt_ids and step.response_ids
    ]
    if not steps:
        return TokenRow([filler], [filler], [-1], [0.0], ())
    if any(step.prompt_pictures for step in episode.steps):
        raise ConfigError("TRL takes no pictures from a rollout function; use environment_factory=environment_class()")
    try:
        (row,) = merge_steps(steps, "stream")
    except DataError as e:
        raise DataError(
            f"episode of {episode.env_id}, task {episode.index}: {e}. TRL takes one row per episode: leave out "
            "wrappers that rebuild the prompt, or train with agent_envs.adapters.torch.loop or verl"
        ) from e
    return row


def _task(prompt: Any, trust: bool) -> dict[str, Any]:
    text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
    try:
        task = json.loads(text)
        record = {**task, "env": task["env_id"], "split": None, "data": None}
        found = recorded_env(record, "a prompt of the dataset", trust=trust)
        return {
            "env_id": found.env_id,
            "index": int(task["index"]),
            "env_kwargs": found.env_kwargs,
            "wrappers": list(found.wrappers),
        }
    except AgentEnvsError:
        raise
    except (ValueError, TypeError, KeyError) as e:
        raise ConfigError(
            f"EpisodeRollout reads prompts of rollout_dataset(): a JSON object with env_id and index; got {text!r:.200}"
        ) from e
