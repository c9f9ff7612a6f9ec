"""From a GGUF header or a `config.json` to a `ModelShape`, and back to a `config.json`. Plain Python."""
