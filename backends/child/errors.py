"""Why a model cannot be served at all, whichever side finds out."""


class LoadError(Exception):
    """The file is damaged, unknown to the engine or too large, and another attempt would end the same way.

    The message is for people: it names the file or the tensor, the number and the limit.
    """
