"""The engine's operators. `kernels.reference` defines each in plain torch; `kernels.cpu` computes the same fast on a CPU."""
