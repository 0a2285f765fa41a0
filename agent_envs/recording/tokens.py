"""Tokens of calls whose server does not report them, made from the texts with the model's tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_envs.errors import PromptError
from agent_envs.parsers.json_calls import load_json
from agent_envs.policies.tokens import load_tokenizer
from agent_envs.prompts.builder import PromptBuilder


class Retokenizer:
    """Renders a call with a tokenizer's chat template, as a server does, and tokenizes it.

    Tokenizing a sampled text can give other tokens than were sampled. Steps with such tokens are therefore marked
    (``info["tokens"] = "tokenizer"``) and have no log-probabilities.

    Args:
        name: See `load_tokenizer`; a PromptError if it has no chat template.
    """

    def __init__(self, name: str) -> None:
        self.tokenizer: Any = load_tokenizer(name)
        self._ends = PromptBuilder(self.tokenizer).ends

    def prompt(self, request: Mapping[str, Any]) -> tuple[tuple[int, ...], str]:
        """Return the tokens and the text of a request's prompt; a PromptError if the template rejects it."""
        text = self._render(request, request["messages"], add_generation_prompt=True)
        return self._encode(text), text

    def response(self, request: Mapping[str, Any], prompt: str, choice: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the tokens of a response, with its end-of-turn token unless it was cut off.

        Raises a PromptError as `prompt` does, or if the template renders the prompt differently once it is answered.
        """
        messages = [*request["messages"], choice["message"]]
        whole = self._render(request, messages, add_generation_prompt=False)
        if not whole.startswith(prompt):
            raise PromptError("the chat template renders a prompt differently once it is answered")
        ids = list(self._encode(whole[len(prompt) :]))
        last = max((i for i, token in enumerate(ids) if token in self._ends), default=len(ids))
        # the model did not sample what the template puts after the turn
        return tuple(ids[: last if choice.get("finish_reason") == "length" else last + 1])

    def _encode(self, text: str) -> tuple[int, ...]:
        try:
            return tuple(self.tokenizer.encode(text, add_special_tokens=False))
        except (TypeError, ValueError) as e:  # lone surrogates
            raise PromptError(f"the tokenizer rejects the text: {e}") from e

    def _render(self, request: Mapping[str, Any], messages: Sequence[Any], *, add_generation_prompt: bool) -> str:
        from jinja2.exceptions import TemplateError

        extra = request.get("chat_template_kwargs")
        try:
            text = self.tokenizer.apply_chat_template(
                [_plain(message) for message in messages],
                tools=request.get("tools") or None,
                add_generation_prompt=add_generation_prompt,
                tokenize=False,
                **(extra if isinstance(extra, Mapping) else {}),
            )
        except (TemplateError, TypeError, ValueError, KeyError) as e:
            raise PromptError(f"the chat template rejects the messages: {e}") from e
        return str(text)


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as templates expect it: content as text, and arguments of calls as objects."""
    out = {key: value for key, value in message.items() if value is not None}
    content = out.setdefault("content", "")
    if isinstance(content, list):
        for part in content:
            if not isinstance(part, Mapping) or not isinstance(part.get("text"), str):
                kind = part.get("type") if isinstance(part, Mapping) else part
                raise PromptError(f"a tokenizer makes tokens of text alone, got a part of the type {kind!r:.80}")
        out["content"] = "".join(part["text"] for part in content)
    if isinstance(out.get("tool_calls"), list):
        out["tool_calls"] = [_call(call) for call in out["tool_calls"]]
    return out


def _call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        return {**call, "function": {**function, "arguments": load_json(function["arguments"] or "{}")}}
    except ValueError:
        return call
