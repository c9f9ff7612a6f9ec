"""What "auto" means on this machine and for this file."""

from backends.engine.config import EngineConfig
from backends.engine.names import expected
from backends.engine.precision.build import DENSE_KINDS
from backends.engine.precision.precisions import Precisions
from backends.engine.weights.source import WeightSource
from kernels.ops import Device


def choose(config: EngineConfig, source: WeightSource, device: Device) -> Precisions:
    """Decide the precisions of a model."""
    prefill = {"auto": "bf16" if device.has_fast_bf16 else "fp32", "decode": None}.get(config.prefill, config.prefill)
    decode: str = config.decode
    if decode == "auto":
        decode = "file" if _is_quantised(source) else "bf16"
    head = "file" if config.head == "auto" else config.head
    if config.head == "auto" and config.decode == "fp32":
        head = "fp32"
    return Precisions(prefill=None if prefill == decode else prefill, decode=decode, head=head)


def _is_quantised(source: WeightSource) -> bool:
    """Whether any matrix of a layer has 8 bits or fewer: else one set of weights is what the file holds, for both phases."""
    names = (name for name, size in expected(source.shape).items() if name.startswith("layers.") and len(size) == 2)
    return any(source.kind(name) not in DENSE_KINDS for name in names)
