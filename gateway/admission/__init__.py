"""Who runs now, who waits and who is refused: one bounded, prioritised, fair queue per public model."""
