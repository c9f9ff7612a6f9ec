"""Hugging Face folders as a source of weights: all families, shards, links, and every kind of damage."""

import json
from pathlib import Path

import pytest
import torch

from backends.engine.errors import ModelFileError
from backends.engine.names import expected
from backends.engine.weights.folder_names import folder_name
from backends.engine.weights.folder_source import FolderSource
from backends.engine.weights.open_source import open_source
from tests.backends.engine.weights import folders, ggufs

Q = "model.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize("family", folders.FAMILIES)
def test_a_model_that_transformers_saved_has_the_same_weights_here(tmp_path: Path, family: str) -> None:
    state = folders.save_random(family, tmp_path)
    source = FolderSource(tmp_path)
    names = expected(source.shape)
    assert len(names) == len(state) - source.shape.tied
    for name in names:
        weight = source.dense(name)
        theirs = state[".".join(folder_name(name, post_norms=source.shape.post_norms))]
        if family == "gemma3" and name.endswith("norm"):
            assert weight.dtype == torch.float32
            assert torch.equal(weight, 1 + theirs.float())
        else:
            assert weight.dtype == torch.bfloat16
            assert torch.equal(weight, theirs)
        assert (source.kind(name), source.int4(name), source.int8(name)) == ("BF16", None, None)
    source.close()


def test_a_model_in_shards_reads_as_one(tmp_path: Path) -> None:
    whole = FolderSource(folders.write(tmp_path / "one"))
    parts = FolderSource(folders.write(tmp_path / "two", folders.halves()))
    assert whole.shape == parts.shape
    for name in expected(whole.shape):
        assert torch.equal(whole.dense(name), parts.dense(name))
    whole.close()
    parts.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_types_are_kept_also_where_tensors_are_not_aligned(tmp_path: Path, dtype: torch.dtype) -> None:
    content = folders.tensors(dtype)
    # One byte in front of everything else; the format promises no alignment.
    folders.write(tmp_path, content)
    path = tmp_path / "model.safetensors"
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    entries = json.loads(raw[8 : 8 + length])
    for entry in entries.values():
        if "data_offsets" in entry:
            entry["data_offsets"] = [offset + 1 for offset in entry["data_offsets"]]
    unused = "model.layers.0.self_attn.rotary_emb.inv_freq"
    header = json.dumps(entries | {unused: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" + raw[8 + length :])
    source = FolderSource(tmp_path)
    assert torch.equal(source.dense("layers.0.q"), content[Q])
    source.close()


def test_a_head_in_the_file_wins_over_a_tied_configuration(tmp_path: Path) -> None:
    head = torch.ones(folders.VOCAB, folders.HIDDEN)
    source = FolderSource(folders.write(tmp_path, folders.tensors() | {"lm_head.weight": head}))
    assert not source.shape.tied
    assert torch.equal(source.dense("head"), head)
    source.close()


def test_a_snapshot_of_links_into_its_own_cache_is_read(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b" / "snapshots" / "0123"
    folders.write(blobs)
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (snapshot / name).symlink_to(Path("../../blobs") / name)
    FolderSource(snapshot).close()


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "model.safetensors.index.json", "model-00002-of-00002.safetensors"]
)
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    content = None if name == "model.safetensors" else folders.halves()
    elsewhere, folder = folders.write(tmp_path / "elsewhere", content), folders.write(tmp_path / "model", content)
    (folder / name).unlink()
    (folder / name).symlink_to(elsewhere / name)
    with pytest.raises(ModelFileError, match=rf"'{name}': file lies outside the folder"):
        FolderSource(folder)


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/secret.safetensors", "a/b.safetensors", "..", "model.bin", ""])
def test_an_index_may_name_only_files_of_its_folder(tmp_path: Path, name: str) -> None:
    folder = folders.write(tmp_path / "model", folders.halves())
    folders.write_index(folder, dict.fromkeys(folders.tensors(), name))
    with pytest.raises(ModelFileError, match="is not the name of a safetensors file in the folder"):
        FolderSource(folder)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = folders.write(tmp_path, folders.halves())
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelFileError, match=r"'model-00002-of-00002.safetensors': cannot open the file: No such file"):
        FolderSource(folder)


def test_a_truncated_shard_is_named(tmp_path: Path) -> None:
    folder = folders.write(tmp_path, folders.halves())
    path = folder / "model-00002-of-00002.safetensors"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 100)
    with pytest.raises(ModelFileError, match=r"'model-00002-of-00002.safetensors': .* is it truncated"):
        FolderSource(folder)


def test_a_tensor_in_another_shard_than_the_index_says_is_named(tmp_path: Path) -> None:
    first, second = folders.halves()
    folder = folders.write(tmp_path, [first, second])
    wrong = dict.fromkeys(first, "model-00001-of-00002.safetensors") | dict.fromkeys(second, "model-00002-of-00002.safetensors")
    moved = next(iter(first))
    folders.write_index(folder, wrong | {moved: "model-00002-of-00002.safetensors"})
    with pytest.raises(ModelFileError, match=moved):
        FolderSource(folder)


def test_a_tensor_in_two_shards_is_named(tmp_path: Path) -> None:
    first, second = folders.halves()
    folder = folders.write(tmp_path, [first | {Q: torch.zeros(1)}, second | {Q: torch.zeros(1)}])
    with pytest.raises(ModelFileError, match=rf"tensor '{Q}' is here, but model.safetensors.index.json does not say so"):
        FolderSource(folder)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({Q: None}, rf"a tensor is missing, the first is '{Q}'"),
        ({Q: None, "model.norm.weight": None}, r"2 tensors are missing, the first is 'model.layers.0"),
        ({"model.layers.2.mlp.up_proj.weight": torch.zeros(1)}, r"unknown to this architecture, the first is 'model.layers.2"),
        ({Q: torch.zeros(64, 63)}, r"has shape \[64, 63\], expected \[64, 64\]"),
        ({Q: torch.zeros(64, 64, dtype=torch.float64)}, r"is F64, expected F32 or F16 or BF16"),
        ({"lm_head.bias": torch.zeros(96)}, r"lm_head"),
    ],
)
def test_a_tensor_that_does_not_belong_is_named(tmp_path: Path, change: dict[str, torch.Tensor | None], reason: str) -> None:
    content = {name: tensor for name, tensor in (folders.tensors() | change).items() if tensor is not None}
    with pytest.raises(ModelFileError, match=reason):
        FolderSource(folders.write(tmp_path, content))


def test_a_number_that_is_not_finite_is_found_when_it_is_read(tmp_path: Path) -> None:
    content = folders.tensors()
    content[Q][3, 4] = float("nan")
    source = FolderSource(folders.write(tmp_path, content))
    with pytest.raises(ModelFileError, match=rf"tensor '{Q}' holds numbers that are not finite"):
        source.dense("layers.0.q")
    source.close()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.00.pth", "model.pt", "pytorch_model-00001-of-00002.bin"])
@pytest.mark.parametrize("with_config", [True, False])
def test_pickle_is_never_loaded(tmp_path: Path, name: str, with_config: bool) -> None:
    (tmp_path / name).write_bytes(b"\x80\x04.")
    if with_config:
        (tmp_path / "config.json").write_text(json.dumps(folders.config()))
    with pytest.raises(
        ModelFileError, match=f"'{name}' is a pickle file, which is never loaded: convert the model to safetensors"
    ):
        open_source(tmp_path)


def test_other_paths_say_what_to_give_instead(tmp_path: Path) -> None:
    empty, ggufs_only = tmp_path / "empty", tmp_path / "ggufs"
    empty.mkdir()
    ggufs_only.mkdir()
    file = ggufs.write(ggufs_only / "tiny.gguf", "llama", ggufs.NUMBERS, ggufs.tensors())
    folder = folders.write(tmp_path / "folder")
    reasons = {
        empty: "'empty': there is no model.safetensors",
        ggufs_only: "folder of GGUF files, give the path of one of them: 'tiny.gguf'",
        folder / "model.safetensors": "this is a file of a safetensors model, give the path of its folder",
        folder / "config.json": "magic is",
        tmp_path / "nowhere": "cannot open the file: No such file",
    }
    for path, reason in reasons.items():
        with pytest.raises(ModelFileError, match=reason):
            open_source(path)
    for path in (file, folder):
        open_source(path).close()


def test_a_folder_without_configuration_says_so(tmp_path: Path) -> None:
    folder = folders.write(tmp_path)
    (folder / "config.json").unlink()
    with pytest.raises(ModelFileError, match=r"there is no config.json in this folder"):
        FolderSource(folder)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "truncated"),
        ("[]", "Expected `object`"),
        ('{"weight_map": {}}', "length >= 1"),
        ('{"weight_map": {"a": 1}}', "Expected `str`"),
        ("[" * 100_000, "Expected|recursion"),
    ],
)
def test_a_malformed_index_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    folder = folders.write(tmp_path, folders.halves())
    (folder / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ModelFileError, match=rf"^model.safetensors.index.json: .*({reason})"):
        FolderSource(folder)
