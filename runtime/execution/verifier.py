"""Harbor's own verifier, with a reward file that is read bounded and without following links.

Harbor loads it by import path. It reports a verdict to the trial's board in every case, so a
failure of the verifier keeps its reason even where an earlier failure of the agent hides it.
"""

import asyncio
from typing import Any, override

from harbor.models.verifier.result import VerifierResult
from harbor.verifier.verifier import RewardFileNotFoundError, Verifier, VerifierOutputParseError

from runtime.execution.board import Verdict, find
from runtime.execution.rewards import read_rewards
from specs.assessment import NoReward


class BoundedVerifier(Verifier):
    """Runs a task's tests; `trial` names the board that takes the verdict."""

    def __init__(self, *, trial: str, **options: Any) -> None:
        super().__init__(**options)
        self._board = find(trial)
        self.override_env = {**self.override_env, **self._board.verifier_env}

    @override
    async def verify(self) -> VerifierResult:
        """Run the tests and read the reward. On cancel (its timeout, too) they are killed."""
        try:
            return await super().verify()
        except asyncio.CancelledError:
            self._fail("the verifier was stopped at its deadline")
            raise
        except (RewardFileNotFoundError, VerifierOutputParseError):
            self._take(read_rewards(self.trial_paths.verifier_dir))
            raise
        except Exception as error:
            self._fail(f"the verifier could not be run: {type(error).__name__}: {error}")
            raise

    @override
    def _parse_reward_text(self) -> dict[str, float | int]:
        return self._parse()

    @override
    def _parse_reward_json(self) -> dict[str, float | int]:
        return self._parse()

    def _parse(self) -> dict[str, float | int]:
        verdict = read_rewards(self.trial_paths.verifier_dir)
        self._take(verdict)
        if verdict.reason is not None:
            raise VerifierOutputParseError(verdict.detail)
        return dict(verdict.rewards)

    def _fail(self, detail: str) -> None:
        self._take(Verdict(reason=NoReward.VERIFIER_FAILED, detail=detail[:1000]))

    def _take(self, verdict: Verdict) -> None:
        self._board.verdict = verdict
