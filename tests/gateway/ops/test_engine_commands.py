"""`baton eval` and `baton export`: the work of another process, its progress, its result and its end."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from backends.engine.evaluation.report import Report
from backends.engine.jobs.messages import EvaluationJob, Exported, ExportJob
from gateway.cli.job import JobFailed, run_job
from gateway.cli.progress import ProgressLine
from tests.backends.engine.evaluation.spoken_model import save_speaking

ROOT = Path(__file__).resolve().parents[3]
JOB = ExportJob(path="", folder="", dtype="bf16")


@pytest.fixture(scope="module")
def speaking(tmp_path_factory):
    return save_speaking(tmp_path_factory.mktemp("speaking"))


@pytest.fixture
def prose(tmp_path):
    (tmp_path / "prose.txt").write_text("The quick brown fox jumps over the lazy dog. " * 9)
    return str(tmp_path / "prose.txt")


def test_eval_prints_a_table_for_each_text_and_its_progress_elsewhere(run_baton, speaking, prose):
    choices = ("--precision", "prefill=int8", "--precision", "prefill=bf16,decode=int4-g32,kv=int8")
    result = run_baton("eval", str(speaking), "--text", prose, "--tokens", "256", "--threads", "1", *choices)
    assert result.returncode == 0, result.stderr
    title, heading, head, first, second = [line for line in result.stdout.splitlines() if line][:5]
    assert title == f"{speaking.name} (llama, F32) beside itself in fp32"
    assert re.fullmatch(rf"{re.escape(prose)}: 127 tokens scored, perplexity [\d.]+ in fp32", heading)
    assert head.split()[:5] == ["PREFILL", "DECODE", "HEAD", "KV", "PERPLEXITY"]
    assert first.split()[:4] == ["int8", "-", "bf16", "bf16"]
    assert second.split()[:4] == ["bf16", "int4-g32", "bf16", "int8"]
    assert re.search(r" [+-]\d+\.\d\d \([+-]\d+\.\d\d to [+-]\d+\.\d\d\) +\d\.\d{5} +\d\.\d{4} +\d+\.\d\d% +\d", first)
    assert result.stderr.splitlines() == [
        *("0%  the reference, fp32", "33%  the reference, fp32", "67%  prefill=int8"),
        "100%  prefill=bf16,decode=int4-g32,kv=int8",
    ]


def test_eval_prints_json_that_is_a_report(run_baton, speaking, prose):
    result = run_baton(
        "eval", str(speaking), "--text", prose, "--tokens", "128", "--threads", "1", "--precision", "kv=int8", "--json"
    )
    report = msgspec.json.decode(result.stdout, type=Report)
    assert [(text.name, text.tokens, len(text.measured)) for text in report.texts] == [(prose, 63, 1)]
    assert 0 < report.texts[0].measured[0].quality.kl.mean < 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--precision", "decode=int3"], "argument --precision: decode is 'int3', it can be auto, bf16, fp32, int8"),
        (["--tokens", "63"], "argument --tokens: must be a number of at least 64, not '63'"),
        (["--tokens", "many"], "argument --tokens: must be a number of at least 64, not 'many'"),
        (["--threads", "-1"], "argument --threads: must be a number of at least 0, not '-1'"),
        (["--quick", "--tokens", "64"], "argument --tokens: not allowed with argument --quick"),
    ],
)
def test_eval_refuses_what_cannot_be_before_it_begins(run_baton, options, message):
    result = run_baton("eval", "model.gguf", *options)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr


@pytest.mark.parametrize("command", [("eval",), ("export", "folder")])
def test_a_model_that_is_not_there_is_one_clear_line(run_baton, command):
    result = run_baton(command[0], "nothing.gguf", *command[1:])
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "baton: 'nothing.gguf': cannot open the file: No such file or directory\n"


def test_export_writes_a_folder_that_exports_again_as_the_same(run_baton, speaking, tmp_path):
    first, second = tmp_path / "new" / "first", tmp_path / "second"
    result = run_baton("export", str(speaking), str(first), "--dtype", "fp32")
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(rf"{re.escape(str(first))}: 5 files, \d\.\d MB\n", result.stdout)
    assert result.stderr.splitlines()[-1] == "100%  weights"
    assert json.loads((first / "generation_config.json").read_text()) == {"bos_token_id": 256, "eos_token_id": [257, 2]}
    assert run_baton("export", str(first), str(second), "--dtype", "fp32").returncode == 0
    assert {file.name: file.read_bytes() for file in first.iterdir()} == {
        file.name: file.read_bytes() for file in second.iterdir()
    }


def test_export_spares_what_is_there(run_baton, speaking, tmp_path):
    (tmp_path / "mine").write_text("precious")
    result = run_baton("export", str(speaking), str(tmp_path))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"baton: {tmp_path} is there already and is not an empty folder\n"
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]


def test_without_torch_the_missing_package_is_named(speaking):
    job = msgspec.json.encode(EvaluationJob(path=str(speaking), texts=[], choices=[], tokens=64)).decode()
    script = (
        "import sys, runpy; sys.modules['torch'] = None; "
        f"sys.argv = ['', {job!r}]; runpy.run_module('backends.engine.jobs.evaluate', run_name='__main__')"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (1, "")
    message = "this needs the package torch, which is not installed"
    assert json.loads(result.stdout) == {"type": "failed", "message": message}


def test_a_job_whose_memory_was_taken_away_says_so(capfd):
    with pytest.raises(JobFailed, match="was killed, most likely because the machine has too little memory"):
        run_job("tests.gateway.ops.killed_job", JOB, Exported)


def test_a_job_that_breaks_says_how_it_ended(capfd):
    with pytest.raises(JobFailed, match="ended with exit code 1"):
        run_job("tests.gateway.ops.no_such_job", JOB, Exported)


def interrupted(module: str, folder: Path, patience_s: float) -> tuple[int, str]:
    """Interrupt a command whose job says that it waits; the exit code, and what it said after that."""
    job = ExportJob(path="", folder=str(folder), dtype="bf16")
    script = (
        "import sys; from gateway.cli import job; from backends.engine.jobs.messages import *\n"
        f"job._PATIENCE_S = {patience_s}\n"
        f"try: job.run_job({module!r}, {job!r}, Exported)\n"
        "except KeyboardInterrupt: sys.exit(130)"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "50%  waiting\n"
        process.send_signal(signal.SIGINT)
        return process.wait(30), process.stderr.read()


def test_an_interrupted_command_lets_its_job_clean_up(tmp_path):
    assert interrupted("tests.gateway.ops.waiting_job", tmp_path / "note", patience_s=5) == (130, "")
    assert (tmp_path / "note").read_text() == "cleaned up"


def test_a_job_that_does_not_hear_an_interrupt_is_killed(tmp_path):
    assert interrupted("tests.gateway.ops.deaf_job", tmp_path, patience_s=0.2) == (130, "")


def test_a_job_whose_reader_is_gone_ends_quietly(tmp_path):
    ours, theirs = os.pipe()
    os.close(ours)
    argument = msgspec.json.encode(ExportJob(path="", folder=str(tmp_path / "note"), dtype="bf16")).decode()
    command = [sys.executable, "-m", "tests.gateway.ops.waiting_job", argument]
    result = subprocess.run(command, cwd=ROOT, stdout=theirs, stderr=subprocess.PIPE, timeout=60)
    os.close(theirs)
    assert (result.returncode, result.stderr) == (1, b"")
    assert (tmp_path / "note").read_text() == "cleaned up"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_on_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "48")
    stream = _Terminal()
    line = ProgressLine(stream)
    for done in (0, 12, 40):
        line.show(done, 40, "prefill=bf16,decode=int4-g128")
    line.close()
    assert stream.getvalue().split("\r")[1:] == [
        *(
            f"[{'#' * full}{'.' * (24 - full)}] {text}  prefill=bf16,d\x1b[K"
            for full, text in ((0, "  0%"), (7, " 30%"), (24, "100%"))
        ),
        "\x1b[K",
    ]


def test_progress_is_a_line_for_each_tenth_in_a_file():
    stream = io.StringIO()
    line = ProgressLine(stream)
    for done in range(201):
        line.show(done, 200, "weights")
    line.close()
    assert stream.getvalue() == "".join(f"{tenth}0%  weights\n" for tenth in range(11)).replace("00%", "0%", 1)
