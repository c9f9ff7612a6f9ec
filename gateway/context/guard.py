"""Turns what fails in a store into what the client of a conversation is told."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.context.codec import Damaged
from gateway.context.errors import ContextUnavailable
from gateway.store.errors import StoreDown

logger = logging.getLogger(__name__)


@contextmanager
def telling(what: str) -> Iterator[None]:
    """Run a step that needs the store.

    Args:
        what: what the client refers to (`conversation`), for the message.

    Raises:
        ContextUnavailable: the store does not answer, or returned what nobody wrote.
    """
    try:
        yield
    except StoreDown as error:
        logger.warning("the store of every %s does not answer: %s", what, error)
        raise ContextUnavailable(f"The {what} cannot be reached at the moment: its store does not answer.") from error
    except Damaged as error:
        logger.error("a stored %s is damaged: %s", what, error)
        raise ContextUnavailable(f"The {what} cannot be read: what is stored of it is damaged.") from error
