"""A small random model whose tokens are bytes, so that it can read any text."""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.backends.engine.model.random_models import save_random

VOCAB = 260


def save_speaking(folder: Path, *, bos: bool = False, **changes: int) -> Path:
    """Save a random Llama in float32 with a tokenizer of bytes; with `bos`, every text begins with token 256."""
    save_random("llama", folder, vocab_size=VOCAB, **changes)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={text: token for token, text in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": bos}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
