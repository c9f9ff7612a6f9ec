"""The host of an engine: starts the child, watches it, replaces it, and speaks to it. Loads nothing native."""
