"""Reading weights from GGUF files and safetensors folders, one tensor at a time."""
