"""The GGUF engine: llama.cpp in a supervised child process, for laptops, CPU boxes and Jetson."""
