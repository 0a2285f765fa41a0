"""TRL's ``GRPOTrainer`` on whole episodes: any number of rows each, any estimator, credit for every step."""

from __future__ import annotations

import functools
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from accelerate.utils import gather_object
from trl import GRPOConfig, GRPOTrainer

from agent_envs.adapters.batches import TokenBatch
from agent_envs.adapters.estimators import EstimatorOptions, get_estimator
from agent_envs.adapters.losses import WEIGHTINGS, token_weights
from agent_envs.adapters.run import MAX_BROKEN, FailureBudget
from agent_envs.adapters.step_rows import step_batch
from agent_envs.adapters.task_rows import as_json, make_dataset
from agent_envs.adapters.teacher import Labels, Teacher, labels_in
from agent_envs.adapters.trained import Trained, trained
from agent_envs.adapters.trl.vllm import TRLVLLMPolicy
from agent_envs.agents.loading import Agent, Score, load_agent
from agent_envs.checks import choice
from agent_envs.episodes.record import Episode, Step, write_episodes
from agent_envs.errors import ConfigError, check_release
from agent_envs.policies import TransformersPolicy
from agent_envs.policies.local.loading import context_length
from agent_envs.policies.policy import Policy
from agent_envs.prompts.builder import PromptBuilder
from agent_envs.rollout.many import run_episodes
from agent_envs.wrapping.recorded import recorded_env
from agent_envs.wrapping.specs import make_text_env

_LONGEST_CONTEXT = 16_384  # if the model does not specify one
_COLUMNS = ("env_id", "index", "env_kwargs", "wrappers")
_OTHERWISE = {  # arguments of GRPOConfig that would train something else than the steps of episodes
    "loss_type": ("dapo", "by which EpisodeTrainer weighs tokens"),
    "importance_sampling_level": ("token", "since a row holds several responses"),
    "mask_truncated_completions": (False, "since a row does not end where a response was cut"),
}
_OF_VLLM = {"min_p": None, "repetition_penalty": 1.0, "generation_kwargs": None}


def episode_dataset(
    env_id: str, indices: Iterable[int], *, env_kwargs: Mapping[str, Any] | None = None, wrappers: Sequence[str] = ()
) -> Any:
    """Return tasks for ``EpisodeTrainer``: a ``datasets.Dataset`` whose rows name an environment and a task.

    Its column ``prompt`` is there because TRL asks for one; the model's prompts come from the environment.
    """
    common = {"prompt": "", "env_id": env_id, "env_kwargs": as_json(env_kwargs), "wrappers": list(wrappers)}
    return make_dataset([{**common, "index": int(index)} for index in indices])


class EpisodeTrainer(GRPOTrainer):
    """Plays each row of an ``episode_dataset`` as an episode, and trains every step of it that the policy took.

    Episodes run at their own pace; tokens and log-probabilities are those that were sampled. A step joins the row that
    its prompt extends, so an episode may have several rows. The estimator gives every token its advantage, over the
    episodes of all processes, and ``weighting`` says what the loss is a mean over. Broken episodes are neither scored
    nor trained on. GRPOConfig's settings of rewards and advantages (``scale_rewards``, ...) are not read;
    ``max_completion_length`` is the maximum number of tokens of one response. A micro-batch has the rows of
    ``per_device_train_batch_size`` episodes in the mean.

    By default the model in the trainer's process plays, or its vLLM with ``use_vllm=True`` (``vllm_mode="colocate"``
    without tensor parallelism, or a server with a single process: episodes ask for tokens at their own pace, and
    processes cannot wait for each other). Episodes are written to ``episodes`` in the output folder; the metrics
    ``env/success``, ``env/num_steps`` and ``env/rows`` are means over episodes.

    Args:
        model, args, train_dataset, kwargs: As for ``GRPOTrainer``, which here takes no ``reward_funcs``: the reward is
            the environment's, or that of ``score``.
        estimator: Advantage estimator by name, such as ``grpo``, ``rloo``, ``reinforce`` or ``gigpo``, or
            ``module:name``; without a critic, since TRL trains none.
        gamma: Discount per environment step.
        weighting: ``trajectory``, ``row`` (of a step) or ``token``.
        agent: Plays an episode with the model, as in ``run_episodes``; by default one call per step.
        score: Judges what the agent did, as in ``run_episodes``.
        train_roles: Roles of the agent that are trained; all by default.
        teacher, teacher_weight, teacher_until, teacher_mode: The environment's solver labels the states that the policy
            reaches, as in the PyTorch loop (`agent_envs.adapters.teacher`); a label is a row of its own, or the
            response's tokens where it is the same.
        policy: Plays instead of the trainer's model: one that reports tokens and whose weights you update.
        model_context: Maximum tokens of prompt and response; by default the model's.
        concurrency: Episodes played at the same time.
        step_timeout, episode_timeout: Seconds that a step or an episode may take.
        max_broken: Share of the episodes of three batches that may break; more stop the run.
        trust: Whether rows may name code and servers (docs/security.md).

    Raises:
        ConfigError: An argument that is not allowed, or one of GRPOConfig's that would train something else.
    """

    def __init__(
        self,
        model: Any,
        args: GRPOConfig | None = None,
        train_dataset: Any = None,
        *,
        estimator: str = "grpo",
        gamma: float = 1.0,
        weighting: str = "trajectory",
        agent: str | Agent | None = None,
        score: str | Score | None = None,
        train_roles: Sequence[str] = (),
        teacher: str = "",
        teacher_weight: float = 1.0,
        teacher_until: int = 0,
        teacher_mode: str = "mixed",
        policy: Policy | None = None,
        model_context: int | None = None,
        concurrency: int = 64,
        step_timeout: float | None = None,
        episode_timeout: float | None = None,
        max_broken: float = MAX_BROKEN,
        trust: bool = False,
        **kwargs: Any,
    ) -> None:
        check_release("trl", "trl")
        for name in ("reward_funcs", "rollout_func", "environment_factory", "tools"):
            if kwargs.get(name) is not None:
                raise ConfigError(f"EpisodeTrainer plays environments, whose reward it trains; leave out {name}=")
        args = args or GRPOConfig()
        for name, (only, why) in _OTHERWISE.items():
            if getattr(args, name) != only:
                raise ConfigError(f"TRL's {name} must be {only!r}, {why}; remove {name}=")
        for name, neutral in _OF_VLLM.items():
            if getattr(args, name) != neutral and not (args.use_vllm and policy is None):
                raise ConfigError(f"only TRL's vLLM reads {name}: remove {name}=, or set use_vllm=True without policy=")
        self._estimator = get_estimator(estimator)
        needs = {"critic": self._estimator.needs_critic, "greedy episode": self._estimator.needs_baseline}
        needs["distribution of each token"] = self._estimator.needs_score_norms
        if lacking := [what for what, needed in needs.items() if needed]:
            raise ConfigError(
                f"estimator {estimator!r} needs a {lacking[0]}, which TRL's trainer does not have: use grpo, rloo, "
                "reinforce or gigpo, or train with verl or the PyTorch loop"
            )
        group = int(args.num_generations or 1)
        self._estimator.check_group(group, "num_generations")
        self._options = EstimatorOptions(gamma=gamma)
        self._weighting = choice("weighting", weighting, WEIGHTINGS)
        self._teacher = Teacher(teacher, teacher_weight, teacher_until, teacher_mode)
        self._teacher.check_expert()
        if teacher and agent is not None:
            raise ConfigError("a teacher labels the states of a loop of one call per step: leave out agent or teacher")
        self._agent = None if agent is None else load_agent(agent)
        self._score, self._roles, self._policy, self._trust = score, tuple(train_roles), policy, trust
        self._model_context = model_context
        self._concurrency, self._step_timeout, self._episode_timeout = concurrency, step_timeout, episode_timeout
        self._failures = FailureBudget(max_broken)
        self._calls: Counter[tuple[int, str]] = Counter()
        self._tool_instructions = dict[str, str]()
        super().__init__(model, [_episode_return], args, train_dataset, **kwargs)

    # ------------------------------------------------------------------------------------------- TRL's three questions

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        mode = "train" if self.model.training else "eval"
        batch = self.state.global_step + (mode == "train"), mode
        self._calls[batch] += 1
        own = self._play([read_task(row, self._trust) for row in inputs], *batch)
        self._episodes: list[Episode] = gather_object(own)
        self._note(own, *batch)
        group = int((self.num_generations if mode == "train" else self.num_generations_eval) or 1)
        groups = [i // group for i in range(len(self._episodes))]
        parts = trained(self._episodes, groups, self._options.gamma, self._roles)
        taught = self._teacher.weight_at(batch[0]) if mode == "train" else 0.0
        tokens, steps, wrote, label = step_batch(parts, labels_of=self._labels if taught else None)
        if tokens.pictures:
            raise ConfigError(
                "EpisodeTrainer takes no pictures: train with GRPOTrainer(environment_factory=environment_class(...))"
            )
        advantages, _ = self._estimator(steps, replace(self._options, group_size=group)).on_tokens(wrote)
        weights = token_weights(self._weighting, torch.from_numpy(tokens.length), steps.trajectory, wrote)
        labels, credit = Labels(label, taught), advantages * weights
        if taught:
            if self._teacher.mode == "silent":
                labels = labels.without_signal(steps.group, wrote, advantages)
            of_labels = labels.weights(self._weighting, steps.trajectory, torch.zeros_like(steps.trajectory))
            credit = of_labels + (0.0 if self._teacher.mode == "alone" else credit)
            for name, value in labels.metrics(wrote).items():
                self._metrics[mode][f"teacher/{name}"].append(value)
        learned = (wrote >= 0) | (labels.step >= 0)
        # TRL divides the sum over tokens by their number; our weights add up to 1
        credit = credit * int(learned.sum())
        sampled = np.where((learned & (wrote < 0)).numpy(), np.nan, tokens.logprobs)  # a label was not
        of_tokens = learned.numpy(), sampled, credit.float().numpy()
        self._metrics[mode]["env/rows"].append((len(tokens.offsets) - 1) / max(len(self._episodes), 1))
        processes = range(self.accelerator.num_processes)
        of_processes = [_rows_of(tokens, parts, label.numpy(), of_tokens, each, len(inputs)) for each in processes]
        self._rows, most = of_processes[self.accelerator.process_index], max(map(len, of_processes))
        every = self.args.steps_per_generation if mode == "train" else 1
        filler = int(self._tokenizer.eos_token_id)
        empty = _Row([filler], [filler], [0], [0.0], [0.0])
        self._rows += [empty] * (max(1, math.ceil(most / every)) * every - len(self._rows))
        out = super()._generate_and_score_completions(inputs)
        width = out["completion_ids"].shape[1]
        padded = [[*row.credit, *[0.0] * (width - len(row.credit))] for row in self._rows]
        out["advantages"] = torch.tensor(padded, device=out["completion_ids"].device)
        return out

    def _generate(self, prompts: list[Any]) -> tuple[Any, ...]:
        """Return what TRL calls completions: the rows of this process's episodes, however many they are."""
        rows, known = self._rows, all(not math.isnan(p) for row in self._rows for p in row.logprobs)
        mode = "train" if self.model.training else "eval"
        if mode == "train":
            count = torch.tensor(sum(len(row.prompt) + len(row.completion) for row in rows))
            self.state.num_input_tokens_seen += int(self.accelerator.gather(count.to(self.accelerator.device)).sum())
        self._metrics[mode]["num_tokens"] = [self.state.num_input_tokens_seen]
        own = self._episodes[self.accelerator.process_index * len(prompts) :][: len(prompts)]
        return (
            [row.prompt for row in rows], [row.completion for row in rows], [row.mask for row in rows],
            ["\n\n".join(step.action for step in episode.steps) for episode in own],
            [row.logprobs for row in rows] if known else None, {}, None, [],
        )  # fmt: skip

    def _calculate_rewards(self, *_: Any) -> torch.Tensor:
        """Return the return of each episode of all processes, NaN if it broke, shape [episodes, 1]."""
        returns = [math.nan if e.stop_reason.broken else e.reward for e in self._episodes]
        return torch.tensor(returns, device=self.accelerator.device).unsqueeze(1)

    # --------------------------------------------------------------------------------------------------- the episodes

    def _play(self, tasks: list[dict[str, Any]], step: int, mode: str) -> list[Episode]:
        """Play tasks and return their episodes in order; those of one environment share its instances."""
        kinds: dict[str, list[int]] = {}
        for i, task in enumerate(tasks):
            kinds.setdefault(json.dumps({**task, "index": None}, sort_keys=True), []).append(i)
        episodes: dict[int, Episode] = {}
        # every step, evaluation, batch and process draws its own, in a resumed run too
        taught = mode == "train" and self._teacher.labels_at(step)
        parts = step, 2 * self._calls[step, mode] + (mode == "eval"), self.accelerator.process_index
        seed = functools.reduce(lambda number, part: number * 1_000_003 + part, parts, self.args.seed)
        with self._policies(seed) as policy:
            for own in kinds.values():
                first = tasks[own[0]]
                env_kwargs, wrappers = first["env_kwargs"], first["wrappers"]
                if taught:
                    env_kwargs, wrappers = self._teacher.asked(env_kwargs, wrappers)
                    with closing(make_text_env(first["env_id"], env_kwargs, wrappers)) as env:
                        self._tool_instructions[first["env_id"]] = env.get_wrapper_attr("tool_instructions")
                played = run_episodes(
                    first["env_id"], policy, len(own), options=[{"index": tasks[i]["index"]} for i in own], seeds=0,
                    env_kwargs=env_kwargs, wrappers=wrappers, on_error="record", progress=False,
                    agent=self._agent, score=self._score, concurrency=self._concurrency,
                    step_timeout=self._step_timeout, episode_timeout=self._episode_timeout,
                )  # fmt: skip
                episodes.update(zip(own, played, strict=True))
        return [episodes[i] for i in range(len(tasks))]

    def _labels(self, states: Sequence[tuple[Episode, Step, Mapping[str, Any]]]) -> list[tuple[int, ...]]:
        """Return the tokens of the teacher's label in each state."""

        def builder_of(episode: Episode) -> PromptBuilder:
            words = self._tool_instructions[episode.env_id]
            kwargs = cast(dict[str, Any], self.chat_template_kwargs)
            return PromptBuilder(self._tokenizer, episode.tools, kwargs, tool_instructions=words)

        longest = self._model_context or context_length(self.model) or _LONGEST_CONTEXT
        return labels_in(states, builder_of, self.max_completion_length or _LONGEST_CONTEXT, longest)

    def _note(self, own: list[Episode], step: int, mode: str) -> None:
        """Count what broke, write this process's episodes, and log what they say."""
        self._failures.note((episode.stop_reason, episode.error) for episode in self._episodes)
        part = f".{self._calls[step, mode]}" if self._calls[step, mode] > 1 else ""
        part += f"-{self.accelerator.process_index}" if self.accelerator.num_processes > 1 else ""
        folder = Path(self.args.output_dir or os.curdir) / "episodes"
        folder.mkdir(parents=True, exist_ok=True)
        write_episodes(folder / f"{step:06d}-{mode}{part}.jsonl", own)
        played = [episode for episode in self._episodes if not episode.stop_reason.broken]
        self._metrics[mode]["env/success"].append(float(np.mean([episode.success for episode in played])))
        self._metrics[mode]["env/num_steps"].append(float(np.mean([len(episode.steps) for episode in played])))

    @contextmanager
    def _policies(self, seed: int) -> Iterator[Policy]:
        if self._policy is not None:
            yield self._policy
        elif self.use_vllm:
            yield self._vllm()
        else:
            from trl.models import unwrap_model_for_generation

            with unwrap_model_for_generation(
                self.model_wrapped,
                self.accelerator,
                gather_deepspeed3_params=self.args.ds3_gather_for_generation,
                gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
            ) as model:
                training, template_kwargs = model.training, cast(dict[str, Any], self.chat_template_kwargs)
                policy = TransformersPolicy(
                    model.eval(),
                    tokenizer=self._tokenizer,
                    temperature=self.temperature,
                    top_p=self.top_p,
                    top_k=self.top_k,
                    max_tokens=self.max_completion_length or _LONGEST_CONTEXT,
                    context_length=self._model_context,
                    concurrency=self._concurrency,
                    seed=seed,
                    template_kwargs=template_kwargs,
                )
                try:
                    yield policy
                finally:
                    policy.close()
                    model.train(training)

    def _vllm(self) -> TRLVLLMPolicy:
        generation = self.vllm_generation
        alone = generation.mode == "colocate" and generation.tensor_parallel_size == 1
        if not alone and self.accelerator.num_processes > 1:
            raise ConfigError(
                "several processes would wait for each other in TRL's vLLM: use vllm_mode='colocate' with "
                "vllm_tensor_parallel_size=1, or EpisodeTrainer(policy=) with a server of your own"
            )
        if self.state.global_step != self._last_loaded_step:
            generation.sync_weights()
            self._last_loaded_step = self.state.global_step
        longest = self._model_context or context_length(self.model) or _LONGEST_CONTEXT
        most = min(self.max_completion_length or longest, longest)
        limits = {"max_tokens": most, "context_length": longest}
        return TRLVLLMPolicy(self._tokenizer, generation, template_kwargs=self.chat_template_kwargs, **limits)


def _episode_return(completions: Sequence[Any], **kwargs: Any) -> list[float]:
    """The name of the reward in TRL's metrics; ``EpisodeTrainer`` reads it from its episodes."""
    raise NotImplementedError


class _Row(NamedTuple):
    """A row as TRL takes it; the lists after the prompt have an element for each token after it."""

    prompt: list[int]
    completion: list[int]
    mask: list[int]
    logprobs: list[float]
    credit: list[float]


def _rows_of(
    tokens: TokenBatch, found: Trained, label: np.ndarray, of_tokens: Sequence[np.ndarray], process: int, count: int
) -> list[_Row]:
    """Return the rows of the episodes that a process played; each begins with the first token that is learned.

    ``of_tokens`` says whether each token is learned, its log-probability when it was sampled, and its credit; ``label``
    the step whose label it is in. Each process plays ``count`` episodes.
    """
    of_row = dict(zip(tokens.row.tolist(), range(len(tokens.row)), strict=True))  # a step of each row
    out = []
    for row in range(len(tokens.offsets) - 1):
        begin, end = tokens.offsets[row], tokens.offsets[row + 1]
        step = of_row.get(row, int(label[end - 1]))
        if found.source[int(tokens.episode[step])] // count != process or not of_tokens[0][begin:end].any():
            continue
        begins = int(begin + np.argmax(of_tokens[0][begin:end]))
        ids, mask, logprobs, own = (part[begins:end].tolist() for part in (tokens.input_ids, *of_tokens))
        out.append(_Row(tokens.input_ids[begin:begins].tolist(), ids, list(map(int, mask)), logprobs, own))
    return out


def read_task(row: Mapping[str, Any], trust: bool) -> dict[str, Any]:
    """Return the environment and the index that a row of a dataset names; raises ConfigError if it may not."""
    if missing := [name for name in _COLUMNS if name not in row]:
        raise ConfigError(f"a row lacks the column {missing[0]!r}; make the dataset with episode_dataset()")
    record = {"env": row["env_id"], "env_kwargs": json.loads(row["env_kwargs"]), "wrappers": list(row["wrappers"])}
    known = recorded_env(record, "a row of the dataset", trust=trust)
    return {**known._asdict(), "wrappers": list(known.wrappers), "index": int(row["index"])}
