"""The tokenizer of a GGUF file as plain data: what `backends.gguf` has checked, with llama.cpp's rules for what is left out.

Source: `llama_vocab::impl::load` of llama.cpp (vendored by llama-cpp-python 0.3.36).
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backends.engine.tokenizers.errors import TokenizerError
from backends.engine.tokenizers.pretokenizers import PRE_TOKENIZERS
from backends.engine.tokenizers.spellings import ENDS, end_tokens, fill_in_tokens
from backends.engine.tokenizers.tokens import MAX_TOKENS, Family, Kind, TokenTable
from backends.gguf.errors import GgufError, shown
from backends.gguf.model import GgufFile
from backends.gguf.read import read_gguf

_FAMILIES: dict[str, Family] = {"llama": "spm", "gpt2": "byte level"}
_ROLES = ("bos", "eos", "eot", "eom", "unknown", "fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep")
# Written by old converters.
_OLD_ROLES = {"prefix": "fim_pre", "suffix": "fim_suf", "middle": "fim_mid"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTokens:
    """A vocabulary, and how text becomes it.

    `scores` (higher merges first) and `adds_space` belong to SentencePiece, `merges` (best first) and `pre`, a key of
    `PRE_TOKENIZERS`, to byte-level BPE. `bos`, `eos` and `unknown` are -1 where there is none.
    """

    table: TokenTable
    scores: Sequence[float]
    adds_space: bool
    merges: Sequence[tuple[str, str]]
    pre: str
    bos: int
    eos: int
    unknown: int
    adds_bos: bool
    adds_eos: bool
    ends: frozenset[int]
    chat_template: str | None


def read_gguf_tokens(path: Path) -> GgufTokens:
    """Read the vocabulary of a GGUF file.

    Raises:
        TokenizerError: the file is not a sound GGUF model, has no vocabulary, or one of a kind that is not supported.
    """
    try:
        file = read_gguf(path)
    except GgufError as error:
        raise TokenizerError(str(error)) from error
    try:
        return _tokens(file)
    except TokenizerError as error:
        raise TokenizerError(f"{shown(path.name)}: {error}") from error.__cause__


def _tokens(file: GgufFile) -> GgufTokens:
    model = file.tokenizer_model
    family = _FAMILIES.get(model or "")
    if family is None:
        what = "the file has no tokenizer" if model is None else f"tokenizers of kind {shown(model)} are not supported"
        raise TokenizerError(f"{what}; the supported kinds are {' and '.join(map(repr, _FAMILIES))}")
    pre = file.tokenizer_pre or "default"
    if family == "byte level" and pre not in PRE_TOKENIZERS:
        raise TokenizerError(f"the pre-tokenizer {shown(pre)} is not supported; those that are: {' '.join(PRE_TOKENIZERS)}")
    texts = _texts(file)
    ids = {text: token for token, text in enumerate(texts)}
    declared = _declared(file, family, len(texts))
    fill_in = fill_in_tokens(ids, declared)
    spelled = {ids[text] for text in ENDS if text in ids} | {fill_in[role] for role in fill_in if role not in declared}
    kinds = _kinds(file, len(texts))
    bos = declared.get("bos", -1)
    defaults = PRE_TOKENIZERS[pre].adds_bos if family == "byte level" else True
    return GgufTokens(
        table=TokenTable(texts, kinds, family, frozenset(spelled)),
        scores=_numbers(file, "tokenizer.ggml.scores") or [0.0] * len(texts),
        adds_space=family == "spm" and _flag(file, "add_space_prefix", True),
        merges=_merges(file) if family == "byte level" else (),
        pre=pre,
        bos=bos,
        eos=declared.get("eos", -1),
        unknown=declared.get("unknown", kinds.index(Kind.UNKNOWN) if Kind.UNKNOWN in kinds else -1),
        adds_bos=bos >= 0 and _flag(file, "add_bos_token", defaults),
        adds_eos="eos" in declared and _flag(file, "add_eos_token", False),
        ends=end_tokens(ids, fill_in, [declared[role] for role in ("eos", "eot", "eom") if role in declared]),
        chat_template=file.chat_template,
    )


def _texts(file: GgufFile) -> list[str]:
    texts = file.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(texts, tuple) or not texts:
        raise TokenizerError("tokenizer.ggml.tokens is missing or empty")
    if len(texts) > MAX_TOKENS:
        raise TokenizerError(f"the vocabulary has {len(texts):,} tokens, above the limit of {MAX_TOKENS:,}")
    return [str(text) or f"[EMPTY_{token}]" for token, text in enumerate(texts)]


def _kinds(file: GgufFile, size: int) -> list[Kind]:
    by_number = {kind.value: kind for kind in Kind}
    numbers = _numbers(file, "tokenizer.ggml.token_type") or [Kind.NORMAL] * size
    return [by_number.get(int(number), Kind.UNDEFINED) for number in numbers]


def _declared(file: GgufFile, family: Family, size: int) -> dict[str, int]:
    declared = {"bos": 1, "eos": 2} if family == "spm" else {}
    for name in (*_OLD_ROLES, *_ROLES):
        token = file.integer(f"tokenizer.ggml.{name}_token_id", -1)
        if token >= 0:
            declared[_OLD_ROLES.get(name, name)] = token
    return {role: token for role, token in declared.items() if token < size}


def _merges(file: GgufFile) -> list[tuple[str, str]]:
    merges = file.metadata.get("tokenizer.ggml.merges")
    if not isinstance(merges, tuple):
        raise TokenizerError("tokenizer.ggml.merges is missing")
    # The first half may begin with a space.
    cuts = [merge.find(" ", 1) for merge in merges]
    if -1 in cuts:
        index = cuts.index(-1)
        raise TokenizerError(
            f"tokenizer.ggml.merges[{index}] is {shown(merges[index])}, expected two tokens and a space between"
        )
    return [(merge[:cut], merge[cut + 1 :]) for merge, cut in zip(merges, cuts, strict=True)]


def _numbers(file: GgufFile, key: str) -> "array[int] | array[float] | None":
    values = file.metadata.get(key)
    return values if isinstance(values, array) else None


def _flag(file: GgufFile, name: str, default: bool) -> bool:
    value = file.metadata.get(f"tokenizer.ggml.{name}")
    return value if isinstance(value, bool) else default
