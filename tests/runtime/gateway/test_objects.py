"""Objects and published documents over HTTP: verified on the way in, and on the way out."""

import anyio
import pytest
import sqlalchemy as sa

from runtime.gateway import uploads
from runtime.storage.tables import documents, objects
from specs import canonical
from specs.dataset import Dataset, TaskEntry
from specs.errors import Conflict, ErrorCode, InvalidInput, NotFound, PracticumError
from specs.operator_api import ProfilePublish
from tests.runtime.gateway import stage
from tests.runtime.gateway.stage import Stack

pytestmark = pytest.mark.anyio


async def test_invariant_11_upload_reference_and_reading_are_three_operations(
    stack: Stack,
) -> None:
    digest = await stack.worker.upload(b"package")
    assert await stack.worker.upload(b"package") == digest
    with pytest.raises(NotFound):
        await stack.worker.object(digest)
    task = TaskEntry(name="acme/one", digest=digest, size=7)
    await stack.operator.publish_dataset(Dataset(name="acme/d", version="v1", tasks=(task,)))
    assert await stack.proxy.object(digest) == b"package"


async def test_invariant_11_bytes_that_do_not_fit_their_digest_are_not_stored(
    stack: Stack,
) -> None:
    wrong = canonical.digest_bytes(b"other")
    with pytest.raises(InvalidInput) as refused:
        await stack.worker.upload(b"bytes", digest=wrong)
    assert refused.value.problem.code == ErrorCode.DIGEST_MISMATCH
    assert await stack.gateway.objects.size("org_local", wrong) is None
    assert not list(stack.home.objects.rglob(".put-*"))
    assert await stack.worker.upload(b"other") == wrong


async def test_uploads_of_the_same_object_may_race(stack: Stack) -> None:
    data = b"x" * 300_000
    digests: set[str] = set()

    async def put() -> None:
        digests.add(await stack.worker.upload(data))

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(put)
    assert digests == {canonical.digest_bytes(data)}


async def test_a_file_is_uploaded_in_pieces_and_read_by_range(stack: Stack) -> None:
    data = bytes(range(256)) * 20_000
    path = stack.home.root / "big"
    path.write_bytes(data)
    digest = await stack.operator.upload_file(path)
    task = TaskEntry(name="acme/one", digest=digest, size=len(data))
    await stack.operator.publish_dataset(Dataset(name="acme/d", version="v1", tasks=(task,)))
    assert await stack.operator.object(digest) == data
    assert await stack.operator.object_range(digest, 1000, 50) == data[1000:1050]
    assert await stack.operator.object_range(digest, len(data) - 5, 50) == data[-5:]
    with pytest.raises(InvalidInput):
        await stack.operator.object_range(digest, len(data), 1)


async def test_a_dataset_needs_its_packages(stack: Stack) -> None:
    digest = await stack.operator.upload(b"package")
    for task in (
        TaskEntry(name="acme/one", digest="sha256:" + "0" * 64, size=7),
        TaskEntry(name="acme/one", digest=digest, size=8),
    ):
        with pytest.raises(PracticumError) as refused:
            await stack.operator.publish_dataset(
                Dataset(name="acme/d", version="v1", tasks=(task,))
            )
        assert refused.value.problem.code == ErrorCode.INVALID_REFERENCE


async def test_a_published_version_never_changes(stack: Stack) -> None:
    request = ProfilePublish(version="v1", profile=stage.profile())
    first = await stack.operator.publish_profile(request)
    assert await stack.operator.publish_profile(request) == first
    changed = ProfilePublish(version="v1", profile=stage.profile(workdir="/work"))
    with pytest.raises(Conflict) as refused:
        await stack.operator.publish_profile(changed)
    assert refused.value.problem.code == ErrorCode.VERSION_EXISTS
    second = await stack.operator.publish_profile(changed.model_copy(update={"version": "v2"}))
    page = await stack.operator.profiles()
    assert [item.reference for item in page.items] == [second.reference, first.reference]
    assert page.items[1].size == len((await stack.operator.profile(first.reference)).content)


async def test_a_tampered_profile_is_refused_by_whoever_reads_it(stack: Stack) -> None:
    published = await stack.operator.publish_profile(
        ProfilePublish(version="v1", profile=stage.profile())
    )
    content = (await stack.operator.profile("acme/solver@v1")).content
    evil = content.replace(b"agent.py", b"evil1.py")
    await stack.gateway.database.write(
        lambda connection: connection.execute(sa.update(documents).values(content=evil))
    )
    with pytest.raises(InvalidInput, match="changed after publication") as refused:
        await stack.worker.profile("acme/solver@v1")
    assert refused.value.problem.code == ErrorCode.DIGEST_MISMATCH
    # even where the stated digest was tampered with as well, if the reader knows the right one
    await stack.gateway.database.write(
        lambda connection: connection.execute(
            sa.update(documents).values(digest=canonical.digest_bytes(evil))
        )
    )
    with pytest.raises(InvalidInput):
        await stack.worker.profile("acme/solver@v1", expected=published.digest)


async def test_invariant_12_what_nothing_refers_to_is_swept(stack: Stack) -> None:
    kept = await stack.operator.upload(b"kept")
    await stack.operator.publish_dataset(
        Dataset(name="acme/d", version="v1", tasks=(TaskEntry(name="acme/o", digest=kept, size=4),))
    )
    recent = await stack.operator.upload(b"recent")
    old = await stack.operator.upload(b"old")
    await stack.gateway.database.write(
        lambda connection: connection.execute(
            sa.update(objects).where(objects.c.digest.in_([old, kept])).values(stored_at=0.0)
        )
    )
    folder = stack.home.objects / "o" / "org_local"
    (folder / ".put-crashed").write_bytes(b"half")
    (folder / ("f" * 64)).write_bytes(b"no row")
    await uploads.sweep(stack.gateway.database, stack.gateway.objects)
    assert {f"sha256:{path.name}" for path in folder.iterdir()} == {kept, recent}
    assert await stack.operator.upload(b"old") == old
