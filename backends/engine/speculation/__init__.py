"""Guessing the next tokens of a sequence from its own text. Whether a guess is right is decided by the sampler."""
