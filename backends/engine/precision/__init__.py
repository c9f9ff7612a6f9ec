"""Weights in the precisions of the two phases, and the matrix products that go with them."""
