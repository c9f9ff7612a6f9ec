"""Kernels run in Triton's interpreter here: it has to be chosen before they are imported."""

import os
import sys

assert "kernels.gpu.launch" not in sys.modules or os.environ.get("TRITON_INTERPRET") == "1"
os.environ["TRITON_INTERPRET"] = "1"
