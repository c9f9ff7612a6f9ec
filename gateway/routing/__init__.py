"""Which deployment answers a request, and who answers when that one cannot."""
