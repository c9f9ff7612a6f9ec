"""Reading GGUF model files without trusting them: header, metadata, tensor table and digest, in plain Python."""
