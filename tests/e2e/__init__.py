"""Black-box tests: a real gateway process with the real SmolLM2, spoken to over HTTP alone."""
