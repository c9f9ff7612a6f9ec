"""The one error of everything that reads model files for the torch engine. Importing this loads no torch."""

from backends.child.errors import LoadError


class ModelFileError(LoadError):
    """A model's files are damaged, incomplete, or of a kind that the engine does not implement.

    The message is one sentence for the user and names the file, and where they are known the tensor, the number and the limit.
    """
