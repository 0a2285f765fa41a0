"""How many episodes an agent-loop worker plays at once."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque

__all__ = ["Admission"]

_FIRST = 16
"""Episodes at once before any step has been timed."""
_WINDOW = 32
"""Steps, at least, between two changes."""
_SLOW_SHARE = 0.1
"""Of the steps that may take longer."""
_LESS, _MORE = 0.75, 1.1


class Admission:
    """Lets episodes begin one after the other, within a limit that follows the time of environment steps.

    The limit grows as long as episodes wait and steps are fast: twofold until steps are slow for the first time, then
    by a tenth. While more than a tenth of the steps take longer than they should, it shrinks by a quarter: additive
    increase would take long for thousands of episodes, multiplicative decrease is what makes several workers share a
    backend evenly (Chiu and Jain, "Analysis of the increase and decrease algorithms for congestion avoidance", 1989).

    Methods are called from one event loop.

    Args:
        most: Most episodes at once; None for any number.
        latency: Seconds that a step of an environment should take at most; None to leave the limit at `most`.

    >>> admission = Admission(most=100, latency=0.1)
    >>> admission.limit
    16
    """

    def __init__(self, most: int | None = None, latency: float | None = None) -> None:
        self.most, self.latency = most, latency
        self._limit: float = min(most or math.inf, _FIRST if latency is not None else math.inf)
        self._playing = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._steps = self._slow = 0
        self._growing = True  # until steps are slow for the first time
        self._short = False  # whether an episode had to wait since the last change

    @property
    def limit(self) -> float:
        """Episodes at once at the moment, at least 1; infinite if there is no limit."""
        return self._limit if math.isinf(self._limit) else int(self._limit)

    async def enter(self) -> float:
        """Wait until an episode may begin; return the seconds that took. Each needs one `leave`."""
        begin = time.monotonic()
        if self._playing >= self.limit:
            self._short = True
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():  # the turn had come
                    self.leave()
                raise
        else:
            self._playing += 1
        return time.monotonic() - begin

    def leave(self) -> None:
        """Note that an episode has ended; the next begin."""
        self._playing -= 1
        self._admit()

    def note(self, seconds: float) -> None:
        """Note how long a step of an environment took."""
        if self.latency is None or self._playing > self.limit:  # these steps are of a load that is going down already
            return
        self._steps += 1
        self._slow += seconds > self.latency
        if self._steps < max(_WINDOW, self.limit):
            return
        if self._slow > _SLOW_SHARE * self._steps:
            self._growing = False
            self._limit = max(1.0, _LESS * self._playing)
        elif self._short:
            grown = 2 * self._limit if self._growing else max(self._limit + 1, _MORE * self._limit)
            self._limit = min(grown, self.most or math.inf)
        self._steps = self._slow = 0
        self._short = bool(self._waiting)
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._playing < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self._playing += 1
                turn.set_result(None)
