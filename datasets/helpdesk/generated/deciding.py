"""Drawing what the rules decide about a wish, within what is set already."""

from __future__ import annotations

from agent_envs.datasets.generated_tasks import Draws
from agent_envs.datasets.helpdesk.generated.rules import Chain, Facts, Section


def possible(chain: Chain, facts: Facts) -> list[int]:
    """Return how many links of a chain can hold, given what is set."""
    found = []
    for count, (condition, value) in enumerate(chain.links):
        actual = facts(condition)
        holds = None if actual is None else condition.holds(actual, value)
        if not holds:
            found.append(count)
        if holds is False:
            return found
    return [*found, len(chain.links)]


def decide(draws: Draws, section: Section, counts: list[list[int]], of_ten: int) -> tuple[bool, int, int]:
    """Draw whether a wish is barred, which chain decides and how many of its links hold.

    Args:
        draws: Where the choice comes from.
        section: The rules about the act.
        counts: For each chain, how many of its links can hold.
        of_ten: In how many of ten cases a wish is barred.
    """
    if draws.between(0, 1):  # what the customer has to be asked decides
        for place, chain in enumerate(section.chains):
            for position, link in enumerate(chain.links):
                if link.condition.scope == "ask" and position + 1 in counts[place]:
                    others = counts[:place] + counts[place + 1 :]
                    if position % 2 == 0 or all(any(not n % 2 for n in found) for found in others):
                        return position % 2 == 0, place, position + 1
    barred = draws.between(1, 10) <= of_ten
    if barred and not any(n % 2 for found in counts for n in found):
        barred = False
    elif not barred and any(all(n % 2 for n in found) for found in counts):
        barred = True
    right = [(place, n) for place, found in enumerate(counts) for n in found if n % 2 == barred]
    place, count = draws.pick([pair for pair in right if pair[1]] or right)
    return barred, place, count
