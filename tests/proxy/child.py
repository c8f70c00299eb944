"""A proxy in a process of its own, to be killed: `child.py FOLDER SEED`.

The gateway's key, trials and samplers come from `FOLDER/gateway.json`; compute draws random
bytes and takes a random little time.
"""

import json
import sys
from pathlib import Path
from typing import Any, cast, override

import anyio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from proxy.app import Settings
from proxy.server import server
from runtime.compute.protocol import IntArray, SampleContext, Sampled, SamplerSpec, SamplingParams
from runtime.exclusive import listen
from specs.run import SamplerRef
from tests.proxy.world import WORKER_KEY, Dice, TestGateway


class SlowDice(Dice):
    @override
    async def sample(
        self,
        sampler: SamplerSpec,
        prompt: IntArray,
        params: SamplingParams,
        *,
        num_samples: int = 1,
        context: SampleContext = SampleContext(),  # noqa: B008
    ) -> list[Sampled]:
        await anyio.sleep(self.random.random() * 0.02)
        return await super().sample(
            sampler, prompt, params, num_samples=num_samples, context=context
        )


def gateway_of(folder: Path) -> TestGateway:
    """The gateway that the parent wrote down."""
    document = cast(dict[str, Any], json.loads((folder / "gateway.json").read_text()))
    samplers = [SamplerRef.model_validate(one) for one in document["samplers"]]
    return TestGateway(
        key=Ed25519PrivateKey.from_private_bytes(bytes.fromhex(document["key"])),
        trials=document["trials"],
        samplers={one.id: one for one in samplers},
    )


def main() -> None:
    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    settings = Settings(
        folder / "spool", cast(Any, SlowDice(seed=seed)), gateway_of(folder), WORKER_KEY
    )
    with listen(folder / "p.sock") as listener:
        anyio.run(server(settings).serve, [listener])


if __name__ == "__main__":
    main()
