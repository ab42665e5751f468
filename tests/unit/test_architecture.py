"""The arrows between the folders, the purity of the core, the public names, and what each process may import.

Read from the source with ``ast``; where only running can tell what an import pulls in, a fresh interpreter is asked.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import platform_worker

PACKAGE = Path(platform_worker.__file__).resolve().parent
NAME = "platform_worker"
MODULE_LINES_MAX = 400

#: What each part may import of ours, besides itself. A part is a folder, or a module beside the folders.
#: ``wiring*`` is the composition root and the one exception: it may import everything but the command line.
ARROWS: dict[str, set[str]] = {
    "errors": set(),
    "value": set(),
    "pool": {"errors", "value"},
    "protocol": {"errors", "value"},
    "artifacts": {"errors", "value"},
    "config": {"artifacts", "errors", "value"},
    "ports": {"pool", "protocol", "artifacts", "errors", "value"},
    "jobs": {"errors", "value"},
    "building": {"config", "tasks", "artifacts", "errors", "value"},
    "tasks": {"artifacts", "config", "jobs", "errors", "value"},
    "sources": {"tasks", "jobs", "errors", "value"},
    "host": {"ports", "config", "tasks", "pool", "protocol", "artifacts", "errors", "value"},
    "supervisor": {"ports", "config", "tasks", "pool", "protocol", "artifacts", "errors", "value"},
    "guardian": {"ports", "config", "tasks", "pool", "protocol", "artifacts", "errors", "value"},
    "child": {"ports", "config", "tasks", "pool", "protocol", "artifacts", "errors", "value"},
    "doctor": {"errors", "value"},
    "cli": {"wiring", "errors", "value"},
    "testing": {"tasks", "jobs", "ports", "errors", "value"},
}

#: Modules that cross an arrow, each with its reason.
EXCEPTIONS: dict[str, tuple[set[str], str]] = {
    "child.__main__": ({"wiring"}, "a process's entry point, as thin as can be"),
    "jobs.queue": ({"artifacts"}, "Queue.open finds the store that the selected artifact generation enables"),
}

#: Folders and modules that decide: they never wait, read a clock, or touch the machine.
PURE = ("pool", "protocol", "doctor", "jobs.model", "jobs.policies", "artifacts.canonical", "errors", "value")
IMPURE_MODULES = {
    "time", "datetime", "os", "io", "socket", "select", "selectors", "signal", "subprocess", "threading",
    "multiprocessing", "asyncio", "fcntl", "ctypes", "tempfile", "shutil", "pathlib", "sqlite3", "random", "secrets",
    "logging", "structlog", "opentelemetry", "platform", "pydantic",
}  # fmt: skip
IMPURE_CALLS = {"open", "print", "input", "exec", "eval"}

#: Everything that is public, as the documentation lists it.
PUBLIC = {
    "Handlers", "Job", "JobCancelled", "JobContext", "JobFailed", "JobTimeout", "NewJob", "Queue", "Reject", "Retry",
    "SourceContext", "SourceExhausted", "SourceSetup", "Task", "TaskSource", "TaskSourceFactory", "WorkerIdentity",
    "WorkerAlreadyRunningError", "WorkerBuildError", "WorkerCommunicationError", "WorkerError", "WorkerForkError",
    "WorkerLifecycleError", "WorkerNotRunningError", "WorkerQueueError", "WorkerStartError", "WorkerUsageError",
    "task",
}  # fmt: skip

MODULES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    """The dotted name below the package; the package itself is empty."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(name: str) -> str:
    """The part that a module belongs to; ``wiring_guardian`` is of ``wiring``, ``ports_processes`` of ``ports``."""
    return name.partition(".")[0].partition("_")[0]


def imports(path: Path, *, lazily: bool = True) -> Iterator[tuple[int, str]]:
    """Line and absolute name of everything that a module imports, but for what only the type checker sees."""
    yield from _imports(ast.parse(path.read_text("utf-8")), path, lazily)


def _imports(node: ast.AST, path: Path, lazily: bool) -> Iterator[tuple[int, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            for other in child.orelse:
                yield from _imports(other, path, lazily)
        elif isinstance(child, ast.Import):
            yield from ((child.lineno, alias.name) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = child.module or ""
            if child.level:
                package = [NAME, *path.relative_to(PACKAGE).parts[:-1]]
                base = ".".join([*package[: len(package) - child.level + 1], *filter(None, [base])])
            yield child.lineno, base
            yield from ((child.lineno, f"{base}.{alias.name}") for alias in child.names)
        elif lazily or not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from _imports(child, path, lazily)


def ours(name: str) -> str | None:
    """The dotted name below the package of a module of ours, else None."""
    if name == NAME:
        return ""
    return name.removeprefix(f"{NAME}.") if name.startswith(f"{NAME}.") else None


def test_every_module_belongs_to_a_known_part() -> None:
    known = {*ARROWS, "wiring", ""}
    assert [] == [module_name(path) for path in MODULES if part_of(module_name(path)) not in known]


def test_imports_follow_the_arrows() -> None:
    """Every import of ours, lazy ones included, goes down the direction of the architecture."""
    wrong = []
    for path in MODULES:
        name = module_name(path)
        part = part_of(name)
        if part in ("", "wiring"):
            continue
        allowed = {part, *ARROWS.get(part, set()), *EXCEPTIONS.get(name, (set(), ""))[0]}
        for line, imported in imports(path):
            target = ours(imported)
            if target and part_of(target) not in allowed and part_of(target) in {*ARROWS, "wiring"}:
                wrong.append(f"{name}:{line} -> {target}")
    assert "" == "\n".join(sorted(set(wrong)))


def test_the_composition_root_imports_no_command() -> None:
    roots = [path for path in MODULES if part_of(module_name(path)) == "wiring"]
    assert [] == [
        f"{path.name}:{line}" for path in roots for line, name in imports(path) if name.startswith(f"{NAME}.cli")
    ]


def test_nothing_but_an_entry_point_reaches_a_source() -> None:
    others = [path for path in MODULES if part_of(module_name(path)) != "sources"]
    found = [
        f"{module_name(p)}:{line}" for p in others for line, name in imports(p) if name.startswith(f"{NAME}.sources")
    ]
    assert [] == found


def test_what_decides_touches_no_clock_and_no_machine() -> None:
    wrong = []
    for path in MODULES:
        name = module_name(path)
        if not any(name == pure or name.startswith(f"{pure}.") for pure in PURE):
            continue
        wrong += [f"{name}:{line} {m}" for line, m in imports(path) if m.split(".")[0] in IMPURE_MODULES]
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
                wrong.append(f"{name}:{node.lineno} {node.func.id}()")
    assert "" == "\n".join(sorted(set(wrong)))


def test_public_names_are_the_documented_ones() -> None:
    assert set(platform_worker.__all__) == PUBLIC
    assert sorted(PUBLIC) == dir(platform_worker)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_each_public_name_is_there(name: str) -> None:
    assert getattr(platform_worker, name).__name__ == name


def test_modules_are_short() -> None:
    lengths = {module_name(path): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    assert {} == {name: lines for name, lines in lengths.items() if lines > MODULE_LINES_MAX}


def loaded(statement: str, *flags: str) -> set[str]:
    """The modules that a fresh interpreter has after ``statement`` and had not before."""
    code = (
        "import sys; before = set(sys.modules); "
        f"sys.path.insert(0, {str(PACKAGE.parent)!r}); {statement}; "
        "print('\\n'.join(set(sys.modules) - before))"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COV"))}
    command = [sys.executable, *flags, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=60)
    return set(done.stdout.split())


def test_importing_the_package_imports_nothing_else() -> None:
    assert {NAME, "__future__"} == loaded(f"import {NAME}", "-I", "-S")


def reachable(start: str) -> dict[str, set[str]]:
    """Every module of ours that importing ``start`` can reach, lazy imports included, with what it imports."""
    paths = {module_name(path): path for path in MODULES}
    graph: dict[str, set[str]] = {}
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name in graph or name not in paths:
            continue
        graph[name] = {imported for _, imported in imports(paths[name])}
        waiting += [target for imported in graph[name] if (target := ours(imported))]
        waiting += [".".join(name.split(".")[:n]) for n in range(1, name.count(".") + 1)]
    return graph


def test_the_guardian_imports_the_standard_library_alone() -> None:
    """Read from the source, what a function imports when it is called included."""
    graph = reachable("wiring_guardian")
    assert len(graph) > 3
    foreign = {
        (name, m)
        for name, found in graph.items()
        for m in found
        if m.split(".")[0] not in {*sys.stdlib_module_names, NAME}
    }
    assert set() == foreign


#: Costs more than the guardian's whole start, or has no business in it.
HEAVY = {
    "asyncio", "typing", "inspect", "dataclasses", "pydantic", "structlog", "opentelemetry", "argparse", "logging",
    "pathlib", "sqlite3", "multiprocessing", "concurrent",
}  # fmt: skip


def test_the_guardian_starts_without_site_packages_and_without_heavy_modules() -> None:
    found = loaded(f"import {NAME}.wiring_guardian", "-I", "-S")
    assert set() == found & HEAVY
    assert set() == {name for name in found if name.split(".")[0] not in {*sys.stdlib_module_names, NAME}}


def test_the_health_probe_imports_a_handful(tmp_path: Path) -> None:
    """A probe runs every few seconds on every host: from the console script to its answer it loads little."""
    code = (
        f"sys.argv = ['worker', '--root', {str(tmp_path)!r}, 'health']\n"
        f"from {NAME}.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    )
    found = loaded(f"exec({code!r})", "-I")
    assert f"{NAME}.cli" in found
    assert set() == found & {*HEAVY, "subprocess", "tempfile", "random", "threading"}
    assert len(found) <= 40, sorted(found)
