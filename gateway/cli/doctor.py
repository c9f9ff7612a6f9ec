"""`baton doctor`: what could keep the gateway from working well here, and what to do about it."""

import argparse
import os

from gateway.cli.checks.finding import Finding
from gateway.cli.checks.hardware import check_cores, check_cpu, check_limits, check_memory, cpu_flags
from gateway.cli.checks.software import check_llama_build, check_packages, check_python
from gateway.cli.settings import settings_from
from gateway.config_sources.reader import ConfigError


def run_doctor(arguments: argparse.Namespace) -> int:
    """Print one line per finding; the exit code is 1 when something fails."""
    failed = False
    for finding in _findings(arguments):
        failed |= finding.level == "fail"
        print(f"{finding.level:<4}  {finding.subject}: {finding.text}")
        if finding.fix:
            print(f"      -> {finding.fix}")
    return 1 if failed else 0


def _findings(arguments: argparse.Namespace) -> list[Finding]:
    flags = cpu_flags()
    machine = [check_python(), *check_packages(), check_llama_build(flags), check_cpu(flags), check_cores(), check_limits()]
    try:
        settings = settings_from(arguments)
    except ConfigError as error:
        return machine + [Finding("fail", "configuration", line, "see: baton check-config") for line in error.errors]
    # Needs the structs of all engines, which a broken installation may lack.
    from gateway.cli.checks.setup import check_models, check_port, model_bytes
    from gateway.cli.checks.stores import check_database, check_redis
    from gateway.cli.checks.upstreams import check_connections, check_upstreams

    models = [*check_models(settings), *check_upstreams(settings), check_memory(model_bytes(settings))]
    stores = [check_database(settings, os.environ), *check_redis(settings)]
    return [*machine, *models, *stores, *check_connections(settings), check_port(settings.server)]
