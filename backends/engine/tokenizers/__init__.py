"""Text to token ids and back for the torch engine, from a GGUF file or a Hugging Face folder."""
