"""The only package that calls llama.cpp. It runs in the engine child, never in the gateway process."""
