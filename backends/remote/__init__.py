"""Models behind somebody else's OpenAI-compatible server, reached over HTTP."""
