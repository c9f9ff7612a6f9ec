"""Which tokens are computed in the next step."""
