"""What a trainer of TRL asks its model, for tests."""

from __future__ import annotations

from typing import Any


def prompts_of(trainer: Any) -> list[Any]:
    """Return a list that is filled with the tokens of each batch of prompts while the trainer runs."""
    asked: list[Any] = []
    render = trainer._tokenize_prompts

    def keep(prompts: list[Any]) -> Any:
        made = render(prompts)
        asked.append(made[0])
        return made

    trainer._tokenize_prompts = keep
    return asked
