"""Supervised fine-tuning with verl on the rows of `agentr1 demos`, with the tokens and masks of the rollout.

verl's own dataset renders messages separately and joins the parts, and keeps the empty entries that a parquet column
adds to tools with different arguments. Use this one instead:

    data.custom_cls.path=pkg://agent_envs.adapters.verl.batch.sft_dataset data.custom_cls.name=DemonstrationDataset
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

from agent_envs.errors import DataError
from agent_envs.prompts.builder import PromptBuilder
from agent_envs.rollout.demonstrations import without_nulls


class DemonstrationDataset(MultiTurnSFTDataset):
    """verl's multi-turn dataset with the prompts of the rollout; the loss is on responses and their end tokens only.

    If a row has `opening`, responses begin after that many messages; earlier assistant messages are context.
    """

    tokenizer: Any
    messages: list[Any]
    tools: list[Any] | None

    def _read_files_and_process(self) -> None:
        # verl renders two messages of the user in a row, for prompts that are not used here: many templates reject it
        tokenizer, self.tokenizer = self.tokenizer, SimpleNamespace(apply_chat_template=lambda *args, **kwargs: [])
        super()._read_files_and_process()
        self.tokenizer = tokenizer
        self.messages = [without_nulls(messages) for messages in self.messages]
        self.tools = None if self.tools is None else [without_nulls(tools) for tools in self.tools]
        table = self.dataframe.reindex(columns=["opening", "tool_instructions"]).astype(object)
        self._openings, self._words = (table[name].where(table[name].notna(), None).tolist() for name in table)

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        """Return `input_ids`, `position_ids`, `loss_mask` and, for padded rows, `attention_mask`; shape [tokens]."""
        tools = None if self.tools is None else self.tools[item]
        words = self._words[item] or ""
        builder = PromptBuilder(self.tokenizer, tools, self.apply_chat_template_kwargs, tool_instructions=words)
        ids, spans = builder.conversation(self.messages[item], self._openings[item])
        mask = torch.zeros(len(ids), dtype=torch.int64)
        for start, end in spans:
            mask[start:end] = 1
        tokens = torch.tensor(ids)
        if len(ids) > self.max_length:
            if self.truncation == "error":
                raise DataError(
                    f"row {item} has {len(ids)} tokens, more than data.max_length={self.max_length}; raise it, or set "
                    "data.truncation to left or right"
                )
            part = slice(-self.max_length, None) if self.truncation == "left" else slice(self.max_length)
            tokens, mask = tokens[part], mask[part]
        row = {"input_ids": tokens, "position_ids": torch.arange(len(tokens)), "loss_mask": mask}
        if self.pad_mode == "no_padding":
            return row
        row["attention_mask"] = torch.ones_like(tokens)
        filler = {"input_ids": self.tokenizer.pad_token_id or 0}
        missing = self.max_length - len(tokens)
        return {name: torch.nn.functional.pad(x, (0, missing), value=filler.get(name, 0)) for name, x in row.items()}
