"""What letters settle: a customer goes on to the next wish or request when they say so."""

from __future__ import annotations

from agent_envs.envs.helpdesk.desk import Letter
from agent_envs.envs.helpdesk.wanting import Wanting


class Reader(Wanting):
    """A customer who reads its letters."""

    def settle(self) -> list[str]:
        """Read the letters that have come, in order."""
        parts: list[str] = []
        while self.mind.read < len(self.desk.letters) and not self.mind.over:
            letter = self.desk.letters[self.mind.read]
            self.mind.read += 1
            parts += self._read(letter)
        if self.mind.settled and not self.asks_amount:
            parts += self.next_request()
        return parts

    def _read(self, letter: Letter) -> list[str]:
        mind, wish = self.mind, self.wish
        if mind.settled and self.asks_amount:  # something else was done before the amount was told
            return [self.say("surprised")]
        if letter.kind == "transfer":
            if self.request.outside:
                return [self.say("passed_on"), *self.next_request()]
            return [self.say("surprised")]
        if self.request.trouble and letter.act in [each.act for each in self.request.wishes]:
            mind.declined.append(letter.act)
            return [self.say("refused"), *self.tried()]
        if wish is None or (letter.act, letter.item) != (wish.act, wish.item):
            return [self.say("surprised")]
        if letter.kind == "act":
            mind.settled, mind.refused = True, False
            if {ask: letter.arguments[ask] for ask in wish.asks} != self.wanted:
                return [self.say("surprised")]
            return [self.say("settled"), *([self.question()] if self.asks_amount else [])]
        if mind.refused:
            return []
        mind.refused = True
        return [self.say("refused"), *self.plead()]

    def plead(self) -> list[str]:
        """Plead, or give in and go on to the next wish."""
        mind, wish = self.mind, self.wish
        assert wish is not None
        if mind.pleas < wish.pleas:
            mind.pleas += 1
            return [self.say("plead")]
        if mind.wish + 1 < len(self.request.wishes):
            mind.wish += 1
            self._begin()
            return [self.wish_words("then")]
        return [self.say("leave"), *self.next_request()]

    def _begin(self) -> None:
        """Begin a wish."""
        mind = self.mind
        mind.changed = mind.settled = mind.refused = False
        mind.pleas = mind.fruitless = 0
        mind.told = [fact for fact in mind.told if fact in ("name", "code", "number")]
        mind.pending = ""

    def next_request(self) -> list[str]:
        """Go on to the next request, or say goodbye."""
        mind = self.mind
        mind.request += 1
        mind.wish, mind.corrected = 0, False
        self._begin()
        if mind.request >= len(self.task.requests):
            mind.over = True
            return [self.say("bye")]
        if "number" in mind.told:
            mind.told.remove("number")
        return [self.say("next"), self.wish_words("wish")]

    def tried(self) -> list[str]:
        """Go on if the device works, or what would set it right was refused."""
        device = self.domain.device
        assert device is not None
        row = self.desk.tables["device"]["device"]
        wrong = [device.remedy(field).name for field, value in device.works.items() if row[field] != value]
        if any(name not in self.mind.declined for name in wrong):
            return []
        return [self.say("leave" if wrong else "works"), *self.next_request()]
