"""Episodes of drawn tokens, which no environment played, and a model of a few of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agent_envs.adapters.merging import plan_rows
from agent_envs.episodes.record import Episode, Step, StopReason


def toy_episode(
    name: str,
    steps: Sequence[Step],
    group: str = "g",
    reason: StopReason = StopReason.TERMINATED,
    reset_info: dict[str, Any] | None = None,
) -> Episode:
    """An episode of no environment."""
    return Episode("Toy-v0", name, group, None, 0, "", (), reset_info or {}, tuple(steps), "", reason)


def toy_model(kind: str = "CausalLM", std: float = 0.3) -> Any:
    """A model of twelve tokens that has learned nothing but minds them all; in float64, so that sums have no order."""
    import torch
    import transformers

    config = transformers.Qwen2Config(
        vocab_size=12, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=256, num_labels=1, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = getattr(transformers, f"AutoModelFor{kind}").from_config(config, attn_implementation="sdpa").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=std)
    return model.double()


def drawn_episodes(
    seed: int, contexts: str, groups: int = 3, per_group: int = 3, longest: int = 4
) -> list[tuple[int, tuple[int, ...], Episode]]:
    """Episodes as an agent would leave them: (group, final prompt, episode). Every third is cut.

    ``grow``: every prompt extends the one before. ``mixed``: prompts are rebuilt, cut, and two contexts take turns;
    some steps share a row, without which there is nothing to compare.
    """
    rng = np.random.default_rng(seed)

    def draw(low: int, high: int) -> tuple[int, ...]:
        return tuple(int(x) for x in rng.integers(7, 250, int(rng.integers(low, high))))

    out = []
    for group in range(groups):
        start, helper = draw(5, 12), draw(4, 8)
        for session in range(per_group):
            lineages, steps, count = [start, helper], [], int(rng.integers(1, longest + 1))
            for t in range(count):
                what = int(rng.integers(4)) if contexts == "mixed" and t else 0
                which = int(what == 1)
                if what == 2:
                    lineages[0] = draw(5, 12)  # rebuilt
                elif what == 3:
                    lineages[0] = lineages[0][3:]  # its oldest tokens dropped
                response, last = draw(1, 6), t == count - 1
                cut = last and session % 3 == 1
                steps.append(Step(
                    "o", "a", round(float(rng.normal()), 2), last and not cut, cut,
                    {"reward_components": {"format": float(t % 2)}, "anchor": f"{group}/{rng.integers(2)}"},
                    lineages[which], response, tuple(float(x) for x in rng.normal(-5, 0.3, len(response))),
                ))  # fmt: skip
                lineages[which] = (*lineages[which], *response, *draw(1, 5))
            reason = StopReason.TRUNCATED if steps[-1].truncated else StopReason.TERMINATED
            info = {"anchor": f"{group}/start"}
            out.append((group, lineages[0], toy_episode(f"g{group}_{session}", steps, f"g{group}", reason, info)))
    plans = (plan_rows([(step.prompt_ids, step.response_ids) for step in episode.steps]) for _, _, episode in out)
    assert contexts == "grow" or any(len(row) > 1 for rows in plans for row in rows), "take another seed"
    return out
