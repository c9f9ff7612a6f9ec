"""The torch engine: paged KV, continuous batching, and a weight precision for each phase."""
