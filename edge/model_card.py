"""What `/v1/models` says about a GGUF file before an engine has loaded it: from its header alone."""

from backends.gguf.model import GgufFile
from backends.types import Capability, ModelCard

_NS_PER_S = 1_000_000_000


def card_of_file(name: str, file: GgufFile) -> ModelCard:
    """Describe a checked file under a public name. `created` is when the file was last changed."""
    capabilities: tuple[Capability, ...] = ("embedding",) if file.is_embedding else ("chat", "completion", "embedding")
    return ModelCard(
        id=name,
        created=file.shards[0].identity.mtime_ns // _NS_PER_S,
        capabilities=capabilities,
        context_length=file.context_length or None,
        vocab_size=file.vocab_size or None,
        parameters=file.parameter_count or None,
        size_bytes=file.size_bytes,
        architecture=file.architecture,
        quantization=file.quantization,
    )
