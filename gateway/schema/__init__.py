"""The OpenAI wire as msgspec Structs: what may be sent and what is answered, without behaviour."""
