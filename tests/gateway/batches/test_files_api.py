"""Files through the official SDK, and what no SDK sends."""

import io
import os
from collections.abc import Callable
from pathlib import Path

import httpx
import openai
import pytest

from gateway.batches.files import SWEEP_AFTER_S
from tests.gateway.batches.rig import BOB, input_file, rigged

OpenSdk = Callable[[str], openai.OpenAI]

DATA = b'{"custom_id": "\xe2\x80\xa8"}\r\n\x00\xff' * 1000


def test_a_file_comes_back_as_it_was(sdk: openai.OpenAI) -> None:
    file = sdk.files.create(file=("täst.jsonl", DATA), purpose="batch")
    assert (file.object, file.purpose, file.bytes, file.filename) == ("file", "batch", len(DATA), "täst.jsonl")
    assert file.id.startswith("file-")
    assert file.expires_at == file.created_at + 30 * 24 * 3600
    assert sdk.files.retrieve(file.id) == file
    answer = sdk.files.content(file.id)
    assert answer.content == DATA
    assert answer.response.headers["content-type"] == "application/octet-stream"
    assert sdk.files.delete(file.id).deleted
    for ask in (sdk.files.retrieve, sdk.files.content, sdk.files.delete):
        with pytest.raises(openai.NotFoundError, match="No file has the id"):
            ask(file.id)


def test_a_large_file_comes_back_as_it_was(sdk: openai.OpenAI) -> None:
    data = os.urandom(1 << 20)
    assert sdk.files.content(sdk.files.create(file=("x", data), purpose="batch").id).content == data


def test_an_empty_file_is_a_file(sdk: openai.OpenAI) -> None:
    file = sdk.files.create(file=("empty", b""), purpose="batch")
    assert (file.bytes, sdk.files.content(file.id).content) == (0, b"")


def test_lists_are_cut_into_pages(sdk: openai.OpenAI) -> None:
    ids = [sdk.files.create(file=(str(n), b"x"), purpose="batch").id for n in range(5)]
    assert [file.id for file in sdk.files.list()] == ids[::-1]
    assert [file.id for file in sdk.files.list(order="asc", limit=2)] == ids
    page = sdk.files.list(limit=2, after=ids[3])
    assert ([file.id for file in page.data], page.has_more) == ([ids[2], ids[1]], True)
    assert [file.id for file in sdk.files.list(purpose="batch")] == ids[::-1]
    assert list(sdk.files.list(purpose="batch_output")) == []


@pytest.mark.parametrize("query", ["limit=0", "limit=10001", "limit=x", "order=up", "after=file-1"])
def test_a_wrong_page_is_refused(http: httpx.Client, query: str) -> None:
    answer = http.get(f"/v1/files?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == query.partition("=")[0]


def test_nobody_sees_the_files_of_another(open_sdk: OpenSdk) -> None:
    ann, bob = open_sdk("ann"), open_sdk("bob")
    id = ann.files.create(file=("x", b"secret"), purpose="batch").id
    assert list(bob.files.list()) == []
    for ask in (bob.files.retrieve, bob.files.content, bob.files.delete):
        with pytest.raises(openai.NotFoundError):
            ask(id)
    with pytest.raises(openai.BadRequestError, match="names nothing"):
        bob.files.list(after=id)
    assert ann.files.content(id).content == b"secret"


def test_a_file_may_go_earlier(sdk: openai.OpenAI) -> None:
    file = sdk.files.create(file=("x", b"x"), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600})
    assert file.expires_at == file.created_at + 3600
    with pytest.raises(openai.BadRequestError, match="must be 3600 to 2592000"):
        sdk.files.create(file=("x", b"x"), purpose="batch", expires_after={"anchor": "created_at", "seconds": 1})


def test_limits_of_size_and_number(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.APIStatusError, match="limit is 1048576 bytes") as caught:
        sdk.files.create(file=("x", bytes((1 << 20) + 1)), purpose="batch")
    assert (caught.value.status_code, caught.value.code) == (413, "file_too_large")
    for _ in range(3):
        sdk.files.create(file=("x", bytes(1 << 20)), purpose="batch")
    with pytest.raises(openai.BadRequestError, match="limit is 3145728") as full:
        sdk.files.create(file=("x", b"x"), purpose="batch")
    assert full.value.code == "storage_limit_exceeded"
    sdk.files.delete(sdk.files.list().data[0].id)
    for _ in range(18):
        sdk.files.create(file=("x", b""), purpose="batch")
    with pytest.raises(openai.BadRequestError, match="20 files are stored"):
        sdk.files.create(file=("x", b""), purpose="batch")


FILE = ("file", ("x", b"x"))

BAD_FORMS = {
    "another purpose": ([FILE, ("purpose", (None, "assistants"))], "purpose"),
    "no purpose": ([FILE], "purpose"),
    "no file": ([("purpose", (None, "batch"))], "file"),
    "text as file": ([("file", (None, "x")), ("purpose", (None, "batch"))], "file"),
    "two files": ([FILE, FILE, ("purpose", (None, "batch"))], "file"),
    "file as purpose": ([FILE, ("purpose", ("x", b"batch"))], "purpose"),
    "unknown field": ([FILE, ("purpose", (None, "batch")), ("other", (None, "x"))], "other"),
    "no anchor": ([FILE, ("purpose", (None, "batch")), ("expires_after[seconds]", (None, "3600"))], "expires_after[anchor]"),
}


@pytest.mark.parametrize("name", BAD_FORMS)
def test_a_wrong_form_is_refused(http: httpx.Client, name: str) -> None:
    fields, param = BAD_FORMS[name]
    answer = http.post("/v1/files", files=fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert http.get("/v1/files").json()["data"] == []


PART = b'--b\r\nContent-Disposition: form-data; name="purpose"%s\r\n\r\n%s\r\n--b--\r\n'


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"{}"),
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=b", b""),
        ("multipart/form-data; boundary=b", b"--b\r\n"),
        ("multipart/form-data; boundary=b", PART % (b"", b"\xff")),
        ("multipart/form-data; boundary=b", PART % (b"\r\nContent-Type: text/plain; charset=nope", b"batch")),
        ("multipart/form-data; boundary=b", PART[:-8] % (b"", b"batch")),
    ],
)
def test_a_broken_form_is_refused(http: httpx.Client, kind: str, body: bytes) -> None:
    answer = http.post("/v1/files", content=body, headers={"content-type": kind})
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error"), answer.text


async def test_a_file_in_use_stays(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        batch = await rig.submit(input_file("a"))
        with pytest.raises(Exception, match=f"{batch.id} still reads this file"):
            await rig.files.delete("ann", batch.input_file_id)
        rig.clock.now += 30 * 24 * 3600
        await rig.files.purge()
        runner = rig.runner()
        batch = await rig.ended(batch)
        await runner.drain()
        await rig.files.delete("ann", batch.input_file_id)
        assert await rig.folder.names() == [batch.error_file_id]


async def test_files_go_when_their_time_is_over(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        old = await rig.upload("old")
        rig.clock.now += 29 * 24 * 3600
        new = await rig.upload("new", BOB)
        rig.clock.now += 24 * 3600
        await rig.files.purge()
        assert await rig.folder.names() == [new]
        with pytest.raises(Exception, match=f"No file has the id '{old}'"):
            await rig.files.get("ann", old)


async def test_what_a_crash_left_behind_is_swept_up(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        kept = await rig.upload("kept")
        batch = await rig.batch_of(kept)
        strays = ["file-1", "new-1", "batch_1.1.output", f"{batch.id}.1.output"]
        for name in strays:
            await rig.folder.append(name, b"x")
        await rig.files.purge()
        assert sorted(await rig.folder.names()) == sorted([kept, *strays])
        for name in [kept, *strays]:
            os.utime(tmp_path / "batches" / name, (0, 0))
        await rig.files.purge()
        assert sorted(await rig.folder.names(older_than_s=SWEEP_AFTER_S)) == sorted([kept, f"{batch.id}.1.output"])


async def test_files_of_a_database_in_memory_end_with_it() -> None:
    async with rigged() as rig:
        id = await rig.upload("x")
        found, file = await rig.files.open("ann", id)
        file.close()
        folder = Path(file.name).parent
        assert (found.bytes, [path.name for path in folder.iterdir()]) == (1, [id])
    assert not folder.exists()


async def test_files_are_private(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        id = await rig.upload("x")
        await rig.folder.append("batch_1.1.output", b"x")
    folder = tmp_path / "batches"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert (folder / id).read_bytes() == b"x"


async def test_an_upload_that_breaks_leaves_nothing(tmp_path: Path) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError("scripted")

    async with rigged(tmp_path) as rig:
        with pytest.raises(OSError, match="scripted"):
            await rig.files.create("ann", "x", "batch", Broken(), size=1)
        assert await rig.folder.names() == []
