"""The one error of this package, and how the failures of native tokenizers become it."""

from collections.abc import Iterator
from contextlib import contextmanager

from backends.engine.errors import ModelFileError
from backends.errors import Rejected


class TokenizerError(ModelFileError):
    """A model's tokenizer cannot be used. The message is for the user, and names the file and what is wrong with it."""


@contextmanager
def native(what: str, kind: type[TokenizerError | Rejected] = TokenizerError) -> Iterator[None]:
    """Turn whatever the tokenizer libraries raise into an error of the given kind, saying `what` went wrong.

    `tokenizers` raises bare `Exception`, and where its Rust code panics (a regular expression that backtracks too much) a
    `PanicException`, which is no `Exception` and cannot be imported: left alone it would end the thread.
    """
    try:
        yield
    except TokenizerError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise kind(f"{what}: {reason}") from error
