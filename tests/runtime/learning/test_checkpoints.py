"""What is recorded of a saved model."""

from datetime import UTC, datetime

from runtime.learning.checkpoints import expiry

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_state_expires_when_the_first_who_keeps_it_forgets_it() -> None:
    assert expiry(NOW, None, None) is None
    assert expiry(NOW, 3600, None) == expiry(NOW, None, 3600) == "2026-01-01T01:00:00+00:00"
    assert expiry(NOW, 60, 3600) == expiry(NOW, 3600, 60) == "2026-01-01T00:01:00+00:00"
    assert expiry(NOW, 0, None) == NOW.isoformat()
