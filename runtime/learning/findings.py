"""Collects what `verify` compares: each check counts its comparisons and keeps its violations."""

from dataclasses import dataclass, field

from specs.verify import MAX_VIOLATIONS, Check


@dataclass
class Finding:
    """One check while it is being made."""

    id: str
    invariant: int | None
    promise: str
    checked: int = 0
    violations: list[str] = field(default_factory=list[str])
    skipped: str | None = None

    def expect(self, holds: bool, violation: str) -> bool:
        """Count one comparison, and keep `violation` where it does not hold."""
        self.checked += 1
        if not holds:
            self.violations.append(violation)
        return holds

    def equal(self, what: str, recorded: object, derived: object) -> bool:
        """Count one comparison of two values that must be equal."""
        return self.expect(
            recorded == derived, f"{what}: recorded {recorded!r}, derived {derived!r}"
        )

    def result(self) -> Check:
        """The check as it is reported."""
        return Check(
            id=self.id,
            invariant=self.invariant,
            promise=self.promise,
            checked=self.checked,
            violated=len(self.violations),
            violations=tuple(text[:1000] for text in self.violations[:MAX_VIOLATIONS]),
            skipped=self.skipped,
        )
