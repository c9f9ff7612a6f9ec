"""State that outlives the process: one SQLite file, and Redis where several gateways share it."""
