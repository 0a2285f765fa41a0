"""One place decides what a chat model is shown.

What these tests pin:

1. a list that is no continuation begins anew (`rebuilt`: tests/policies/test_policy_openai.py);
2. a list that continues what was shown gives the same tokens as the same words one after the other;
3. tokens of earlier prompts and responses stay as they were.
"""

import pytest

from agent_envs.prompts.builder import PromptBuilder
from agent_envs.prompts.conversation import Conversation


def whole(*contents: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in contents]


@pytest.mark.parametrize(
    ("second", "fresh"),
    [
        ([("user", "one"), ("assistant", "a"), ("user", "two")], False),
        ([("user", "one"), ("assistant", "other"), ("user", "two")], True),  # the response was rewritten
        ([("user", "two")], True),  # the window moved on
        ([("user", "one"), ("assistant", "a")], True),  # nothing new: no prompt to extend
    ],
)
def test_list_grows_where_it_begins_with_what_was_shown(second, fresh):
    conversation = Conversation()
    assert conversation.observe(whole(("user", "one")), {}).fresh
    conversation.respond("a")
    turn = conversation.observe(whole(*second), {})
    assert turn.fresh is fresh and conversation.messages == whole(*second)
    assert turn.new == (whole(*second) if fresh else whole(("user", "two")))


def test_lists_and_words_give_the_same_tokens(data_dir, token_conversation):
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(data_dir / "tokenizers" / "minimind")
    words, lists = (token_conversation(PromptBuilder(tokenizer), said) for said in ("Act.", ""))
    response = [*tokenizer.encode("tak", add_special_tokens=False), *tokenizer.encode("e it", add_special_tokens=False)]
    shown = [("system", "Act."), ("user", "one")]
    first = words.observe("one", {})
    assert first == lists.observe(whole(*shown), {})
    for conversation in (words, lists):
        conversation.respond("take it", response)
    second = words.observe("two", {})
    assert second == lists.observe(whole(*shown, ("assistant", "take it"), ("user", "two")), {})
    assert second[: len(first) + len(response)] == first + response  # not tokenized again as one word


def test_a_list_gets_the_tools_in_words_once():
    conversation = Conversation("Tools: add.")
    for start in ([{"role": "system", "content": "Act."}], [], [{"role": "system", "content": "Act.\n\nTools: add."}]):
        prompt = [*start, {"role": "user", "content": "Go."}]
        conversation.observe(prompt, {})
        told = "Act.\n\nTools: add." if start else "Tools: add."
        assert conversation.messages == [{"role": "system", "content": told}, prompt[-1]]
        conversation.respond("a")
        grown = [*prompt, {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
        assert conversation.observe(grown, {}) == ([{"role": "user", "content": "b"}], False)
