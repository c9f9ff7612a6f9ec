"""How streams of the OpenAI API end."""

from gateway.errors import ApiError, error_body


class OpenAiEnding:
    """With `[DONE]`, also behind an error event. Both official SDKs raise when an event has an `error`."""

    done = b"data: [DONE]\n\n"

    def error(self, error: ApiError) -> bytes:
        """The event for what broke after the stream had begun."""
        return b"data: " + error_body(error) + b"\n\n"
