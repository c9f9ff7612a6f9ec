"""The habits of this code base, where a program can check them: sizes, names, docstrings, imports, quiet modules.

Every test names all offenders at once.
"""

import ast
import io
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"gateway", "backends", "edge", "kernels", "tests", "compose", ".ci", "benchmarks", "docs"}

# Lines that hold code: comments, docstrings and blank lines are free, so nobody gains by leaving them out.
FILE_LINES, FUNCTION_LINES, KERNEL_LINES, TEST_FILE_LINES = 300, 40, 120, 400
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common_utils", "misc"}


T = TypeVar("T", bound=ast.AST)


class Module:
    """One source file: its name relative to the repository, its tree and the lines that hold code."""

    def __init__(self, path: Path) -> None:
        source = path.read_text("utf-8")
        self.path, self.name = path, str(path.relative_to(ROOT))
        self.tree = ast.parse(source)
        self.code_lines = _token_lines(source) - {line for text in self._standing_strings() for line in _span(text)}

    def nodes(self, *kinds: type[T]) -> Iterator[T]:
        return (node for node in ast.walk(self.tree) if isinstance(node, kinds))

    def _standing_strings(self) -> Iterator[ast.Expr]:
        for node in self.nodes(ast.Expr):
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                yield node


def _token_lines(source: str) -> set[int]:
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {line for token in tokens if token.type not in silent for line in range(token.start[0], token.end[0] + 1)}


def _span(node: ast.stmt) -> range:
    assert node.end_lineno is not None
    return range(node.lineno, node.end_lineno + 1)


def _modules(*folders: str) -> list[Module]:
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [Module(path) for path in files if "node_modules" not in path.parts]


@pytest.fixture(scope="module")
def shipped() -> list[Module]:
    return _modules("gateway", "backends", "edge", "kernels")


@pytest.fixture(scope="module")
def ours(shipped: list[Module]) -> list[Module]:
    return [*shipped, *_modules(".ci", "benchmarks")]


def test_a_file_holds_one_idea(ours: list[Module]) -> None:
    assert {module.name: len(module.code_lines) for module in ours if len(module.code_lines) > FILE_LINES} == {}


def test_a_test_file_is_read_in_one_sitting() -> None:
    tests = _modules("tests")
    assert {module.name: len(module.code_lines) for module in tests if len(module.code_lines) > TEST_FILE_LINES} == {}


def test_functions_fit_on_a_screen(ours: list[Module]) -> None:
    sizes = {
        f"{module.name}:{function.name}": len(module.code_lines & set(_span(function)))
        for module in ours
        for function in [*module.nodes(ast.FunctionDef), *module.nodes(ast.AsyncFunctionDef)]
    }
    # Kernels for GPUs, and what launches them, name dozens of arguments, one on a line.
    limits = {name: KERNEL_LINES if name.startswith("kernels/gpu/") else FUNCTION_LINES for name in sizes}
    assert {name: size for name, size in sizes.items() if size > limits[name]} == {}


def test_every_module_says_what_it_is(ours: list[Module]) -> None:
    assert [module.name for module in ours if not ast.get_docstring(module.tree)] == []


def test_every_module_is_named_after_its_idea(ours: list[Module]) -> None:
    assert [module.name for module in ours if module.path.stem in EMPTY_NAMES] == []


def test_package_files_hold_only_their_docstring(shipped: list[Module]) -> None:
    packages = [module for module in shipped if module.path.name == "__init__.py"]
    # gateway/cli exports main, which pyproject.toml names as the command.
    assert [module.name for module in packages if len(module.tree.body) != 1] == ["gateway/cli/__init__.py"]


def test_importing_a_module_does_nothing(shipped: list[Module]) -> None:
    assert [f"{module.name}:{node.lineno}" for module in shipped for node in module.tree.body if _acts(node)] == []


def _acts(node: ast.stmt) -> bool:
    """Say whether a statement at the top of a module does more than define something."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return False
        case ast.Assign() | ast.AnnAssign():
            return any(isinstance(child, ast.Attribute) and child.attr in {"environ", "getenv"} for child in ast.walk(node))
        case ast.Expr():
            return not isinstance(node.value, ast.Constant)
        case ast.If():
            return ast.unparse(node.test) not in {"TYPE_CHECKING", "__name__ == '__main__'"}
        case _:
            return True


def test_imports_are_absolute(ours: list[Module]) -> None:
    assert [f"{module.name}:{node.lineno}" for module in ours for node in module.nodes(ast.ImportFrom) if node.level] == []


def test_json_from_outside_is_read_by_msgspec(shipped: list[Module]) -> None:
    """`json.loads` takes NaN and lone surrogates, and fails by `RecursionError`."""
    uses = [
        f"{module.name}:{node.lineno}" for module in shipped for node in module.nodes(ast.Attribute) if node.attr == "loads"
    ]
    assert [use for use in uses if "tomllib" not in _line(use)] == []


def _line(place: str) -> str:
    name, _, number = place.rpartition(":")
    return (ROOT / name).read_text("utf-8").splitlines()[int(number) - 1]


def test_import_contracts_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout


def test_top_level_folders_are_the_agreed_ones() -> None:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    assert {line.partition("/")[0] for line in done.stdout.splitlines() if "/" in line} <= FOLDERS
