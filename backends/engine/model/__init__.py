"""The transformer: its weights in both precisions, and the forward pass."""
