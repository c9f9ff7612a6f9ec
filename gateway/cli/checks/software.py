"""Python, the packages of the gateway and its engines, and how llama.cpp was built.

llama.cpp is loaded in a child process: it is large, and a broken build may crash whoever loads it.
"""

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

from gateway.cli.checks.finding import Finding

_PYTHON_MIN, _PYTHON_MAX = (3, 11), (3, 13)
_BASE = ("litestar", "msgspec", "uvicorn", "uvloop", "httptools", "httpx", "prometheus-client")
_EDGE = ("llama-cpp-python", "llguidance", "jinja2", "numpy", "psutil")
_ENGINE = ("torch", "numba", "safetensors", "tokenizers", "sentencepiece", "llguidance", "jinja2", "numpy", "psutil")
_SAFE_JINJA = (3, 1, 6)
_LOAD_TIMEOUT_S = 60
_PROBE = "import llama_cpp; print(llama_cpp.llama_print_system_info().decode())"


def check_python() -> Finding:
    """Is this Python one that Baton is tested with?"""
    current = sys.version_info[:2]
    text = sys.version.split()[0]
    if current < _PYTHON_MIN:
        return Finding("fail", "python", text, "use Python 3.11 to 3.13")
    if current > _PYTHON_MAX:
        return Finding("warn", "python", text, "not tested: use Python 3.11 to 3.13")
    return Finding("ok", "python", text)


def check_packages() -> list[Finding]:
    """Are the packages there that the gateway and its engines need?"""
    base, missing_base = _versions(_BASE)
    edge, missing_edge = _versions(_EDGE)
    findings = [Finding("ok", "gateway packages", base)]
    if missing_base:
        findings = [Finding("fail", "gateway packages", f"missing: {missing_base}", "pip install baton-llm")]
    if missing_edge:
        findings.append(Finding("warn", "edge packages", f"missing: {missing_edge}", "pip install 'baton-llm[edge]'"))
    elif tuple(int(part) for part in re.findall(r"\d+", version("jinja2"))[:3]) < _SAFE_JINJA:
        fix = "pip install 'jinja2>=3.1.6': chat templates come from model files, and older sandboxes have known escapes"
        findings.append(Finding("fail", "edge packages", f"jinja2 {version('jinja2')} is too old", fix))
    else:
        findings.append(Finding("ok", "edge packages", edge))
    engine, missing = _versions(_ENGINE)
    if missing:
        # Whoever wants no torch is told nothing that looks like a fault.
        text = f"missing: {missing}; only models with engine = \"torch\" need them: pip install 'baton-llm[engine]'"
        findings.append(Finding("ok", "engine packages", text))
    else:
        findings.append(Finding("ok", "engine packages", engine))
    return findings


def check_llama_build(cpu_flags: frozenset[str]) -> Finding:
    """Does llama.cpp load, and does it use what this CPU can do?"""
    try:
        # The command is a constant and this very interpreter.
        probe = subprocess.run(
            [sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=_LOAD_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("warn", "llama.cpp", f"could not be asked: {error}")
    if probe.returncode != 0:
        reason = (probe.stderr.strip().splitlines() or [f"exit code {probe.returncode}"])[-1][:200]
        return Finding("warn", "llama.cpp", f"does not load: {reason}", "pip install 'baton-llm[edge]' (GGUF models need it)")
    built = frozenset(name.upper() for name, on in re.findall(r"(\w+) = (\d)", probe.stdout) if on == "1")
    unused = [flag.upper() for flag in ("avx2", "fma", "f16c", "avx512") if _has(cpu_flags, flag) and flag.upper() not in built]
    text = f"built with {' '.join(sorted(built)) or 'no CPU extensions'}"
    if unused:
        fix = "build it on this machine: pip install --force-reinstall --no-deps --no-binary :all: llama-cpp-python"
        return Finding("warn", "llama.cpp", f"{text}; this CPU also has {' '.join(unused)}", fix)
    return Finding("ok", "llama.cpp", text)


def _has(cpu_flags: frozenset[str], flag: str) -> bool:
    return f"{flag}f" in cpu_flags if flag == "avx512" else flag in cpu_flags


def _versions(packages: tuple[str, ...]) -> tuple[str, str]:
    found, missing = [], []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            missing.append(package)
    return ", ".join(found), ", ".join(missing)
