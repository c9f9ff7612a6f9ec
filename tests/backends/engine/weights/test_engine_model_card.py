"""The description of a model that the gateway's process makes, without torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from backends.engine.errors import ModelFileError
from backends.engine.model_card import describe
from tests.backends.engine.weights import folders
from tests.models import SMOLLM2


def test_a_file_and_a_folder_are_described(tmp_path: Path) -> None:
    card = describe("smol", SMOLLM2)
    assert (card.id, card.architecture, card.quantization, card.capabilities) == (
        "smol",
        "llama",
        "Q4_1",
        ("chat", "completion"),
    )
    assert (card.context_length, card.vocab_size, card.parameters) == (8192, 49152, 134_515_008)
    assert (card.size_bytes, card.created) == (SMOLLM2.stat().st_size, int(SMOLLM2.stat().st_mtime))
    folder = folders.write(tmp_path, folders.halves())
    card = describe("tiny", str(folder))
    assert (card.architecture, card.quantization, card.context_length, card.vocab_size) == ("llama", "F32", 256, 96)
    assert card.parameters == sum(tensor.numel() for tensor in folders.tensors().values())
    assert card.size_bytes == sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def test_a_model_that_cannot_be_loaded_is_not_described(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"cannot open the file"):
        describe("nothing", tmp_path / "nothing.gguf")


def test_describing_loads_nothing_heavy() -> None:
    code = "import sys; from backends.engine.model_card import describe; describe('a', sys.argv[1])"
    code += "; print({'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code, SMOLLM2], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
