"""What is compiled to prove that the operators compile: one module per operator, with a function `cases`."""
