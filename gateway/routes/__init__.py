"""One module per group of endpoints; a handler reads as one line: decode, translate, generate, translate, respond."""
