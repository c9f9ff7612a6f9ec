"""Exported folders: what transformers loads from them, and what is left behind when something goes wrong."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import quantize
from safetensors.torch import load_file

from backends.engine.errors import ModelFileError
from backends.engine.export import ExportDtype, ExportError, ExportOptions, export_folder
from backends.engine.names import expected
from backends.engine.weights.folder_source import FolderSource
from backends.engine.weights.gguf_source import GgufSource
from backends.engine.weights.source import WeightSource
from tests.backends.engine.weights import folders, ggufs
from tests.models import SMOLLM2


def _export(source: WeightSource, target: Path, options: ExportOptions | None = None) -> None:
    export_folder(source, target, options)
    source.close()


@pytest.mark.parametrize("family", folders.FAMILIES)
def test_transformers_loads_the_same_model_from_a_copy(tmp_path: Path, family: str) -> None:
    from transformers import AutoModelForCausalLM

    state = folders.save_random(family, tmp_path / "first")
    source = FolderSource(tmp_path / "first")
    _export(source, tmp_path / "second")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "second", dtype="auto")
    copy = model.state_dict()
    assert copy.keys() == state.keys()
    for name, tensor in state.items():
        assert copy[name].dtype == torch.bfloat16
        # Gemma's norms lose bits below 2**-24 on the way, because they are one more in memory than in the file.
        lost = 2**-24 if family == "gemma3" and "norm" in name else 0
        assert torch.allclose(copy[name].float(), tensor.float(), rtol=0, atol=lost), name
    again = FolderSource(tmp_path / "second")
    assert again.shape == source.shape
    again.close()


@pytest.mark.parametrize("family", folders.FAMILIES)
def test_a_copy_computes_what_the_original_computes(tmp_path: Path, family: str) -> None:
    from transformers import AutoModelForCausalLM

    folders.save_random(family, tmp_path / "first", torch.float32)
    _export(FolderSource(tmp_path / "first"), tmp_path / "second", ExportOptions(dtype="fp32"))
    tokens = torch.arange(90).unsqueeze(0)
    with torch.no_grad():
        first, second = (
            AutoModelForCausalLM.from_pretrained(tmp_path / which, dtype="auto")(tokens).logits for which in ("first", "second")
        )
    assert torch.allclose(first, second, atol=1e-5)


def test_the_embedded_model_exports_whole(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    seen: list[tuple[int, int]] = []
    options = ExportOptions(bos=1, eos=(2,), shard_bytes=100_000_000, progress=lambda done, total: seen.append((done, total)))
    _export(GgufSource(SMOLLM2), tmp_path / "model", options)
    names = {path.name for path in (tmp_path / "model").iterdir()}
    shards = {f"model-{number:05}-of-00003.safetensors" for number in (1, 2, 3)}
    assert names == shards | {"config.json", "generation_config.json", "model.safetensors.index.json"}
    assert all((tmp_path / "model" / shard).stat().st_size < 101_000_000 for shard in shards)
    assert seen[-1][0] == seen[-1][1] == 2 * 134_515_008
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype="auto")
    assert (model.dtype, model.config.eos_token_id, model.generation_config.bos_token_id) == (torch.bfloat16, [2], 1)
    # "The capital of France is" in SmolLM2's tokens; the answer shows that rows of q and k, RoPE and norms are in their places.
    prompt = torch.tensor([[504, 3575, 282, 4649, 314]])
    with torch.no_grad():
        answer = int(model(prompt).logits[0, -1].argmax())
    assert answer == 7042  # " Paris"


def test_a_q4_1_matrix_is_written_dequantised_in_the_order_of_transformers(tmp_path: Path) -> None:
    content = ggufs.tensors()
    weight = quantize(content["blk.0.ffn_up.weight"][1], gguf.GGMLQuantizationType.Q4_1)
    content["blk.0.ffn_up.weight"] = ("Q4_1", weight)
    source = GgufSource(ggufs.write(tmp_path / "model.gguf", "llama", ggufs.NUMBERS, content))
    query = source.dense("layers.0.q")
    _export(source, tmp_path / "out", ExportOptions(dtype="fp32"))
    written = load_file(tmp_path / "out" / "model.safetensors")
    expected_up = torch.from_numpy(gguf.quants.dequantize(weight, gguf.GGMLQuantizationType.Q4_1))
    assert torch.equal(written["model.layers.0.mlp.up_proj.weight"], expected_up)
    assert torch.equal(written["model.layers.0.self_attn.q_proj.weight"], query)


def test_norms_of_a_gemma_file_are_written_less_one(tmp_path: Path) -> None:
    content = ggufs.tensors("gemma3")
    source = GgufSource(
        ggufs.write(tmp_path / "model.gguf", "gemma3", ggufs.NUMBERS | {"attention.sliding_window": 8}, content)
    )
    _export(source, tmp_path / "out", ExportOptions(dtype="fp32"))
    written = load_file(tmp_path / "out" / "model.safetensors")
    for theirs, ours in {
        "model.norm": "output_norm",
        "model.layers.1.post_attention_layernorm": "blk.1.post_attention_norm",
        "model.layers.1.pre_feedforward_layernorm": "blk.1.ffn_norm",
        "model.layers.1.self_attn.k_norm": "blk.1.attn_k_norm",
    }.items():
        assert torch.equal(written[f"{theirs}.weight"], torch.from_numpy(content[f"{ours}.weight"][1]) - 1)


@pytest.mark.parametrize(
    ("dtype", "name", "expected_dtype"), [("fp16", "float16", torch.float16), ("fp32", "float32", torch.float32)]
)
def test_other_types(tmp_path: Path, dtype: ExportDtype, name: str, expected_dtype: torch.dtype) -> None:
    _export(FolderSource(folders.write(tmp_path / "first")), tmp_path / "second", ExportOptions(dtype=dtype))
    written = load_file(tmp_path / "second" / "model.safetensors")
    assert {tensor.dtype for tensor in written.values()} == {expected_dtype}
    assert json.loads((tmp_path / "second" / "config.json").read_text())["torch_dtype"] == name


def test_every_shard_holds_at_least_a_tensor_and_not_more_than_it_may(tmp_path: Path) -> None:
    source = FolderSource(folders.write(tmp_path / "first"))
    _export(source, tmp_path / "second", ExportOptions(dtype="fp32", shard_bytes=20_000))
    index = json.loads((tmp_path / "second" / "model.safetensors.index.json").read_text())
    assert len(index["weight_map"]) == len(expected(source.shape))
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in folders.tensors().values())
    for shard in set(index["weight_map"].values()):
        tensors = load_file(tmp_path / "second" / shard)
        assert len(tensors) == 1 or sum(tensor.nbytes for tensor in tensors.values()) <= 20_000


def test_the_tokenizer_is_written_by_whoever_can(tmp_path: Path) -> None:
    def write_tokenizer(folder: Path) -> None:
        assert (folder / "config.json").exists()
        assert not (tmp_path / "second").exists()
        (folder / "tokenizer.json").write_text("{}")

    _export(
        FolderSource(folders.write(tmp_path / "first")), tmp_path / "second", ExportOptions(write_tokenizer=write_tokenizer)
    )
    assert (tmp_path / "second" / "tokenizer.json").exists()


def test_an_empty_folder_may_be_there_but_nothing_is_overwritten(tmp_path: Path) -> None:
    source, target = FolderSource(folders.write(tmp_path / "first")), tmp_path / "second"
    target.mkdir()
    export_folder(source, target)
    for taken in (target, tmp_path / "first" / "config.json"):
        with pytest.raises(ExportError, match=r"is there already and is not an empty folder"):
            export_folder(source, taken)
    source.close()


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    content = folders.tensors()
    content["model.layers.1.mlp.up_proj.weight"][0, 0] = float("nan")
    source = FolderSource(folders.write(tmp_path / "nan", content))
    with pytest.raises(ModelFileError, match="not finite"):
        export_folder(source, tmp_path / "out")
    source.close()
    content["model.layers.1.mlp.up_proj.weight"][0, 0] = 70_000
    source = FolderSource(folders.write(tmp_path / "large", content))
    with pytest.raises(
        ExportError, match=r"weight layers.1.up has numbers above the limit of fp16, 65,504: export as bf16 or fp32"
    ):
        export_folder(source, tmp_path / "out", ExportOptions(dtype="fp16"))
    source.close()
    assert {path.name for path in tmp_path.iterdir()} == {"nan", "large"}


def test_a_target_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    source = FolderSource(folders.write(tmp_path / "first"))
    with pytest.raises(ExportError, match=r"out cannot be written: Not a directory|out cannot be written: File exists"):
        export_folder(source, tmp_path / "file" / "out")
    source.close()


def test_divisors_that_no_published_scaling_gives_cannot_be_exported(tmp_path: Path) -> None:
    content = ggufs.tensors() | {"rope_freqs.weight": ("F32", np.linspace(1, 2, 32, dtype=np.float32))}
    source = GgufSource(ggufs.write(tmp_path / "model.gguf", "llama", ggufs.NUMBERS, content))
    with pytest.raises(ModelFileError, match=r"cannot be exported"):
        export_folder(source, tmp_path / "out")
    source.close()
