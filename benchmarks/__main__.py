"""`make bench`: the comparison of gateways, then those of the GGUF engine and of the torch engine. `ARGS` may name one first.

    python -m benchmarks [gateway | engine | torch] [--quick] [--repetitions N] ...

Options that only one comparison has can be given with its name. `python -m benchmarks gateway --help` lists them.
"""

import signal
import sys
from types import ModuleType

from steps import StepError

from benchmarks import gateway, run, torch_engine
from benchmarks.servers import BenchmarkError

COMPARISONS: dict[str, ModuleType] = {"gateway": gateway, "engine": run, "torch": torch_engine}


def main(arguments: list[str]) -> None:
    """Read the whole command line, then run what it names."""
    chosen = COMPARISONS
    if arguments and arguments[0] in COMPARISONS:
        chosen = {arguments[0]: COMPARISONS[arguments[0]]}
        arguments = arguments[1:]
    options = {name: comparison.parse(arguments) for name, comparison in chosen.items()}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an interrupted run ends its servers too
    try:
        for name, comparison in chosen.items():
            comparison.compare(options[name])
    except (BenchmarkError, StepError) as error:
        sys.exit(f"baton: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main(sys.argv[1:])
