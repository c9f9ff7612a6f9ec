"""HTTP in, HTTP out, and the policy between: the OpenAI-compatible door in front of the backends."""
