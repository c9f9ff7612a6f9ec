"""The one error of everything that keeps state outside the process's memory."""


class StoreDown(Exception):
    """The store cannot answer now: locked for too long, unreachable, full, unreadable or closed.

    The message says which store and why, without its password and without what was to be stored. Whoever catches it decides
    what goes on without the store; it never reaches a client as it is.
    """
