"""Input files: what makes one unusable, and how they are read."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.batches.folder import Folder, Position
from gateway.batches.lines import MAX_CUSTOM_ID_CHARS
from gateway.batches.validate import MAX_ERRORS
from tests.gateway.batches.rig import request_line, rigged

GOOD = request_line("good")

BAD_LINES = {
    "no JSON": ("{nope", "invalid_json_line", None),
    "half a line": (GOOD[:-3], "invalid_json_line", None),
    "no object": ("[1, 2]", "invalid_json_line", None),
    "broken UTF-8": ('{"custom_id": "\udcff"}', "invalid_json_line", None),
    "half a surrogate pair": (GOOD.replace("good", "\\ud800"), "invalid_json_line", None),
    "nesting": ('{"body": ' + "[" * 50_000, "invalid_json_line", None),
    "no custom_id": (
        json.dumps({"method": "POST", "url": "/v1/chat/completions", "body": {}}),
        "invalid_custom_id",
        "custom_id",
    ),
    "empty custom_id": (request_line(""), "invalid_custom_id", "custom_id"),
    "long custom_id": (request_line("x" * (MAX_CUSTOM_ID_CHARS + 1)), "invalid_custom_id", "custom_id"),
    "number as custom_id": (request_line("x", custom_id=1), "invalid_custom_id", "custom_id"),
    "same custom_id": (request_line("first"), "duplicate_custom_id", "custom_id"),
    "other method": (request_line("x", method="GET"), "invalid_method", "method"),
    "other endpoint": (request_line("x", url="/v1/embeddings"), "url_mismatch", "url"),
    "no endpoint": (request_line("x", url=None), "url_mismatch", "url"),
    "no body": (json.dumps({"custom_id": "x", "method": "POST", "url": "/v1/chat/completions"}), "invalid_body", "body"),
    "text as body": (request_line("x", body="{}"), "invalid_body", "body"),
    "stream": (request_line("x", body={"stream": True}), "invalid_body", "body.stream"),
    "long line": (request_line("x", body={"say": "x" * 70_000}), "line_too_long", None),
}


@pytest.mark.parametrize("name", BAD_LINES)
async def test_one_bad_line_fails_the_batch_and_nothing_is_run(name: str) -> None:
    line, code, param = BAD_LINES[name]
    async with rigged(max_line_bytes=65_536) as rig:
        runner = rig.runner()
        batch = await rig.ended(await rig.submit("\n".join([request_line("first"), "", line, GOOD])))
        await runner.close()
    assert (batch.status, batch.total, rig.ran) == ("failed", 0, [])
    assert [(error.line, error.code, error.param) for error in batch.errors] == [(3, code, param)]


async def test_a_file_without_requests_fails() -> None:
    async with rigged() as rig:
        runner = rig.runner()
        batches = [await rig.ended(await rig.submit(text)) for text in ("", "\n \n\r\n")]
        await runner.close()
    assert [[error.code for error in batch.errors] for batch in batches] == [["empty_file"]] * 2


async def test_a_file_with_too_many_requests_fails() -> None:
    async with rigged(max_requests=2) as rig:
        runner = rig.runner()
        fits, exceeds = [await rig.submit("\n".join(request_line(str(n)) for n in range(count))) for count in (2, 3)]
        assert (await rig.ended(fits)).status == "completed"
        exceeds = await rig.ended(exceeds)
        await runner.close()
    assert [(error.code, error.line) for error in exceeds.errors] == [("too_many_tasks", None)]


async def test_only_so_many_errors_are_told() -> None:
    async with rigged() as rig:
        runner = rig.runner()
        batch = await rig.ended(await rig.submit("nope\n" * 500))
        await runner.close()
    assert [error.line for error in batch.errors] == list(range(1, MAX_ERRORS + 1))


@settings(deadline=None, max_examples=60)
@given(lines=st.lists(st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"")), max_size=12), ends=st.booleans())
def test_lines_are_read_whole_and_in_order(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ends: bool) -> None:
    path = tmp_path_factory.mktemp("lines")
    data = b"\n".join(lines) + (b"\n" if ends else b"")
    (path / "in").write_bytes(data)
    folder, limit = Folder(path), 20
    expected = data.split(b"\n")
    if not expected[-1]:
        expected.pop()
    read, position = folder._read_lines("in", Position(), limit)
    assert [line.number for line in read] == list(range(1, len(expected) + 1))
    assert [line.data for line in read] == [line if len(line) <= limit else None for line in expected]
    assert folder._read_lines("in", position, limit)[0] == []


async def test_a_large_file_is_read_in_pieces(tmp_path: Path) -> None:
    rows = [f"{n} " + "x" * 1000 for n in range(1500)]
    (tmp_path / "in").write_text("\n".join(rows))
    folder, position, read = Folder(tmp_path), Position(), []
    pieces = 0
    while True:
        lines, position = await folder.lines("in", position, max_line_bytes=2000)
        if not lines:
            break
        pieces += 1
        read += [line.data.decode() for line in lines if line.data is not None]
    assert read == rows
    assert pieces > 4
