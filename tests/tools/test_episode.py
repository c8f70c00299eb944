"""`episode verify` on a real gateway: what an agent left out or spoiled costs it the reward, and
the verifier nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from journals import Journal
from specs.episode import EpisodeReport
from specs.errors import NotFound
from specs.ids import Prefix, new_id
from specs.operator_api import SessionRequest
from tests.runtime.gateway.stage import DATASET
from tests.runtime.learning.live import Live
from tests.tools.ground import ask
from tools.episode import EpisodeView, shortened

pytestmark = pytest.mark.anyio

EPISODE: dict[str, Any] = {
    "schema": "practicum.episode/v1",
    "name": "acme/specialist",
    "held_out": DATASET,
    "attempts": 1,
    "baseline": "tiny",
    "budget": {"trial_slots": 4, "updates": 2},
}
SPEC: dict[str, Any] = {
    "schema": "practicum.model-spec/v1",
    "name": "acme/specialist",
    "behaviour": "Answers.",
    "instructions": "Be short.",
    "deployment": {
        "model": "tiny",
        "engine": {"name": "command", "version": "1"},
        "args": ["true"],
    },
    "useful": [{"name": "right", "statement": "It is right."}],
}


def left(folder: Path, **changes: Any) -> str:
    """An outcome that names a construction which is not there."""
    document = {
        "schema": "practicum.episode-outcome/v1",
        "construction": new_id(Prefix.CONSTRUCTION),
        "model_spec": "spec.json",
        "journal": "journal",
        **changes,
    }
    (folder / "outcome.json").write_text(json.dumps(document))
    return str(folder / "outcome.json")


async def verified(live: Live, outcome: str, **more: object) -> EpisodeReport:
    opened = await live.stack.operator.open_session(SessionRequest(model="tiny", purpose="agent"))
    given: dict[str, Any] = {"episode": EPISODE, "outcome": outcome, **more}
    work = [opened.session.id]
    report, text = await ask(live, "episode verify", EpisodeReport, work=work, **given)
    assert all(f"not kept: {reason}" in text for reason in report.reasons)
    return report


async def test_an_outcome_that_is_not_there_or_names_nothing_is_a_reason(
    live: Live, tmp_path: Path
) -> None:
    nothing = await verified(live, str(tmp_path / "outcome.json"))
    assert nothing.reasons[0].startswith("outcome: the outcome cannot be used: The outcome file")
    claimed = await verified(live, left(tmp_path, reward=1))
    assert "/reward" in claimed.reasons[0] or "reward" in claimed.reasons[0]

    (tmp_path / "spec.json").write_text(json.dumps(SPEC))
    Journal.create(tmp_path / "journal", title="t", author="a")
    unknown = await verified(live, left(tmp_path))
    assert "outcome: there is no construction" in unknown.reasons
    assert "journal: there is no journal, or nothing in it" in unknown.reasons
    assert {check.id: check.ok for check in unknown.checks}["held_out"], "it is readable, unused"
    assert (unknown.reward, unknown.quality) == (0, None)


@pytest.mark.parametrize("spec", ["[1]", "{", '{"schema": "practicum.model-spec/v1"}', None])
async def test_files_that_cannot_be_read_are_reasons(
    live: Live, tmp_path: Path, spec: str | None
) -> None:
    if spec is None:
        (tmp_path / "spec.json").mkdir()
    else:
        (tmp_path / "spec.json").write_text(spec)
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "journal.jsonl").write_bytes(b"\xff\xfe\n{}\n")
    report = await verified(live, left(tmp_path))
    assert any("spec.json cannot be read" in reason for reason in report.reasons)
    assert any(reason.startswith("journal: ") for reason in report.reasons)


@pytest.mark.parametrize("name", ["model_spec", "journal"])
@pytest.mark.parametrize("way", ["absolute", "up", "link"])
async def test_an_outcome_reads_nothing_outside_of_its_folder(
    live: Live, tmp_path: Path, name: str, way: str
) -> None:
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    work.mkdir()
    Journal.create(elsewhere, title="t", author="a")
    (elsewhere / "spec.json").write_text(json.dumps(SPEC))
    (work / "link").symlink_to(elsewhere)
    folder = {"absolute": str(elsewhere), "up": "../elsewhere", "link": "link"}[way]
    path = {"model_spec": f"{folder}/spec.json", "journal": folder}[name]
    report = await verified(live, left(work, **{name: path}))
    cause = "unsafe path" if way == "up" else "it leaves the folder of the outcome"
    assert any(f"{path} cannot be read: {cause}" in reason for reason in report.reasons)


async def test_many_causes_are_told_up_to_a_limit_and_change_no_verdict(live: Live) -> None:
    causes = tuple(f"cause {number}" for number in range(9))
    whole = await verified(live, "absent.json")
    checks = tuple(
        one.model_copy(update={"causes": causes}) if one.id == "data" else one
        for one in whole.checks
    )
    told = shortened(whole.model_copy(update={"checks": checks}), 2)
    data = next(one for one in told.checks if one.id == "data")
    assert data.causes == ("cause 0", "cause 1", "and 7 more")
    assert [one for one in told.reasons if one.startswith("data")][-1] == "data: and 7 more"
    assert (told.ok, told.reward, len(told.checks)) == (whole.ok, whole.reward, len(checks))


async def test_the_rewards_file_has_each_check_and_the_verdict(live: Live, tmp_path: Path) -> None:
    file = tmp_path / "reward.json"
    report = await verified(live, str(tmp_path / "none.json"), rewards=str(file))
    written = json.loads(file.read_text())
    assert written.pop("reward") == 0.0
    assert written == {f"check_{check.id}": float(check.ok) for check in report.checks}


async def test_work_that_there_is_not_is_an_error_and_no_verdict(
    live: Live, tmp_path: Path
) -> None:
    for kind in (Prefix.SESSION, Prefix.TRIAL):
        with pytest.raises(NotFound):
            given: dict[str, Any] = {"episode": EPISODE, "outcome": left(tmp_path)}
            await ask(live, "episode verify", EpisodeReport, work=[new_id(kind)], **given)


async def test_an_episode_is_shown_with_what_is_checked(live: Live) -> None:
    view, text = await ask(live, "episode show", EpisodeView, episode=EPISODE)
    assert view.episode.approvers == ("policy",)
    for check, promise in view.promises.items():
        assert check in text and promise in text
