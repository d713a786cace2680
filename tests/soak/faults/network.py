"""Harm on the way between clients and a server, done by a proxy: it delays, cuts, resets, refuses and loses answers."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Literal

from tests.servers.proxy import Proxy
from tests.soak.faults.harm import Duration, Harm, ProxyHarm, Seconds

PATIENCE = 5.0
"""Seconds to wait for traffic that can be hurt. Without any, nothing has happened."""
SAVES = (b"role",)
"""What a request contains that carries messages of a conversation, in every protocol: that is a save."""
A_MOMENT, A_WHILE, BETWEEN, OUTAGE = Seconds(0.01, 0.3), Seconds(0.5, 2.0), Seconds(0.02, 0.3), Seconds(0.1, 2.0, 8.0)


class Delayed(ProxyHarm):
    """Every piece of data is held back for a moment, in both directions, for a while."""

    name = "delayed on the way"

    def __init__(self, proxy: Proxy, each: Duration = A_MOMENT, lasting: Duration = A_WHILE) -> None:
        super().__init__(proxy)
        self._each = each
        self._lasting = lasting

    def misbehave(self, rng: random.Random) -> int:
        self.proxy.delay(self._each.choose(rng))
        time.sleep(self._lasting.choose(rng))
        return 1


class CutAfterBytes(ProxyHarm):
    """All connections are reset after so many more bytes in one direction: in the middle of what is just sent."""

    def __init__(
        self, proxy: Proxy, direction: Literal["to_server", "from_server"], between: Duration = BETWEEN
    ) -> None:
        super().__init__(proxy)
        self._direction = direction
        self._between = between
        self.name = f"cut after some bytes {direction.replace('_', ' the ')}"

    def misbehave(self, rng: random.Random) -> int:
        cuts = 0
        for _ in range(rng.randint(1, 4)):
            self.proxy.cut_after(**{self._direction: int(2 ** rng.uniform(0, 16))})
            cuts += self.proxy.wait_until_it_cuts(PATIENCE)
            time.sleep(self._between.choose(rng))
        return cuts


class AnswersDropped(ProxyHarm):
    """The server gets a request and carries it out; the connection is reset in place of the answer."""

    name = "answer dropped after the commit"

    def __init__(self, proxy: Proxy, to: Sequence[bytes] = SAVES) -> None:
        super().__init__(proxy)
        self._to = to

    def misbehave(self, rng: random.Random) -> int:
        self.proxy.drop_answers(rng.randint(1, 5), self._to)
        return self.proxy.wait_for_dropped_answers(PATIENCE)


class ConnectionsReset(ProxyHarm):
    """All live connections are reset at once, a few times."""

    name = "connections reset"

    def __init__(self, proxy: Proxy, between: Duration = BETWEEN) -> None:
        super().__init__(proxy)
        self._between = between

    def misbehave(self, rng: random.Random) -> int:
        resets = 0
        for _ in range(rng.randint(1, 5)):
            resets += self.proxy.cut() > 0
            time.sleep(self._between.choose(rng))
        return resets


class ConnectionsRefused(ProxyHarm):
    """Live connections are reset, and new ones are refused for a while."""

    name = "connections refused for a while"

    def __init__(self, proxy: Proxy, lasting: Duration = OUTAGE) -> None:
        super().__init__(proxy)
        self._lasting = lasting

    def misbehave(self, rng: random.Random) -> int:
        self.proxy.refuse()
        self.proxy.cut()
        time.sleep(self._lasting.choose(rng))
        return 1


def on_the_way(proxy: Proxy, saves: Sequence[bytes] = SAVES) -> list[Harm]:
    """All of them."""
    return [
        Delayed(proxy),
        CutAfterBytes(proxy, "to_server"),
        CutAfterBytes(proxy, "from_server"),
        AnswersDropped(proxy, saves),
        ConnectionsReset(proxy),
        ConnectionsRefused(proxy),
    ]
