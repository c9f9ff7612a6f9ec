"""Measures Baton beside a peer on the same machine: load generator, fake upstream, the peer's build, and the comparison."""
