"""The way into this package: the tokenizer of a model, whatever it lies in."""

from pathlib import Path

from backends.engine.errors import ModelFileError
from backends.engine.tokenizers.errors import TokenizerError
from backends.engine.tokenizers.folder_config import read_file, read_folder_config
from backends.engine.tokenizers.gguf_vocabulary import gguf_vocabulary
from backends.engine.tokenizers.json_vocabulary import TOKENIZER_FILE, json_vocabulary
from backends.engine.tokenizers.sentencepiece_vocabulary import MODEL_FILE, sentencepiece_vocabulary
from backends.engine.tokenizers.vocabulary import ModelVocabulary
from backends.gguf.errors import shown

# Several times the largest tokenizer that is known (33 MB for 262,144 tokens).
_MAX_BYTES = 256 * 1024**2


def load_tokenizer(path: Path) -> ModelVocabulary:
    """Load the vocabulary of a model: of a GGUF file, or of a Hugging Face folder (`tokenizer.json`, else `tokenizer.model`).

    Raises:
        TokenizerError: there is no tokenizer, or it is damaged or of a kind that is not supported. The message names the file.
    """
    if not path.is_dir():
        return gguf_vocabulary(path)
    try:
        return _of_folder(path)
    except ModelFileError as error:
        raise TokenizerError(f"{shown(path.name)}: {error}") from error.__cause__


def _of_folder(folder: Path) -> ModelVocabulary:
    config = read_folder_config(folder)
    if (data := read_file(folder, TOKENIZER_FILE, _MAX_BYTES)) is not None:
        return json_vocabulary(data, config)
    if (data := read_file(folder, MODEL_FILE, _MAX_BYTES)) is not None:
        return sentencepiece_vocabulary(data, config)
    raise TokenizerError(f"the folder has neither {TOKENIZER_FILE} nor {MODEL_FILE}")
