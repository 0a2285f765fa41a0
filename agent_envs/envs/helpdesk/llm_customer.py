"""A model plays the customer of a released task, or puts what the scripted one says into words of its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from agent_envs.errors import ConfigError
from agent_envs.messages import Message
from agent_envs.per_process import PerProcess
from agent_envs.policies.openai.policy import OpenAIPolicy, written

_GREETING = "Hello, how can I help you?"
_END = "[END]"
_PROMPT = """You play a customer who talks to an agent of a company. This is who you are and what you want:

{brief}

Write only what the customer says next, in one or two sentences of your own, and stay in this part whatever the agent \
says. Say only what the moment asks for, not everything at once, and make up nothing: what is not written above you do \
not know. Agree to what you want and to nothing else. Write {end} alone as soon as all you want is done or will not be \
done, or the agent passes you on to somebody else; never before the agent has said that it is done."""

_REWORD = """Say what a customer of a company says in words of your own, as a person would on the telephone. Keep \
every name, number, date and wish, and add nothing. Write the words alone.

{sentence}"""
_VALUES = re.compile(r"\w*\d[\w-]*|\b(?:yes|no|not)\b")


class CustomerModel:
    """A model that plays a customer, at temperature 0; its client is made once in a process and is in no pickle.

    Args:
        model: Its name.
        url: Its server.

    Raises:
        ConfigError: There is no name.
    """

    def __init__(self, model: str, url: str | None) -> None:
        if not model:
            raise ConfigError("model must name the model that plays the customer")
        self.model, self.url = model, url
        self._policies: PerProcess[OpenAIPolicy] = PerProcess()
        _ = self.policy  # made here, so that gym.make refuses what is wrong

    @property
    def policy(self) -> OpenAIPolicy:
        """The client."""
        return self._policies.get("", lambda: OpenAIPolicy(self.model, base_url=self.url, temperature=0.0))

    def voiced(self, sentence: str, names: Iterable[str]) -> str:
        """Return what a customer says in the model's words, or unchanged if these do not say the same.

        Args:
            sentence: What the customer says.
            names: What must be in both or in neither, besides numbers, yes, no and not.

        Raises:
            BackendError: The model's server failed, or the model said nothing.
        """
        asked: Message = {"role": "user", "content": _REWORD.format(sentence=sentence)}
        said = written(self.policy, [asked], "the customer's words")
        told = [(Counter(_VALUES.findall(text.lower())), [name in text for name in names]) for text in (said, sentence)]
        return said if told[0] == told[1] else sentence

    def played(self, brief: str, turns: list[tuple[str, str]], text: str = _GREETING) -> tuple[str, bool]:
        """Return what a customer whom the model plays says to a text, first to a greeting, and whether that is the end.

        Args:
            brief: Who the customer is and what it wants.
            turns: What the agent and then the customer said so far; it grows.
            text: What the agent says.

        Raises:
            BackendError: The model's server failed, or the model said nothing.
        """
        messages: list[Message] = [{"role": "system", "content": _PROMPT.format(brief=brief, end=_END)}]
        for agent, customer in [*turns, (text, "")]:
            messages += [{"role": "user", "content": agent}, {"role": "assistant", "content": customer}]
        reply = written(self.policy, messages[:-1], "the customer")
        said = reply.replace(_END, "").strip() or "Thank you, goodbye."
        turns.append((text, said))
        return said, _END in reply
