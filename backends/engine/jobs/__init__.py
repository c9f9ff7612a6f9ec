"""Work on a model that nobody serves, each in a process of its own, because it needs torch and a lot of memory."""
