"""The version of the installed distribution."""

from importlib.metadata import PackageNotFoundError, version


def gateway_version() -> str:
    """Return the version; `unknown` in a checkout that was never installed."""
    try:
        return version("baton-llm")
    except PackageNotFoundError:
        return "unknown"
