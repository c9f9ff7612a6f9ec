"""Writes a GGUF model as a Hugging Face folder in bfloat16, for servers that load no GGUF file.

    python -m benchmarks.hf_folder MODEL.gguf FOLDER

A program of its own, so that the benchmark itself keeps no torch in memory.
"""

import sys
from functools import partial
from pathlib import Path

from backends.engine.errors import ModelFileError
from backends.engine.export import ExportError, ExportOptions, export_folder
from backends.engine.tokenizers.export import write_tokenizer
from backends.engine.tokenizers.load import load_tokenizer
from backends.engine.weights.open_source import open_source


def main(model: Path, folder: Path) -> None:
    """Write the folder, which must not be there yet."""
    vocabulary = load_tokenizer(model)
    options = ExportOptions(
        dtype="bf16",
        bos=vocabulary.bos if vocabulary.bos >= 0 else None,
        eos=tuple(sorted(vocabulary.end_tokens)),
        write_tokenizer=partial(write_tokenizer, model),
    )
    source = open_source(model)
    try:
        export_folder(source, folder, options)
    finally:
        source.close()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except (ModelFileError, ExportError) as error:
        sys.exit(f"baton: {error}")
