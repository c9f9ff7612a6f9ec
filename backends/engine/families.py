"""The model families that the engine implements, and how their files differ. Plain data.

A family is a set of switches of one transformer, so a new one that needs no new switch is one more entry here.
Source: the `configuration_*.py` and `modeling_*.py` of transformers, `src/models/` and `conversion/` of llama.cpp.
"""

from dataclasses import dataclass
from typing import Literal

from backends.engine.shape import Activation

Windows = Literal["none", "all", "some"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What all models of a family share.

    `name` is `ModelShape.architecture`; `hf_class` and `model_type` are what `config.json` calls it. Folders store norm weights
    less `norm_offset`, GGUF files store them whole. GGUF files of an `interleaved` family keep the two halves of a query or key
    head as neighbouring rows. `head_dim` and `tied` hold where a configuration does not say; 0 is hidden size over heads.
    `windows` is on which layers a sliding window can be.
    """

    name: str
    hf_class: str
    model_type: str
    activation: Activation = "silu"
    qkv_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    norm_offset: float = 0.0
    interleaved: bool = False
    head_dim: int = 0
    tied: bool = False
    windows: Windows = "none"


LLAMA = Family(name="llama", hf_class="LlamaForCausalLM", model_type="llama", interleaved=True)
MISTRAL = Family(name="mistral", hf_class="MistralForCausalLM", model_type="mistral", interleaved=True, windows="all")
QWEN2 = Family(name="qwen2", hf_class="Qwen2ForCausalLM", model_type="qwen2", qkv_bias=True, windows="some")
QWEN3 = Family(name="qwen3", hf_class="Qwen3ForCausalLM", model_type="qwen3", qk_norm=True, head_dim=128, windows="some")
GEMMA3 = Family(
    name="gemma3",
    hf_class="Gemma3ForCausalLM",
    model_type="gemma3_text",
    activation="gelu_tanh",
    qk_norm=True,
    post_norms=True,
    norm_offset=1.0,
    head_dim=256,
    tied=True,
    windows="some",
)
FAMILIES = {family.name: family for family in (LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA3)}
"""By `ModelShape.architecture`."""
