"""A proxy in a process of its own, to be killed, beside an object store that has its moods.

The gateway's key, trials and samplers come from `FOLDER/gateway.json`. What the store took lies in
`FOLDER/store`, and every seal that was committed is a line of `FOLDER/commits.jsonl`.
"""

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, override

import anyio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from proxy.app import Settings
from proxy.server import Server
from proxy.spool import STAGE_BYTES
from runtime.exclusive import listen
from specs.errors import ErrorCode, Internal, Unavailable
from specs.interaction import Seal
from specs.records import Trial
from specs.run import SamplerRef
from tests.proxy.speakers import Speakers
from tests.proxy.world import WORKER_KEY, TestGateway

type Mood = Literal["good", "slow", "full", "broken"]
MOODS: tuple[Mood, ...] = ("good", "slow", "full", "broken")
ROOM = 20_000
"""Bytes that the stage still takes while the store is full; then calls are refused."""


@dataclass
class StoredGateway(TestGateway):
    """Objects and seals outlive the process, as those of a real gateway do."""

    folder: Path = Path()
    mood: Mood = "good"
    luck: random.Random = field(default_factory=random.Random)

    @override
    async def upload_file(self, path: Path, *, digest: str | None = None) -> str:
        match self.mood:
            case "full":
                raise Unavailable("the store is full", code=ErrorCode.STORE_UNAVAILABLE)
            case "broken":
                raise Internal("the store answered 500")
            case "slow":
                await anyio.sleep(self.luck.random() * 2)
            case "good":
                pass
        name = await super().upload_file(path, digest=digest)
        target = self.folder / "store" / name.removeprefix("sha256:")
        draft = target.with_suffix(".tmp")
        draft.write_bytes(self.objects[name])
        draft.rename(target)
        return name

    @override
    async def commit_evidence(self, seal: Seal) -> Trial:
        if seal.object is not None:
            stored = self.folder / "store" / seal.object.removeprefix("sha256:")
            self.objects[seal.object] = stored.read_bytes()
        found = await super().commit_evidence(seal)
        with (self.folder / "commits.jsonl").open("a") as file:
            file.write(seal.model_dump_json() + "\n")
        return found


def serve(folder: Path, seed: int, mood: Mood) -> None:
    """Serve on `FOLDER/p.sock` until killed."""
    (folder / "store").mkdir(exist_ok=True)
    document = cast(dict[str, Any], json.loads((folder / "gateway.json").read_text()))
    samplers = [SamplerRef.model_validate(one) for one in document["samplers"]]
    gateway = StoredGateway(
        key=Ed25519PrivateKey.from_private_bytes(bytes.fromhex(document["key"])),
        trials=document["trials"],
        samplers={one.id: one for one in samplers},
        folder=folder,
        mood=mood,
        luck=random.Random(seed),
    )
    spool = folder / "spool"
    staged = sum(path.stat().st_size for path in spool.glob("*.seg"))
    settings = Settings(
        spool,
        cast(Any, Speakers(seed=seed)),
        gateway,
        WORKER_KEY,
        stage=staged + ROOM if mood == "full" else STAGE_BYTES,
    )
    with listen(folder / "p.sock") as listener:
        anyio.run(Server(settings).serve, [listener])
