"""Small random models of every family, as transformers saves them: norms around 1, matrices that keep the size of what they
multiply, so that logits are far apart and a mistake anywhere shows in all of them.
"""

from pathlib import Path
from typing import Any

import torch

WINDOW = 24

Model = Any  # transformers builds its classes at run time

_NUMBERS: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
_GEMMA_ROPES = {
    "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1_000_000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama 3": ("Llama", {"rope_parameters": _LLAMA3, "hidden_size": 96, "num_attention_heads": 6}),
    "mistral": ("Mistral", {"sliding_window": WINDOW, "num_key_value_heads": 1}),
    "qwen2": ("Qwen2", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 2, "head_dim": None}),
    "qwen3": ("Qwen3", {"tie_word_embeddings": True, "num_key_value_heads": 4}),
    "gemma3": (
        "Gemma3",
        {
            "tie_word_embeddings": True,
            "sliding_window": WINDOW,
            "sliding_window_pattern": 3,
            "query_pre_attn_scalar": 48,
            "final_logit_softcapping": 30.0,
            "attn_logit_softcapping": 5.0,
            "rope_parameters": _GEMMA_ROPES,
        },
    ),
}
"""By name: the family and how its configuration differs from `_NUMBERS`."""


def save_random(kind: str, folder: Path, **changes: Any) -> Model:
    """Save a random model in float32, and return the one of transformers."""
    import transformers

    family, more = KINDS[kind]
    numbers = {name: value for name, value in (_NUMBERS | more | changes).items() if value is not None}
    config = getattr(transformers, f"{family}TextConfig" if family == "Gemma3" else f"{family}Config")(**numbers)
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    dice = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=dice)
            if name.endswith("norm.weight"):
                parameter.copy_(1.0 + 0.2 * noise)  # for Gemma that is 2: its layers outweigh the embedding then
            elif parameter.ndim == 1:
                parameter.copy_(0.2 * noise)
            else:
                parameter.copy_(noise * (1.5 if "embed" not in name else 1.0) * parameter.shape[1] ** -0.5)
    model.save_pretrained(folder)
    return model.eval()


def text(length: int, seed: int = 1, vocab: int = 160) -> list[int]:
    """Random tokens."""
    return torch.randint(vocab, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


@torch.no_grad()
def reference_logits(model: Model, tokens: list[int]) -> torch.Tensor:
    """What transformers computes behind every token, [n, vocab] float32."""
    logits: torch.Tensor = model(torch.tensor([tokens])).logits[0]
    return logits


@torch.no_grad()
def reference_answer(model: Model, prompt: list[int], new: int) -> list[int]:
    """The most likely tokens by transformers, one after the other, whatever they are."""
    answer = model.generate(
        torch.tensor([prompt]), max_new_tokens=new, do_sample=False, eos_token_id=None, bos_token_id=None, pad_token_id=0
    )
    ids: list[int] = answer[0, len(prompt) :].tolist()
    return ids
