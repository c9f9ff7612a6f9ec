"""The paged KV cache: who holds which block, and which blocks several sequences share."""
