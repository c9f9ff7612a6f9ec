"""What a GGUF file is for: a language model, an image or audio projector, or a LoRA adapter; and its architecture.

Each kind is refused in another's place, because native loaders read the keys that they expect without asking. Source:
`llama-adapter.cpp` and `clip.cpp` of llama.cpp.
"""

import math
from typing import Literal

from backends.gguf.architectures import ARCHITECTURES, PROJECTOR_ARCHITECTURE, PROJECTORS
from backends.gguf.errors import GgufError, shown
from backends.gguf.fields import choice, demand_type, text
from backends.gguf.header import Header

Kind = Literal["model", "mmproj", "adapter"]

_PROJECTOR_KEYS = ("clip.projector_type", "clip.vision.projector_type", "clip.audio.projector_type")


def check_kind(header: Header, kind: Kind, *, check_architecture: bool) -> str:
    """Check that the file is of that kind, and return its architecture.

    Raises:
        GgufError: it is for something else, or (with `check_architecture`) the linked llama.cpp does not implement it.
    """
    architecture = text(header, "general.architecture")
    if not architecture:
        raise GgufError("general.architecture is missing")
    found = text(header, "general.type") or ("mmproj" if architecture == PROJECTOR_ARCHITECTURE else "model")
    if found != kind or (architecture == PROJECTOR_ARCHITECTURE) != (kind == "mmproj"):
        raise GgufError(
            f"file is of type {shown(found)} with architecture {shown(architecture)}, expected a file of type '{kind}'"
        )
    if kind == "mmproj":
        _check_projector(header)
        return architecture
    if check_architecture and architecture not in ARCHITECTURES:
        raise GgufError(
            f"architecture {shown(architecture)} is not one of the {len(ARCHITECTURES)} that the linked llama.cpp knows"
        )
    if kind == "adapter":
        _check_adapter(header)
    return architecture


def _check_projector(header: Header) -> None:
    names = [choice(header, key, PROJECTORS, "projector that the linked llama.cpp knows") for key in _PROJECTOR_KEYS]
    if not any(names):
        raise GgufError("clip.projector_type is missing")


def _check_adapter(header: Header) -> None:
    if choice(header, "adapter.type", ("lora",), "adapter type that is supported, only 'lora' is") is None:
        raise GgufError("adapter.type is missing")
    demand_type(header, "adapter.lora.alpha", "f32")
    alpha = header.metadata.get("adapter.lora.alpha")
    if not isinstance(alpha, float) or not math.isfinite(alpha):
        raise GgufError(f"adapter.lora.alpha is {alpha}, expected a finite number")
