"""The one error of the GGUF reader, and how text from a hostile file is shown inside its message."""

_SHOWN_CHARACTERS = 64


class GgufError(ValueError):
    """The file is not a GGUF file that may be handed to an engine; the message names the field, the number and the limit."""


def shown(text: str) -> str:
    """Quote text that came out of a file: escaped, and cut after 64 characters."""
    if len(text) <= _SHOWN_CHARACTERS:
        return ascii(text)
    return f"{text[:_SHOWN_CHARACTERS]!a}... ({len(text):,} characters)"
