"""How fast the operators are on this GPU, beside torch and beside what its memory and its tensor cores can do."""
