"""`python -m gateway` is the command `baton`."""

from gateway.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
