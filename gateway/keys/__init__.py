"""API keys: how they are made, stored, found by what a client presents, and what they allow."""
