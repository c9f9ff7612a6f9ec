"""How much quality the precisions cost: the same text by a model in float32 and in the precisions it is served in."""
