"""The vocabulary of a Hugging Face folder that has only a `tokenizer.model`, run by the `sentencepiece` library."""

from sentencepiece import SentencePieceProcessor

from backends.engine.tokenizers.errors import TokenizerError, native
from backends.engine.tokenizers.folder_config import FolderConfig
from backends.engine.tokenizers.tokens import MAX_TOKENS, Kind, TokenTable
from backends.engine.tokenizers.vocabulary import ModelVocabulary, PartitionedEncoder

MODEL_FILE = "tokenizer.model"


def sentencepiece_vocabulary(data: bytes, config: FolderConfig) -> ModelVocabulary:
    """Build the vocabulary of a `tokenizer.model`, with the tokens that `tokenizer_config.json` adds to it.

    Each part of a text between special tokens gets the space in front that the model puts before a text.

    Args:
        data: the file's content.
        config: the files beside it.

    Raises:
        TokenizerError: the file is no SentencePiece model, or an added token lies outside the vocabulary.
    """
    with native(f"{MODEL_FILE} is no SentencePiece model"):
        processor = SentencePieceProcessor(model_proto=data)
        table = _table(processor, config)
    bos = processor.bos_id()
    framing = config.framing(table, [bos], bos, processor.eos_id())
    return ModelVocabulary(table, PartitionedEncoder(table, processor.encode_as_ids), framing, config.chat_template)


def _table(processor: SentencePieceProcessor, config: FolderConfig) -> TokenTable:
    added = config.tokenizer.added_tokens_decoder
    tokens = list(range(processor.get_piece_size()))
    size = max(len(tokens), config.vocab_size, *(token + 1 for token in added))
    if size > (config.vocab_size or MAX_TOKENS):
        raise TokenizerError(f"the tokenizer has {size:,} tokens, but the model has {config.vocab_size or MAX_TOKENS:,}")
    texts = processor.id_to_piece(tokens) + [""] * (size - len(tokens))
    kinds = [Kind.NORMAL] * len(tokens) + [Kind.UNUSED] * (size - len(tokens))
    of_kind = {
        Kind.UNKNOWN: processor.is_unknown(tokens),
        Kind.CONTROL: processor.is_control(tokens),
        Kind.UNUSED: processor.is_unused(tokens),
        Kind.BYTE: processor.is_byte(tokens),
    }
    for kind, flags in of_kind.items():
        for token in [token for token, flag in zip(tokens, flags, strict=True) if flag]:
            kinds[token] = kind
    for token, details in added.items():
        if kinds[token] != Kind.UNKNOWN:
            texts[token], kinds[token] = details.content, Kind.CONTROL if details.special else Kind.USER_DEFINED
    return TokenTable(texts, kinds, "spm")
