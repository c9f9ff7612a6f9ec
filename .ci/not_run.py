"""A pytest plugin: names the tests that could not run, and in CI (`CI=true`) counts each of them as a failure.

A skip is honest on a laptop without a browser; in CI it would hide a missing part behind a green result.
"""

import os

import pytest


def _skipped(config: pytest.Config) -> list[pytest.TestReport | pytest.CollectReport]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return list(reporter.stats.get("skipped", ())) if reporter else []


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Turn a green run with skips into a red one where that is asked for."""
    if exitstatus == pytest.ExitCode.OK and os.environ.get("CI") == "true" and _skipped(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List what did not run, with the reason."""
    skipped = _skipped(config)
    if not skipped:
        return
    ci = os.environ.get("CI") == "true"
    terminalreporter.section("could not run" + (", which is a failure in CI" if ci else ""), red=ci, yellow=not ci)
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"{report.nodeid}: {reason.removeprefix('Skipped: ')}")
