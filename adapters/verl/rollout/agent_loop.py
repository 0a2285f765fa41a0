"""verl's agent loop over any environment: plays one episode and returns its steps as as few rows as possible.

A dataset row names the environment (``env_id``, ``env_kwargs``, ``wrappers``) and the task
(``extra_info.index``). The prompts come from the environment and the tokenizer's chat template through
``PromptBuilder``, so the tokens that are trained are those that were sampled.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import time
import traceback
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from agent_envs.adapters.estimators import get_estimator
from agent_envs.adapters.teacher import label_ids
from agent_envs.adapters.trained import calls_made, trajectories
from agent_envs.adapters.verl.config.models import SEEDED
from agent_envs.adapters.verl.config.settings import read_settings
from agent_envs.adapters.verl.rollout.env_pool import EnvPool, EnvServers
from agent_envs.adapters.verl.rollout.episode_rows import episode_record, episode_rows, filler_row, with_twin
from agent_envs.adapters.verl.rollout.pictures import image_tokens, picture_folder, row_inputs
from agent_envs.adapters.verl.rollout.resuming import row_versions
from agent_envs.adapters.verl.rollout.server_policy import ServerPolicy
from agent_envs.episodes.builder import EpisodeBuilder
from agent_envs.episodes.record import Episode, StopReason, episode_pictures
from agent_envs.rollout.one import arun_episode
from agent_envs.wrapping.recorded import recorded_env

_WORDS_OF = {"qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2", "qwen3_vl": "qwen3", "qwen3_vl_moe": "qwen3"}
"""The kind of model of text that a vision-language model has inside."""

# One of each per process: verl makes an agent loop per episode.
_pool = EnvPool()


@functools.cache
def _places(most: int | None) -> contextlib.AbstractAsyncContextManager[Any]:
    """What an episode plays in, so that at most so many of this process do at once."""
    return contextlib.nullcontext() if most is None else asyncio.Semaphore(most)


class RowOutput(AgentLoopOutput):
    """verl's output of an agent loop, with the step that wrote each response token."""

    step_ids: list[int]
    """Index of the step within its episode, -1 for what the policy did not write, shape [response tokens]."""

    versions: list[int] | None = None
    """Version of the weights that sampled each token, -1 where it is not known; None if training is synchronous."""

    model_inputs: dict[str, Any] | None = None
    """What a vision-language model gets beside the tokens (``row_inputs``); None for a model of text."""

    def as_dict(self) -> dict[str, Any]:
        """Return what verl stores, with ``step_ids`` and ``versions`` as columns of their own.

        verl asks for ``model_inputs`` apart (``plugin``).
        """
        columns = {"step_ids": self.step_ids, **({} if self.versions is None else {"versions": self.versions})}
        stored = super().as_dict()
        stored.pop("model_inputs", None)
        return {**stored, **{k: torch.tensor(v, dtype=torch.int64) for k, v in columns.items()}}


class EnvAgentLoop(AgentLoopBase):
    """Plays the task that a dataset row names."""

    def __init__(self, *, hf_model_type: str | None = None, processor: Any = None, **parts: Any) -> None:
        """Take verl's parts; its builder of prompts is not used, and for pictures would need a processor."""
        if hf_model_type in _WORDS_OF:
            hf_model_type, processor = _WORDS_OF[hf_model_type], None
        super().__init__(hf_model_type=hf_model_type, processor=processor, **parts)
        self.settings = read_settings(self.config)
        self.estimator = get_estimator(str(self.config.algorithm.adv_estimator))

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput]:
        """Play and return one output per row: merged steps, or one step each with ``agentr1.layout=steps``.

        If the estimator compares with a greedy episode, the session after the last of ``rollout.n`` plays it.
        ``kwargs`` are the row's columns, and verl's ``uid``, ``session_id`` and ``global_steps``. Whatever goes wrong,
        the result is a row: verl would wait for one.
        """
        try:
            return await self._run(sampling_params, kwargs)
        except Exception:  # noqa: BLE001  whatever a constructor raises; the traceback is kept
            return await self._run(sampling_params, kwargs, error=traceback.format_exc())

    async def _run(
        self, sampling_params: dict[str, Any], kwargs: Mapping[str, Any], error: str | None = None
    ) -> list[AgentLoopOutput]:
        """Play, or return the row of an episode that failed before its first step."""
        extra, rollout, settings = kwargs.get("extra_info") or {}, self.rollout_config, self.settings
        trains = extra.get("phase", "train") == "train"
        session, number = kwargs.get("session_id", 0), kwargs.get("prompt_number")
        # a prompt that is trained has a number, the same whenever it is played, and a validation happens at a step
        place = f"step {int(kwargs.get('global_steps', 0))}" if number is None else f"prompt {int(number)}"
        task = f"{settings.seed}/{extra.get('phase', 'train')}/{kwargs['env_id']}/{extra.get('index')}"
        uid = str(kwargs.get("uid", uuid4()))
        greedy = trains and self.estimator.needs_baseline and session == rollout.n
        if greedy:
            sampling_params = {**sampling_params, "temperature": 0.0, "top_p": 1.0, "top_k": -1}
        policy = ServerPolicy(
            self.server_manager,
            self.tokenizer,
            sampling_params,
            prompt_length=rollout.prompt_length,
            response_length=rollout.response_length,
            max_model_len=rollout.get("max_model_len") or rollout.prompt_length + rollout.response_length,
            seed=f"{task}/{place}/{session}" if rollout.name in SEEDED and settings.request_seeds else None,
            template_kwargs=dict(self.apply_chat_template_kwargs or {}),
            untimed=settings.ahead,
            pictures=image_tokens(str(self.config.actor_rollout_ref.model.path), self.tokenizer),
            engine=rollout.name,
        )
        index, seed = extra.get("index"), extra.get("seed")
        if seed is None:  # what the environment draws is the same for the episodes that are compared
            seed = zlib.crc32((task if number is None else f"{task}/{place}").encode())
        identity = (int(seed), None if index is None else {"index": int(index)}, f"{uid}_{session}", uid)
        began = time.monotonic()
        async with _places(settings.max_episodes):
            started = time.monotonic()
            if error is None:
                taught = trains and settings.teaching.labels_at(int(kwargs.get("global_steps", 1)))
                episode = await self._play(kwargs, policy, *identity, taught=taught)
            else:
                episode = EpisodeBuilder(kwargs["env_id"], *identity).end(StopReason.ERROR, error)
        total = time.monotonic() - started
        policy.note_env_time()
        filler = self.tokenizer.eos_token_id
        rows = [filler_row("baseline", filler)]
        if not greedy:
            twin = settings.twin_final if trains else None
            gamma = float(self.config.algorithm.get("gamma", 1.0))
            parts = trajectories(episode if twin is None else with_twin(episode, twin), gamma, settings.train_roles)
            how: dict[str, Any] = {
                "filler_id": filler,
                "final_prompt_ids": self._final_prompt(episode, policy) if trains else None,
                "merge": settings.layout != "steps",
                "anchors": trains and self.estimator.needs_anchors,
                "labels": self._labels(episode, policy),
            }
            rows = [row for part in parts for row in episode_rows(part.episode, within=part.within, **how)]
            rows = rows or [filler_row("masked", filler)]
        fields: dict[str, Any] = {
            "timing": {
                "generate_sequences": policy.generate_seconds,
                "tool_calls": policy.env_seconds,
                "total": total,
                "queued": started - began,
            }
        }
        newest = max(int(kwargs.get("global_steps", 0)) - 1, 0)
        known = [version for step in policy.versions for version in step if version >= 0] or [newest]
        fields |= {"min_global_steps": min(known), "max_global_steps": max(known)}
        # verl copies the last row's reward and reward_extra_info to all rows (v1/agent_loop_tq.py:174), so both are the
        # episode's; the step's own reward is in extra_fields
        line = episode.to_json()
        record = {**episode_record(episode, policy.cached_tokens), "episode": "" if trains else line}
        record |= calls_made(episode) if settings.agent else {}
        outputs: list[AgentLoopOutput] = []
        for row in rows:
            tokens, last = row.tokens, row is rows[-1]
            output = RowOutput(
                prompt_ids=tokens.prompt_ids,
                response_ids=tokens.response_ids,
                response_mask=tokens.response_mask,
                response_logprobs=tokens.logprobs if sampling_params.get("logprobs") else None,
                step_ids=tokens.step_ids,
                versions=row_versions(tokens.step_ids, policy.versions) if settings.ahead else None,
                reward_score=episode.reward,
                num_turns=2 * len(episode.steps),
                metrics=AgentLoopMetrics(generate_sequences=sum(policy.generate_seconds)),
                extra_fields={
                    **fields,
                    **row.fields(episode.episode_id),
                    "episode": line if trains and last else "",
                    "error": (episode.error or "") if last else "",
                    "reward_extra_info": record,
                },
            )
            if policy.pictures is not None:
                ids = [*tokens.prompt_ids, *tokens.response_ids]
                output.model_inputs = await asyncio.to_thread(row_inputs, policy.pictures, ids, tokens.pictures)
            outputs.append(output)
        if policy.pictures is not None and settings.episodes_dir:
            folder = picture_folder(Path(settings.episodes_dir) / "episodes.jsonl")
            await asyncio.to_thread(folder.add, episode_pictures(episode))
        return outputs

    async def _play(
        self, row: Mapping[str, Any], policy: ServerPolicy, seed: int, options: Any, episode_id: str, group_id: str,
        *, taught: bool,
    ) -> Episode:  # fmt: skip
        """Play the episode in an environment of the pool, which tells the labels if it is `taught`."""
        env_id, settings = row["env_id"], self.settings
        servers = EnvServers(settings.env_workers, settings.step_timeout) if settings.env_workers else None
        parts = {name: json.loads(row.get(name) or "null") for name in ("env_kwargs", "wrappers")}
        name, arguments, wrappers = recorded_env({"env": env_id, **parts}, "a dataset row", trust=settings.trust)
        if taught:
            arguments, wrappers = settings.teaching.asked(arguments, wrappers)
        key, env = await _pool.acquire(name, arguments, wrappers, servers)
        episode = await arun_episode(
            env, policy, seed=seed, options=options, episode_id=episode_id, group_id=group_id,
            step_timeout=settings.step_timeout, episode_timeout=settings.episode_timeout, agent=settings.agent,
            score=settings.score,
        )  # fmt: skip
        if servers:  # the environment played is not its client
            episode = replace(episode, env_id=env_id.rpartition(":")[2])
        if not episode.stop_reason.broken:
            _pool.release(key, env)
            return episode
        if servers:  # the others may be of a server that is gone
            await asyncio.to_thread(_pool.close, key)
        if episode.stop_reason is StopReason.ERROR:  # after a time-out the abandoned thread closes it
            await asyncio.to_thread(env.close)
        return episode

    def _labels(self, episode: Episode, policy: ServerPolicy) -> dict[int, tuple[int, ...]]:
        """Return the tokens of the teacher's label at each step that has one."""
        if policy.actor is None or not self.settings.teacher:
            return {}
        before = [episode.reset_info, *(step.info for step in episode.steps)]
        most = [policy.max_tokens, policy.context_length]
        found = {
            i: label_ids(policy.actor.model.builder, info, min(most[0], most[1] - len(step.prompt_ids or ())))
            for i, (step, info) in enumerate(zip(episode.steps, before, strict=False))
        }
        return {i: ids for i, ids in found.items() if ids}

    def _final_prompt(self, episode: Episode, policy: ServerPolicy) -> list[int] | None:
        """The prompt of the state after a truncated episode's last step, if the trainer needs its value."""
        actor, bootstraps = policy.actor, self.settings.options.get("bootstrap_truncated", True)
        if not self.estimator.needs_critic or not bootstraps:
            return None
        if actor is None or not episode.steps or not episode.steps[-1].truncated:
            return None
        # the model may have been asked already: the prompt was too long, or the response empty
        if actor.conversation.messages[-1]["role"] == "assistant":
            actor.conversation.observe(episode.final_observation, episode.steps[-1].info)
        prompt = actor.model.prompt(actor.conversation.messages, actor.tools).ids
        return prompt if len(prompt) < policy.context_length else None
