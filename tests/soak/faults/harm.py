"""What every kind of harm is: a name for the report, and a blow that ends with the store on its way back."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from tests.servers.proxy import Proxy


class Harm(ABC):
    """Something bad that is done to a store. It blocks, so its site does it in a thread of its own."""

    name: str

    @abstractmethod
    def do(self, rng: random.Random) -> int:
        """Do it, end it, and return how often it really happened: 0 if it came to nothing."""


class Duration(Protocol):
    def choose(self, rng: random.Random) -> float:
        """How many seconds something lasts."""


@dataclass(frozen=True)
class Seconds:
    """How long something lasts: mostly between `least` and `most`, and once in twenty times up to `seldom`."""

    least: float
    most: float
    seldom: float | None = None

    def choose(self, rng: random.Random) -> float:
        if self.seldom is not None and rng.random() < 0.05:
            return rng.uniform(self.most, self.seldom)
        return rng.uniform(self.least, self.most)


class ProxyHarm(Harm):
    """Done by the proxy between the clients and the server, which behaves again afterwards."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy

    def do(self, rng: random.Random) -> int:
        try:
            return self.misbehave(rng)
        finally:
            self.proxy.accept()

    @abstractmethod
    def misbehave(self, rng: random.Random) -> int:
        """Do it, and return how often it really happened."""
