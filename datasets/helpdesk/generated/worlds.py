"""The generated tasks: a customer with requests, the rows of a shop, and what the rules make of them.

Task i is a function of the split's name, the levels, the domains and i alone.

Whether a wish is barred is drawn first, then the chain that decides and how many of its links hold; then the fields of
the rows are set so. What was set for an earlier wish stays: it only narrows what can be drawn. So nothing is rejected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any, ClassVar

from agent_envs.datasets.generated_tasks import Draws, GeneratedTasks, parse_families, parse_range, shuffled, stream
from agent_envs.datasets.helpdesk.generated.book import LEVELS, Section, draw_book
from agent_envs.datasets.helpdesk.generated.domain import PHRASES, Act, Device, Domain, domain_names, load_domain
from agent_envs.datasets.helpdesk.generated.rules import Condition, Value
from agent_envs.datasets.helpdesk.generated.solving import HelpDeskTask, Request, Rows, Solution, Wish, WishFacts, solve

DEFAULT_LEVEL = "1-8"


class World:
    """A world that is drawn: requests, rows set so that the rules decide as drawn, and all else."""

    def __init__(self, draws: Draws, domain: Domain, level: int, split: str) -> None:
        self.draws, self.domain, self.level, self.features = draws, domain, level, LEVELS[level]
        self.today = date(2026, 1, 1) + timedelta(draws.between(0, 364))
        self.shop = domain.shop.replace("{name}", draws.pick(domain.names))
        self.book = draw_book(draws, domain, level, split)
        self.rows: Rows = {"customer": {}, "item": {}, "catalogue": {}}
        self.codes: dict[str, str] = {}
        self.numbers: set[int] = set()
        self.labels = shuffled(draws, domain.labels)
        self.done: Counter[str] = Counter()
        self.said: dict[str, Value] = {}
        self.requests: list[Request] = []
        self.customer = self._customer(f"{draws.pick(PHRASES['first_names'])} {draws.pick(PHRASES['last_names'])}")
        for _ in range(self.features.requests):
            self.requests.append(self._request())
        if self.features.devices and domain.device and draws.between(1, 3) > 1:
            self.requests.insert(draws.between(0, len(self.requests)), self._trouble(domain.device))
        if level >= 4 and draws.between(1, 4) == 1:
            self.requests.append(Request((), outside=draws.pick(domain.outside)))
        self._fill()
        self._others()

    def task(self, task_id: str) -> HelpDeskTask:
        """Return what was drawn as a task."""
        drawn = self.domain.name, self.level, self.today, self.shop, self.book, self.rows, self.codes, self.customer
        return HelpDeskTask(task_id, *drawn, tuple(self.requests), self._solved())

    def _solved(self) -> Solution:
        return solve(self.domain, self.book, self.rows, self.customer, self.requests)

    # -- rows ----------------------------------------------------------------------------------------------------

    def _id(self, pattern: str) -> str:
        """Return a new id; no number is drawn twice in a world."""
        while True:
            number = self.draws.between(10 ** (pattern.count("#") - 1), 10 ** pattern.count("#") - 1)
            if number not in self.numbers:
                self.numbers.add(number)
                return pattern.replace("#", "") + str(number)

    def _customer(self, name: str) -> str:
        number = self._id(self.domain.customer.id)
        self.rows["customer"][number] = {"id": number, "name": name}
        self.codes[number] = self._id("####")
        return number

    def _item(self, customer: str) -> str:
        number, label = self._id(self.domain.item.id), self.labels.pop()
        self.rows["item"][number] = {"id": number, self.domain.customer.noun: customer, self.domain.label: label}
        self.rows["catalogue"][label] = {self.domain.label: label}
        return number

    def _fill(self) -> None:
        for scope, rows in self.rows.items():
            for row in rows.values():
                for name, field in self.domain.fields(scope).items():
                    if name not in row:
                        row[name] = self.draws.pick(field.possible)

    def _others(self) -> None:
        """Add near copies of the items, which differ in little, and another customer, of the same name from level 4."""
        wanted = [wish for request in self.requests if not request.trouble for wish in request.wishes[:1]]
        name = self.rows["customer"][self.customer]["name"]
        if self.level < 4:
            first, last = name.split(" ", 1)
            name = f"{self.draws.pick([other for other in PHRASES['first_names'] if other != first])} {last}"
        stranger = self._customer(name)
        for place in range(3):
            wish = wanted[place % len(wanted)]
            row = self.rows["item"][self._item(self.customer if place < 2 else stranger)]
            row |= self.rows["item"][wish.item] | row
            if of_item := [link for link in self.book.sections[wish.act].links() if link.condition.scope == "item"]:
                self._turn(row, *self.draws.pick(of_item))
        self._fill()

    # -- wishes --------------------------------------------------------------------------------------------------

    def _request(self) -> Request:
        draws, features = self.draws, self.features
        item = self._item(self.customer)
        acts: list[Act] = []
        needs: dict[str, set[str]] = {}  # what the item can be so that all acts are possible
        for act in shuffled(draws, [act for name, act in self.domain.acts.items() if name in self.book.sections]):
            at_odds = any(act.name in pair and other.name in pair for pair in self.domain.at_odds for other in acts)
            if len(acts) < features.options and not at_odds:
                acts.append(act)
                needs |= {field: needs.get(field, {*words}) & {*words} for field, words in act.needs.items()}
        for field, words in needs.items():
            self.rows["item"][item][field] = draws.pick(sorted(words))
        wishes: list[Wish] = []
        dropped = False
        for act in acts:
            told = tuple(ask.name for ask in act.asks if self.level < 3 or (ask.follows and draws.between(0, 1)))
            has_amount = self.book.sections[act.name].share is not None
            known = {ask.name: self.said[ask.name] for ask in act.asks if self.said.get(ask.name) in ask.values}
            wish = Wish(act.name, item, known, told, question=has_amount and bool(draws.between(0, 1)))
            if not self._set(wish, first=not wishes):
                if features.moods:
                    dropped = not any(r.dropped for r in self.requests) and draws.between(1, 6) == 1
                    wish = self._changed(wish) if not dropped and draws.between(1, 3) == 1 else wish
                self.done[act.name] += not dropped
                wishes.append(wish)
                break
            wishes.append(wish._replace(pleas=draws.between(0, 2)) if features.moods else wish)
        named = draws.pick(features.named)
        slip = self.level >= 4 and named == "number" and draws.between(1, 3) == 1
        return Request(tuple(wishes), named, self._id(self.domain.item.id) if slip else "", dropped)

    def _trouble(self, device: Device) -> Request:
        """Draw a device with faults, and whether what would set them right is barred."""
        draws = self.draws
        state = {name: device.works.get(name, field.values[0]) for name, field in device.fields.items()}
        faults = shuffled(draws, list(device.works))[: self.features.devices]
        for name in faults:
            state[name] = draws.pick([value for value in device.fields[name].values if value != device.works[name]])
        self.rows["device"] = {"device": state}
        wishes = tuple(Wish(device.remedy(name).name, self.customer, {}) for name in faults)
        for wish in wishes:
            if wish.act in self.book.sections:
                self._set(wish, first=False)
        slack = draws.pick(wishes).act if self.level >= 7 and draws.between(0, 1) else ""
        return Request(wishes, "", trouble=draws.pick(device.wishes), slack=slack)

    def _changed(self, wish: Wish) -> Wish:
        """Return the wish with another value that the customer will want, if no rule depends on it."""
        section = self.book.sections[wish.act]
        tested = {link.condition.field for link in section.links() if link.condition.scope == "ask"}
        for ask in section.act.asks:
            if ask.follows and ask.name not in tested and ask.name not in self.domain.lasting:
                others = [value for value in ask.values if value != wish.asks[ask.name]]
                return wish._replace(change={ask.name: self.draws.pick(others)})
        return wish

    # -- making the rules decide as drawn --------------------------------------------------------------------------

    def _set(self, wish: Wish, first: bool) -> bool:
        """Set fields so that a wish is barred or allowed as drawn, and return whether it is barred."""
        draws, section = self.draws, self.book.sections[wish.act]
        facts = WishFacts(self.domain, self.rows, self.customer, wish, self.done)

        def set_fact(condition: Condition, value: Value, holds: bool) -> None:
            if facts(condition) is None:
                facts.rows[condition.scope][condition.field] = condition.draw(draws, value, holds)

        counts = [chain.counts(facts) for chain in section.chains]
        barred, place, count = self._decided(section, counts, 6 if first and self.level >= 3 else 5)
        for other, chain in enumerate(section.chains):
            even, odd = ([found for found in counts[other] if found % 2 == rest] for rest in (0, 1))
            longer = [found for found in even if found]
            if other == place:
                number = count
            elif not even or (odd and barred and other > place and draws.between(1, 4) == 1):
                number = draws.pick(odd)
            else:
                number = draws.pick(longer) if longer and draws.between(1, 4) > 1 else even[0]
            for position, (condition, value) in enumerate(chain.links[: number + 1]):
                set_fact(condition, value, position < number)
        if section.share is not None:
            set_fact(*section.share.link, bool(draws.between(0, 1)))
        for ask in section.act.asks:
            wish.asks.setdefault(ask.name, draws.pick(ask.values))
        self.said |= {name: wish.asks[name] for name in self.domain.lasting if name in wish.asks}
        return bool(section.reason(facts))

    def _decided(self, section: Section, counts: list[list[int]], of_ten: int) -> tuple[bool, int, int]:
        """Draw whether a wish is barred, in so many cases of ten, which chain decides and how many of its links hold.

        `counts`: for each chain, how many of its links can hold.
        """
        if self.draws.between(0, 1):  # what the customer has to be asked decides
            for place, chain in enumerate(section.chains):
                for position, link in enumerate(chain.links):
                    if link.condition.scope == "ask" and position + 1 in counts[place]:
                        others = counts[:place] + counts[place + 1 :]
                        if position % 2 == 0 or all(any(not n % 2 for n in found) for found in others):
                            return position % 2 == 0, place, position + 1
        if self.draws.between(1, 10) <= of_ten:
            barred = any(n % 2 for found in counts for n in found)
        else:
            barred = any(all(n % 2 for n in found) for found in counts)
        right = [(place, n) for place, found in enumerate(counts) for n in found if n % 2 == barred]
        return barred, *self.draws.pick([pair for pair in right if pair[1]] or right)

    def _turn(self, row: dict[str, Any], condition: Condition, value: Value) -> None:
        """Set the field of a condition so that it holds if it did not, and the other way round."""
        row[condition.field] = condition.draw(self.draws, value, not condition.holds(row[condition.field], value))

    def become_twin(self) -> None:
        """Change one fact so that other deeds are right."""
        right = self._solved().deeds
        for wish in [wish for request in self.requests for wish in request.wishes if wish.act in self.book.sections]:
            facts = WishFacts(self.domain, self.rows, self.customer, wish, {})
            for chain in self.book.sections[wish.act].chains:
                count = chain.counts(facts)[0]
                for condition, value in chain.links[max(0, count - 1) : count + 1]:
                    lasts = condition.scope == "ask" and condition.field in self.domain.lasting
                    if condition.scope == "day" or lasts:
                        continue
                    about = facts.rows[condition.scope]
                    before = about[condition.field]
                    self._turn(about, condition, value)
                    if self._solved().deeds != right:
                        return
                    about[condition.field] = before


class HelpDeskTasks(GeneratedTasks[HelpDeskTask]):
    """The generated tasks of one split.

    Args:
        split: "train" (100,000 tasks), "validation", "test", "new" (other domains) or "twins" (1,000 each). Tasks
            2i and 2i + 1 of "twins" differ in one fact, so that something else is right.
        level: 1 to 8, or a range like "2-4" from which each task's level is drawn evenly.
        domains: "all", or names of domains.
    """

    sizes: ClassVar[Mapping[str, int]] = {**GeneratedTasks.sizes, "new": 1_000, "twins": 1_000}

    def __init__(self, split: str = "train", level: int | str | Sequence[int] = DEFAULT_LEVEL, domains: object = "all"):
        self.levels = parse_range("level", level, 1, 8)
        known = [name for name in domain_names() if load_domain(name).unseen == (split == "new")]
        self.domains = parse_families(domains, known, "domains")
        some = "" if self.domains == tuple(known) else f"/{'+'.join(self.domains)}"
        self._name = f"helpdesk/{split}/{self.levels}{some}"
        super().__init__(split, split, self.levels, self.domains, cache=64)

    def get(self, index: int) -> HelpDeskTask:
        twins = self.split == "twins"
        draws = stream(f"{self._name}/{index // 2 * 2 if twins else index}")
        world = World(draws, load_domain(draws.pick(self.domains)), draws.between(*self.levels), self.split)
        if twins and index % 2:
            world.become_twin()
        return world.task(f"{self._name}/{index}")
