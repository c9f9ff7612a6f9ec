"""The installer behind the Makefile: does nothing twice, survives interruption, and says what is missing."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_a_step_runs_again_only_when_its_inputs_change(ci: SimpleNamespace, tmp_path: Path) -> None:
    done: list[str] = []
    for inputs in (["a"], ["a"], ["b"], ["b"]):
        ci.steps.once("step", inputs, tmp_path, lambda inputs=inputs: done.append(inputs[0]))
    assert done == ["a", "b"]


def test_a_step_runs_again_when_its_result_was_removed(ci: SimpleNamespace, tmp_path: Path) -> None:
    result = tmp_path / "node_modules"
    done: list[int] = []

    def install() -> None:
        result.mkdir()
        done.append(1)

    ci.steps.once("step", [], result, install)
    result.rmdir()
    ci.steps.once("step", [], result, install)
    assert len(done) == 2


def test_an_interrupted_step_runs_again(ci: SimpleNamespace, tmp_path: Path) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    ci.steps.once("step", ["old"], tmp_path, lambda: None)
    with pytest.raises(KeyboardInterrupt):
        ci.steps.once("step", ["new"], tmp_path, interrupted)
    done: list[str] = []
    ci.steps.once("step", ["old"], tmp_path, lambda: done.append("old again, since the new one may have undone it"))
    assert done


def test_a_failure_shows_what_the_command_said_without_the_noise_of_pip(ci: SimpleNamespace) -> None:
    script = "print('WARNING: Location x is ignored: it is neither a file nor a directory.'); print('the reason'); exit(3)"
    with pytest.raises(ci.steps.StepError) as caught:
        ci.steps.logged([sys.executable, "-c", script])
    assert "the reason" in str(caught.value)
    assert "status 3" in str(caught.value)
    assert "WARNING" not in str(caught.value).partition("`")[0]
    assert "WARNING" in ci.steps.LOG.read_text()


def test_an_interrupt_ends_the_whole_process_group(ci: SimpleNamespace, tmp_path: Path) -> None:
    script = "import subprocess, sys; child = subprocess.Popen(['sleep', '300']); print(child.pid, flush=True); child.wait()"
    pids: list[int] = []

    def stop(line: str) -> None:
        pids.append(int(line))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ci.steps.logged([sys.executable, "-c", script], on_line=stop)
    # A killed orphan is reaped by init; until then it is a zombie, which is dead as well.
    status = Path(f"/proc/{pids[0]}/stat")
    for _ in range(1000):
        if not status.exists() or status.read_text().split()[2] == "Z":
            return
        subprocess.run(["true"], check=True)
    pytest.fail("the grandchild still runs")


def test_two_installers_do_not_work_at_once(ci: SimpleNamespace, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    program = f"import sys; sys.path.insert(0, {str(ROOT / '.ci')!r}); import steps, pathlib\n"
    program += f"with steps.locked(pathlib.Path({str(lock)!r}), 'installing'): print('mine', flush=True)"
    with ci.steps.locked(lock, "installing"):
        other = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert "waiting for it" in other.stdout.readline()
    assert other.communicate(timeout=30)[0] == "mine\n"


def test_progress_is_told_in_steps(ci: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    progress = ci.steps.Progress()
    for line in ("  [1/10] a", "[3/10] b", "unrelated [9/10]", "[10/10] c", "[ 50%] make"):
        progress(line)
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["20", "40"]


def test_wheel_is_kept_apart_per_build_flags_and_cpu(ci: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    keys = {ci.llama_wheel.key()}
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_CUDA=ON")
    keys.add(ci.llama_wheel.key())
    monkeypatch.setattr(ci.llama_wheel, "cpu_identity", lambda: "another CPU")
    keys.add(ci.llama_wheel.key())
    assert len(keys) == 3


def test_wheel_is_built_once_and_a_failed_build_leaves_nothing(ci: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    commands: list[list[str]] = []

    def pip(command: list[str], **_: object) -> None:
        commands.append(command)
        folder = Path(command[command.index("--wheel-dir") + 1]) if "--wheel-dir" in command else None
        if folder is None or len(commands) < 3:
            raise ci.steps.StepError("no")
        (folder / "llama_cpp_python.whl").touch()

    monkeypatch.setattr(ci.llama_wheel, "logged", pip)
    monkeypatch.setattr(ci.llama_wheel, "require_compilers", lambda: None)
    with pytest.raises(ci.steps.StepError):
        ci.llama_wheel.wheel()
    wheels = ci.llama_wheel.CACHE / "wheels"
    assert [path.name for path in wheels.iterdir() if path.is_dir()] == []
    assert ci.llama_wheel.wheel() == ci.llama_wheel.wheel()
    assert [command[3] for command in commands] == ["download", "wheel", "download", "wheel"]


def test_a_missing_compiler_is_named_with_the_command_that_brings_it(
    ci: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ci.system.shutil, "which", lambda command: "/usr/bin/gcc" if command == "gcc" else None)
    with pytest.raises(ci.steps.StepError, match=r"(?s)missing: g\+\+ cmake.*apt-get install -y g\+\+ cmake"):
        ci.system.require_compilers()


def test_an_unsupported_python_is_refused_by_name(ci: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ci.bootstrap, "SUPPORTED", ((3, 99),))
    with pytest.raises(ci.steps.StepError, match=r"3\.11, 3\.12 and 3\.13"):
        ci.bootstrap.use_supported_python()


def test_an_environment_is_kept_only_where_it_was_made(
    ci: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place, moved = tmp_path / "here", tmp_path / "there"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True, timeout=60)
    kept = {}
    for folder in (place, moved):
        if folder == moved:
            place.rename(moved)
        monkeypatch.setattr(ci.bootstrap, "VENV", folder)
        monkeypatch.setattr(ci.bootstrap, "PYTHON", folder / "bin" / "python")
        kept[folder.name] = ci.bootstrap.made_here()
    assert kept == {"here": True, "there": False}
