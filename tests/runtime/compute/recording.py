"""A compute that does what another does, and remembers every call with all of its arguments."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from runtime.compute.protocol import Compute


@dataclass(frozen=True)
class Call:
    """One call of the protocol, its arguments by name, defaults included."""

    method: str
    arguments: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]


@dataclass
class Recording:
    """Stands before a compute; put it behind a carrier to see what arrives there."""

    inner: Compute
    calls: list[Call] = field(default_factory=list[Call])

    @property
    def compute(self) -> Compute:
        """The protocol."""
        return cast(Compute, self)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        asked = getattr(self.inner, method)

        def call(*args: Any, **values: Any) -> Any:
            bound = inspect.signature(asked).bind(*args, **values)
            bound.apply_defaults()
            self.calls.append(Call(method, dict(bound.arguments)))
            return asked(*args, **values)

        return call

    def take(self, *methods: str) -> list[Call]:
        """The calls of some methods so far."""
        return [call for call in self.calls if call.method in methods]
