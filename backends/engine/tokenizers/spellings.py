"""What tokens are for, as far as only their spelling tells: which end an answer, and which belong to code completion.

Files leave both out too often, so llama.cpp goes by well-known spellings, and its answer is what a model is tried with. Source:
`llama_vocab::impl::load` of llama.cpp (vendored by llama-cpp-python 0.3.36).
"""

from collections.abc import Iterable, Mapping

_ENDS = """
    </s> <|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> <|eom_id|>
    <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <eos> <turn|> <|tool_response> <｜end▁of▁sentence｜> [e~[
"""
ENDS = frozenset(_ENDS.split())

# The tokens of code completion, by GGUF's name of the role.
_FILL_IN = {
    "fim_pre": "<|fim_prefix|> <fim-prefix> <fim_prefix> <｜fim▁begin｜> <PRE> ▁<PRE> <|code_prefix|> <|prefix|>",
    "fim_suf": "<|fim_suffix|> <fim-suffix> <fim_suffix> <｜fim▁hole｜> <SUF> ▁<SUF> <|code_suffix|> <|suffix|>",
    "fim_mid": "<|fim_middle|> <fim-middle> <fim_middle> <｜fim▁end｜> <MID> ▁<MID> <|code_middle|> <|middle|>",
    "fim_pad": "<|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD]",
    "fim_rep": "<|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame>",
    "fim_sep": "<|file_sep|>",
}
# After these comes another file, which nobody asked for.
_ENDING_ROLES = ("fim_pad", "fim_rep", "fim_sep")


def fill_in_tokens(ids: Mapping[str, int], declared: Mapping[str, int]) -> dict[str, int]:
    """The ids of the tokens of code completion, by role: what the file declares, else the first that is spelled like one.

    Args:
        ids: all tokens by spelling.
        declared: ids by role; other roles may be among them.
    """
    found = {}
    for role, spellings in _FILL_IN.items():
        spelled = next((ids[text] for text in spellings.split() if text in ids), None)
        token = declared.get(role, spelled)
        if token is not None:
            found[role] = token
    return found


def end_tokens(ids: Mapping[str, int], fill_in: Mapping[str, int], declared: Iterable[int]) -> frozenset[int]:
    """The tokens after which an answer is over: those `declared`, and those known by their spelling.

    Args:
        ids: the tokens that may count by their spelling alone.
        fill_in: as `fill_in_tokens` has found them.
    """
    spelled = {ids[text] for text in ENDS if text in ids}
    return frozenset(spelled | {fill_in[role] for role in _ENDING_ROLES if role in fill_in} | set(declared))
