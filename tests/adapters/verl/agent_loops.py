"""The agent loop in this process, and verl's client of a generation server without the processes between them."""

from __future__ import annotations

import json
from typing import Any

from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

from agent_envs.adapters.verl.rollout import agent_loop
from agent_envs.policies.local.requests import SamplingParams


class Client:
    """Asks a `GenerateServer` as verl's client asks its servers."""

    def __init__(self, server: Any) -> None:
        self.server = server

    async def generate(
        self, request_id: str, *, prompt_ids: Any, sampling_params: Any, image_data: Any = None
    ) -> TokenOutput:
        params = SamplingParams.from_dict(sampling_params, 8)
        done = await self.server.generate(list(prompt_ids), params, list(image_data or ()))
        return TokenOutput(token_ids=done.token_ids, log_probs=done.log_probs, stop_reason=done.stop_reason,
                           extra_fields={"min_global_steps": 0, "max_global_steps": 0})  # fmt: skip


async def play_session(
    config: Any, client: Any, tokenizer: Any, env_id: str, *, index: int, session: int, uid: str = "u", step: int = 1,
    phase: str = "train", env_kwargs: Any = None, wrappers: Any = (), logprobs: bool = True,
    kind: str = "qwen2", **more: Any,
) -> list[Any]:  # fmt: skip
    """The outputs of one session of a prompt."""
    loop = agent_loop.EnvAgentLoop(
        trainer_config=DictConfigWrap(config), server_manager=client, tokenizer=tokenizer, processor=None,
        dataset_cls=RLHFDataset, data_config=DictConfigWrap(config.data), hf_model_type=kind,
    )  # fmt: skip
    return await loop.run(  # type: ignore[no-any-return]
        {"temperature": 1.0, "logprobs": logprobs}, raw_prompt=[], env_id=env_id,
        env_kwargs=json.dumps(env_kwargs or {}), wrappers=json.dumps(wrappers),
        extra_info={"index": index, "phase": phase}, uid=uid, session_id=session, global_steps=step, **more,
    )  # fmt: skip
