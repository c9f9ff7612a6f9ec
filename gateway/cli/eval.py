"""`baton eval`: what the precisions of a model cost in quality."""

import argparse
import sys

import msgspec

from backends.engine.evaluation.choice import DEFAULT_CHOICES
from backends.engine.evaluation.report import Interval, Measured, Report
from backends.engine.jobs.messages import EvaluationJob
from gateway.cli.job import JobFailed, run_job
from gateway.cli.table import print_table

_MODULE = "backends.engine.jobs.evaluate"
_HEAD = ("PREFILL", "DECODE", "HEAD", "KV", "PERPLEXITY", "CHANGE % (95 %)", "KL", "KL P99", "SAME TOP", "FLIPS % (95 %)")

_LEGEND = """\
- where the weights of the other phase read everything. Intervals hold 95 % of resampled texts. KL is in nats per token.
SAME TOP: the likeliest token is that of fp32. FLIPS: it turns from right to wrong or back."""


def run_eval(arguments: argparse.Namespace) -> int:
    """Print a table for each text, or JSON; the exit code is 1 when there are no results."""
    job = EvaluationJob(
        path=arguments.model_path,
        texts=arguments.text,
        choices=arguments.precision or list(DEFAULT_CHOICES),
        tokens=arguments.tokens,
        threads=arguments.threads,
    )
    try:
        report = run_job(_MODULE, job, Report)
    except JobFailed as error:
        print(f"baton: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        _print_report(report)
    return 0


def _print_report(report: Report) -> None:
    print(f"{report.model} ({report.architecture}, {report.quantization}) beside itself in fp32")
    for text in report.texts:
        print(f"\n{text.name}: {text.tokens:,} tokens scored, perplexity {text.perplexity:.3f} in fp32")
        print_table(_HEAD, [_row(measured) for measured in text.measured])
    print(f"\n{_LEGEND}")


def _row(measured: Measured) -> tuple[str, ...]:
    quality, used = measured.quality, measured.used
    ratio, flips = quality.perplexity_ratio, quality.flips
    return (
        *(used[name] or "-" for name in ("prefill", "decode", "head", "kv")),
        f"{quality.perplexity:.3f}",
        _percent(Interval(ratio.mean - 1, ratio.low - 1, ratio.high - 1), "+"),
        f"{quality.kl.mean:.5f}",
        f"{quality.kl_p99:.4f}",
        f"{quality.same_top:.2%}",
        _percent(flips),
    )


def _percent(interval: Interval, sign: str = "") -> str:
    """Write a mean and its interval; what rounds to nothing has no minus."""
    mean, low, high = (f"{round(100 * number, 2) + 0.0:{sign}.2f}" for number in (interval.mean, interval.low, interval.high))
    return f"{mean} ({low} to {high})"
