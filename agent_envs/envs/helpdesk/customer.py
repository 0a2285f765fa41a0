"""The customer: a program that knows what is true, hears free text and ends only when its letters say so.

Its reply is made in this order: letters are settled, an amount is taken in, an offer gets a yes or a correction,
questions are answered; if nothing was understood, it says its wish again and, every second time, one fact more. So
mishearing costs turns and never the outcome: whoever makes the right calls and offers gets everything else told.
"""

from __future__ import annotations

import zlib

from agent_envs.datasets.helpdesk.generated.domain import Device
from agent_envs.datasets.helpdesk.generated.rules import value_key
from agent_envs.datasets.helpdesk.generated.solving import Deed, Wish
from agent_envs.envs.helpdesk.devices import told_and_asked
from agent_envs.envs.helpdesk.hearing import Heard, acts_named, contradicts, hear
from agent_envs.envs.helpdesk.phrases import amounts_in, plain, says, signs
from agent_envs.envs.helpdesk.wanting import Wanting

_MISREAD_AFTER = 3
"""Texts without fruit until a customer looks at a number again."""


class Customer(Wanting):
    """The customer of a task, who hears and replies, and goes on to the next wish or request when letters say so."""

    def opening(self) -> str:
        """Return the first words, terse, plain or chatty."""
        before = ("", "greet", "greet filler")[1 if self.plain else zlib.crc32(self.task.task_id.encode()) % 3]
        return self._kept(" ".join([*(self.say(key) for key in before.split()), self.wish_words("wish")]))

    def reply(self, text: str) -> str:
        """Return what the customer says to a text; `mind.over` says whether the conversation is over."""
        mind, wish = self.mind, self.wish
        mind.texts += 1
        heard = hear(text, self.domain, self.act, self.values())
        mind.heard = heard.names()
        before, pleading = (mind.request, mind.wish), mind.refused
        parts = self._take_in(text) + self._settle()
        if pleading and mind.refused:
            parts += self._plead()
        if (mind.request, mind.wish) == before:
            known, fruit = len(mind.told), bool(parts or (wish and heard.offer and not mind.settled))
            if device := self.device:
                parts += self._look_and_press(device, text) or [self.say("other")] * heard.refuses
            elif wish and not mind.settled:
                named = wish.act in signs(heard.offer, acts_named(self.domain))
                if heard.offer and (named or not mind.refused):
                    parts += self._offered(wish, heard.offer)
                elif heard.refuses and not (parts or heard.doubts or heard.asks):
                    parts.append(self.say("no_refusal"))
                elif heard.reports and not (parts or heard.asks):
                    parts.append(self.say("no_letter"))
            if (mind.request, mind.wish) == before:
                parts += self._answers(heard)
                if not fruit and len(mind.told) == known:
                    parts = self._ladder(parts)
        elif not mind.over:
            parts += [self._tell(fact) for fact in heard.asks if fact in ("name", "code")]
        if not mind.over and mind.texts >= self.task.patience:
            mind.over = True
            parts = [self.say("go")]
        return self._kept(" ".join(parts))

    def _kept(self, reply: str) -> str:
        """Return the reply, which is never the one before again."""
        if reply == self.mind.last:
            reply = f"{self.say('unclear')} {reply}"
        self.mind.last = reply
        return reply

    def _take_in(self, text: str) -> list[str]:
        """Understand an amount: one alone, or one that its name stands before; later, what corrects it."""
        wish, amount = self.wish, self.act.amount if self.act else None
        if not (wish and wish.question and amount):
            return []
        every, named = amounts_in(text, amount.words)
        amounts, believed = named if len(named) == 1 else every, self.mind.beliefs.get(self.key)
        corrects = len(named) == 1 or (len(every) == 1 and says("correcting", plain(text)))
        if not every or not (self.asks_amount or corrects) or believed in amounts:
            return []
        if len(amounts) > 1:
            return [self.say("which")]
        if self.task.customer not in self.desk.verified:
            self.desk.faults.append("told before the code word was checked")
        self.mind.beliefs[self.key] = amounts[0]
        return [self.say("believed" if amounts[0] else "nothing at all", n=amounts[0])]

    def _offered(self, wish: Wish, offer: str) -> list[str]:
        """Say yes, correct what is offered, or change the mind."""
        mind, act = self.mind, self.domain.acts[wish.act]
        if wish.item[-5:] not in offer and (misread := self._corrected()):
            return misread  # what is agreed is what the yes says, so it has the right number
        mind.corrected = True
        owner, rows = self.domain.customer.noun, self.task.rows["item"]
        labels = {key: str(row[self.domain.label]) for key, row in rows.items() if row[owner] == self.task.customer}
        if contradicts(offer, self.domain, act, wish.item, self.wanted, labels):
            self.desk.agreed.clear()
            return [self.say("no", do=self.doing(act, self.wanted))]
        if self.request.dropped and mind.wish == len(self.request.wishes) - 1:
            return [self.say("dropped"), *self._next_request()]
        if wish.change and not mind.changed:
            mind.changed = True
            mind.told.update(wish.change)
            return [self.say("changed", do=self.doing(act, wish.wanted))]
        self.desk.agreed.append(Deed("act", wish.act, wish.item, "", self.wanted))
        mind.told.update(ask.name for ask in act.asks if ask.follows)
        return [self.say("yes", do=self.doing(act, self.wanted))]

    def _answers(self, heard: Heard) -> list[str]:
        parts = self._corrected() if heard.doubts else []
        if heard.confirms and not heard.asks:
            self.mind.told.update(heard.confirms)
            parts.append(self.say("right"))
        for fact in heard.asks:
            if fact == "wish" and not parts and len(heard.asks) == 1:
                parts.append(self.wish_words("wish"))
            elif fact != "wish" and not (fact == "number" and parts and heard.doubts):
                parts.append(self._tell(fact))
        return parts

    def _corrected(self) -> list[str]:
        """Put a misread number right that has not been yet."""
        if self.wish is None or not self.request.misread or self.mind.corrected:
            return []
        self.mind.corrected = True
        return [self.say("misread", x=self.wish.item)]

    def _tell(self, fact: str) -> str:
        self.mind.told.add(fact)
        if fact in ("name", "code"):
            return self.say(fact, x=self.values()[fact])
        if (device := self.device) and fact in device.reads:
            read = device.reads[fact]
            return read.say[value_key(self.desk.tables["device"]["device"][read.field])]
        if self.act is None:
            return self.say("nothing")
        if fact == "number":
            numbered = self.request.named == "number"
            return self.say("number", x=self.number) if numbered else self.say("no_number", x=self.item())
        ask = next(ask for ask in self.act.asks if ask.name == fact)
        words = ask.said(self.wanted[fact])
        return f"{words[0].upper()}{words[1:]}." if ask.follows else words

    def _look_and_press(self, device: Device, text: str) -> list[str]:
        """Do to the device what a text says, and look at what it asks about."""
        mind, parts = self.mind, []
        told, asked = told_and_asked(text, device)
        for name in told or [mind.pending] * (bool(mind.pending) and says("agreeing", plain(text))):
            act = device.acts[name]
            mind.pending = name if act.final and mind.pending != name else ""
            if mind.pending:
                parts.append(self.say("really", do=act.words(act.verbs[0], "")))
                continue
            if name != self.request.slack or name in mind.pressed:
                self.desk.press(act)
            mind.pressed.append(name)
            fields = {field for _, field, _ in act.effect}
            mind.told -= {name for name, read in device.reads.items() if read.field in fields}
            mind.fruitless = 0
            parts.append(act.say)
        parts += [self._tell(read) for read in asked if mind.pending not in told]
        return parts + self._tried(device)

    def _ladder(self, parts: list[str]) -> list[str]:
        """Return the reply to a text that led nowhere: every second time one fact more, else the wish again."""
        mind = self.mind
        mind.fruitless += 1
        if mind.fruitless >= _MISREAD_AFTER and (corrected := self._corrected()):
            return [*parts, *corrected]
        more = ("number", *self.wish.asks) if self.wish else self.device.reads if self.device else ()
        untold = [fact for fact in ("name", "code", *more) if fact not in mind.told]
        if untold and mind.fruitless % 2 == 0:
            mind.volunteered += 1
            return [*parts, self._tell(untold[0])]
        if parts and not mind.settled:
            return parts
        again = self.question() if mind.settled else [self.wish_words("wish")]
        return (parts or [self.say("unclear")]) + again

    # -- letters -------------------------------------------------------------------------------------------------

    def _settle(self) -> list[str]:
        """Read the letters that have come, in order."""
        mind, parts = self.mind, []
        while mind.read < len(self.desk.letters) and not mind.over:
            mind.read += 1
            parts += [part for part in self._read(self.desk.letters[mind.read - 1]) if part not in parts]
        if mind.settled and not self.asks_amount:
            parts += self._next_request()
        return parts

    def _read(self, letter: Deed) -> list[str]:
        mind, wish = self.mind, self.wish
        if letter.kind == "transfer" and self.request.outside:
            return [self.say("passed_on"), *self._next_request()]
        if self.device and letter.act in [each.act for each in self.request.wishes]:
            mind.declined.append(letter.act)
            return [self.say("refused"), *(self._tried(self.device) or [self.say("other")])]
        waiting = mind.settled and self.asks_amount  # nothing more is to be done before the amount is told
        if wish and (letter.act, letter.item) == (wish.act, wish.item) and not waiting:
            if letter.kind == "decline":
                pleading, mind.refused = mind.refused, True
                return [] if pleading else [self.say("refused"), *self._plead()]
            mind.settled, mind.refused = True, False
            if {ask: letter.arguments[ask] for ask in wish.asks} == self.wanted:
                return [self.say("settled"), *self.question()]
        return [self.say("surprised")]

    def _plead(self) -> list[str]:
        """Plead, or give in and go on to the next wish."""
        mind, wishes = self.mind, self.request.wishes
        if mind.pleas < wishes[mind.wish].pleas:
            mind.pleas += 1
            return [self.say("plead")]
        if mind.wish + 1 < len(wishes):
            mind.wish += 1
            mind.begin()
            return [self.wish_words("then")]
        return [self.say("leave"), *self._next_request()]

    def _next_request(self) -> list[str]:
        """Go on to the next request, or say goodbye."""
        mind = self.mind
        mind.request, mind.wish, mind.corrected = mind.request + 1, 0, False
        mind.begin()
        if mind.request >= len(self.task.requests):
            mind.over = True
            return [self.say("bye")]
        mind.told.discard("number")
        return [self.say("next"), self.wish_words("wish")]

    def _tried(self, device: Device) -> list[str]:
        """Go on if the device works, or what would set it right was refused."""
        wrong = [act.name for act in device.remedies(self.desk.tables["device"]["device"])]
        if any(name not in self.mind.declined for name in wrong):
            return []
        return [self.say("leave" if wrong else "works"), *self._next_request()]
