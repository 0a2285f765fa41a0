"""What the agent loop asks of a generation server, and what it makes of the answers, through verl's own client.

The server answers as verl's vLLM server does (workers/rollout/vllm_rollout/vllm_async_server.py, `generate`): it takes
the same arguments, makes a `SamplingParams` of them, and stops and aborts as vLLM does.

1. a response ends with the chat template's turn, whatever the tokenizer's own end is
2. no engine gets a setting that it does not take
3. an aborted response, and log-probabilities that are missing or NaN, break the episode; nothing of it is trained
4. rows have no log-probabilities where none were asked for, rather than zeros
5. prompt tokens from the server's cache are counted
6. under top_p the importance weights undo the truncation
7. a context that the model has no positions for is refused before anything starts
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from test_verl_agent_loop import AWKWARD, echo_env, play  # noqa: F401
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from agent_envs.adapters.estimators import get_estimator
from agent_envs.adapters.tiny.model import save_model
from agent_envs.adapters.verl.batch.columns import step_columns
from agent_envs.adapters.verl.batch.metrics import training_metrics
from agent_envs.adapters.verl.batch.table import step_table
from agent_envs.adapters.verl.config.objective import Objective
from agent_envs.adapters.verl.rollout.cpu_rollout import OnlyServer
from agent_envs.cli.main import main
from agent_envs.policies.local.requests import SamplingParams, sample
from benchmarks.pretraining.model import build_model
from benchmarks.pretraining.tokenizer import build_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore")


@dataclasses.dataclass
class VLLMParams:
    """The settings of vLLM's `SamplingParams` that verl sends or that we do."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop_token_ids: list[int] = dataclasses.field(default_factory=list)
    ignore_eos: bool = False
    repetition_penalty: float = 1.0
    logprobs: int | None = None


class FakeVLLM:
    """Writes eight letters and the end of the turn, and goes on as a base model does, up to the limit."""

    def __init__(self, tokenizer: Any, *, log_probs: Any = None, abort_at: int | None = None) -> None:
        self.letters = [tokenizer.encode(c, add_special_tokens=False)[0] for c in "abcdefgh"]
        self.eos, self.turn_end = tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|im_end|>")
        self.log_probs, self.abort_at = log_probs, abort_at
        self.asked: list[VLLMParams] = []
        self.remembered: list[list[int]] = []

    class _Generate:
        def __init__(self, server: FakeVLLM) -> None:
            self.server = server

        async def remote(self, **kwargs: Any) -> TokenOutput:
            return await self.server.answer(**kwargs)

    @property
    def generate(self) -> _Generate:
        return self._Generate(self)

    async def answer(
        self,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        request_id: str,
        image_data: Any = None,
        video_data: Any = None,
        priority: int = 0,
    ) -> TokenOutput:
        settings = dict(sampling_params)
        settings["logprobs"] = 0 if settings.pop("logprobs", False) else None
        params = VLLMParams(**settings)  # as strict as vLLM's
        self.asked.append(params)
        text = [*self.letters, self.turn_end, *self.letters * params.max_tokens]
        ends = {self.eos, *params.stop_token_ids}
        length = next((i + 1 for i, token in enumerate(text) if token in ends), len(text))
        ids = text[: min(length, params.max_tokens)]
        aborted = self.abort_at == len(self.asked) - 1
        ids = ids[:3] if aborted else ids
        log_probs = [-0.5] * len(ids) if self.log_probs is None else self.log_probs(ids)
        cached = max((self._common(prompt_ids, other) for other in self.remembered), default=0) // 16 * 16
        self.remembered.append([*prompt_ids, *ids])
        await asyncio.sleep(0)
        return TokenOutput(
            token_ids=ids,
            log_probs=None if params.logprobs is None else log_probs,
            stop_reason="aborted" if aborted else "completed",
            extra_fields={"global_steps": 3, "num_cached_tokens": cached},
        )

    @staticmethod
    def _common(a: list[int], b: list[int]) -> int:
        return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@pytest.fixture(scope="module")
def base_model():
    """A tokenizer whose end of text is not the end of its template's turns."""
    tokenizer = build_tokenizer([text * 3 for text in AWKWARD])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|endoftext|>"]})
    tokenizer.eos_token = "<|endoftext|>"
    assert tokenizer.eos_token_id != tokenizer.convert_tokens_to_ids("<|im_end|>")
    return tokenizer


def ask(tokenizer: Any, server: FakeVLLM, engine: str = "vllm", **how: Any) -> list[Any]:
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"name": engine, "full_determinism": False}}})
    client = LLMServerClient(config, OnlyServer("fake", server))
    return play(tokenizer, client, engine=engine, **{"prompt_length": 4096, "merge": True, **how})


def test_responses_end_with_the_turn(base_model):
    server = FakeVLLM(base_model)
    outputs = ask(base_model, server, merge=False)
    assert [len(output.response_ids) for output in outputs] == [9] * 4
    assert all(output.response_ids[-1] == server.turn_end for output in outputs)
    assert all({server.turn_end, server.eos} <= set(params.stop_token_ids) for params in server.asked)


@pytest.mark.parametrize(("engine", "seeded"), [("agentr1_cpu", True), ("vllm", True), ("sglang", False)])
def test_no_engine_gets_a_seed_that_it_does_not_take(base_model, engine, seeded):
    server = FakeVLLM(base_model)
    ask(base_model, server, engine)
    assert all((params.seed is not None) == seeded and params.stop_token_ids for params in server.asked)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"abort_at": 2}, "BackendAbortedError: the response of step 2 was cut off after 3 tokens"),
        ({"log_probs": lambda ids: None}, "BackendReplyError: the server returned 9 tokens at step 0"),
        ({"log_probs": lambda ids: [-0.5] * (len(ids) - 1)}, "the log-probabilities of 8; it was asked for all"),
        ({"log_probs": lambda ids: [math.nan, *[-0.5] * (len(ids) - 1)]}, "the log-probabilities of 8"),
    ],
)
def test_a_faulty_answer_breaks_the_episode(base_model, fault, error):
    outputs = ask(base_model, FakeVLLM(base_model, **fault))
    assert {output.extra_fields["kind"] for output in outputs} == {"masked"}
    assert not any(sum(output.response_mask) for output in outputs)
    assert error in outputs[-1].extra_fields["error"]
    assert outputs[-1].extra_fields["reward_extra_info"]["stop_reason"] == "error"


def test_rows_have_no_log_probabilities_rather_than_zeros(base_model):
    (row,) = ask(base_model, FakeVLLM(base_model), logprobs=False)
    assert row.response_logprobs is None and "rollout_log_probs" not in row.as_dict()
    assert sum(row.response_mask) == 36
    (row,) = ask(base_model, FakeVLLM(base_model))
    assert [x for x, own in zip(row.response_logprobs, row.response_mask, strict=True) if own] == [-0.5] * 36


def test_prompt_tokens_from_the_cache_are_counted(base_model):
    (row,) = ask(base_model, FakeVLLM(base_model))
    record = row.extra_fields["reward_extra_info"]
    metrics = training_metrics([record])
    prompts = [step["prompt_tokens"] for step in row.extra_fields["steps"]]
    reused = sum((n + 9) // 16 * 16 for n in prompts[:-1])  # whole blocks of each prompt and response before
    assert metrics["env/tokens/cached"] == record["cached_tokens"] == reused > 0
    assert metrics["env/prefix_cache_hits"] == pytest.approx(reused / sum(prompts))


def test_importance_weights_undo_the_truncation_of_top_p():
    logits = torch.tensor([[2.0, 1.5, 0.5, 0.0, -2.0]])
    full = torch.log_softmax(logits[0], 0)
    params = [SamplingParams(1, top_p=0.85)] * 8
    tokens, sampled = sample(logits.repeat(8, 1), params, (np.arange(8) + 0.5) / 8)
    step = {"index": 0, "start": 0, "end": 8, "reward": 1.0, "components": {}, "terminated": True, "truncated": False,
            "anchor": "", "prompt_tokens": 1}  # fmt: skip
    row = {"kind": "step", "trajectory": "u_0", "steps": [step], "value_at": -1}
    table = step_table([row], ["u"], torch.tensor([0, 8]), {"u": 0})
    given = {"old_log_probs": full[tokens], "rollout_log_probs": torch.tensor(sampled)}
    settings = {"rollout_is": "token", "rollout_is_threshold": 2.0, "rollout_rs": None, "rollout_rs_threshold": None,
                "bypass_mode": False, "rollout_is_batch_normalize": False}  # fmt: skip
    correction = OmegaConf.create(settings)
    objective = Objective(get_estimator("grpo"), correction=correction)
    zero = torch.zeros(1, dtype=torch.int64)
    weights = step_columns(table, given, 8, objective, zero, zero).columns["rollout_is_weights"]
    assert set(tokens) == {0, 1, 2}
    mass = float(full.exp()[:3].sum())
    assert mass < 0.95 and weights.tolist() == pytest.approx([mass] * 8, abs=1e-5)


def test_a_context_beyond_the_models_positions_is_refused_at_once(tmp_path, capsys):
    tokenizer = build_tokenizer(["one text"], vocab_size=263)
    save_model(build_model(tokenizer, context_length=512), tokenizer, tmp_path / "model")
    command = ["train", "--env", "AgentR1/GSM8K-v0", "--model", str(tmp_path / "model"), "--out", str(tmp_path / "run")]
    lengths = ["data.max_prompt_length=500", "data.max_response_length=13"]
    assert main([*command, *lengths]) == 2
    error = capsys.readouterr().err
    assert "a context of 513) do not fit into the 512 positions of" in error and not (tmp_path / "run").exists()
    assert main([*command, lengths[0], "data.max_response_length=12", "--dry-run"]) == 0
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    rope = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 512}
    path.write_text(json.dumps({**config, "rope_parameters": rope}))
    assert main([*command, *lengths, "--dry-run"]) == 0
    path.write_text("[1]")
    assert main([*command, *lengths]) == 2 and "must be a JSON object" in capsys.readouterr().err
