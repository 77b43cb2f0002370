"""The one gate: `nox` says whether the tree may land; `nox -s demo` shows a model answering.

lint, types, imports and tests share one environment (`.nox/dev`), so that torch is installed once;
it is made by whichever session runs first, and made again when what it depends on has changed.

Environment variables:
    NOX_TORCH: The torch requirement to install; `torch==2.13.0` unless set. The CPU build is
        enough for everything here. Where pip's index offers only a larger one, point
        `PIP_EXTRA_INDEX_URL` at PyTorch's CPU index: the local version (`+cpu`) found there wins.
    NOX_DEV_PYTHON: An interpreter that has everything already; nothing is installed then.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nox
import nox.project

nox.needs_version = ">=2024.10.9"
nox.options.sessions = ["lint", "types", "imports", "tests"]
nox.options.default_venv_backend = "virtualenv"  # and pip: it alone honours the machine's torch

ROOT = Path(__file__).parent
CORE = ROOT / "core"
PYPROJECT = CORE / "pyproject.toml"
SHARED = ROOT / ".nox" / "dev"
TORCH = os.environ.get("NOX_TORCH", "torch==2.13.0")
# pytest workers and small models: one thread each is faster than two that wait for one another.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
DEMO_PROMPT = "What is the capital of France, and what is it known for?"


def _requirements() -> list[str]:
    return sorted(nox.project.dependency_groups(nox.project.load_toml(PYPROJECT), "dev"))


def _fingerprint() -> str:
    """Changes when the shared environment must be made anew."""
    project = nox.project.load_toml(PYPROJECT)["project"]
    wanted = [sys.version, TORCH, repr(project), *_requirements(), str(CORE)]
    return hashlib.sha256("\n".join(wanted).encode()).hexdigest()


def _dev(session: nox.Session) -> str:
    """Python of the shared environment, with the core installed editable."""
    if given := os.environ.get("NOX_DEV_PYTHON"):
        return given
    stamp = SHARED / "fingerprint"
    python = str(SHARED / "bin" / "python")
    if not stamp.exists() or stamp.read_text() != _fingerprint():
        pip = (python, "-m", "pip", "install", "--quiet")
        session.run(sys.executable, "-m", "virtualenv", "--clear", "-q", str(SHARED), external=True)
        session.run(*pip, TORCH, external=True)
        session.run(*pip, TORCH, "-e", str(CORE), *_requirements(), external=True)
        stamp.write_text(_fingerprint())
    return python


def _run(session: nox.Session, module: str, *args: str, env: dict[str, str] | None = None) -> None:
    session.run(_dev(session), "-m", module, *args, env=env, external=True)


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Ruff: rules and format. `nox -s lint -- --fix` mends what can be mended."""
    _run(session, "ruff", "check", *session.posargs, ".")
    fixing = "--fix" in session.posargs
    _run(session, "ruff", "format", *([] if fixing else ["--check"]), ".")


@nox.session(venv_backend="none")
def types(session: nox.Session) -> None:
    """Run mypy --strict over the core, its tests, the benchmarks and this file."""
    places = ["core/src", "core/tests", "benchmarks", "noxfile.py"]
    _run(session, "mypy", "--config-file", str(PYPROJECT), *places)


@nox.session(venv_backend="none")
def imports(session: nox.Session) -> None:
    """Check who imports whom, by core/tooling/importlinter.toml."""
    python = Path(_dev(session))
    cache = ROOT / ".nox" / "import_linter_cache"
    rules = CORE / "tooling" / "importlinter.toml"
    with session.chdir(CORE / "src"):
        session.run(
            str(python.with_name("lint-imports")),
            *("--no-logo", "--cache-dir", str(cache), str(rules)),
            external=True,
        )


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """Run all tests in two processes; arguments go to pytest: `nox -s tests -- -k scheduler`."""
    with session.chdir(CORE):
        together = ("-n", "2", "--dist", "loadfile")
        _run(session, "pytest", "--durations=10", *together, *session.posargs, env=ONE_THREAD)


@nox.session(reuse_venv=True)
def demo(session: nox.Session) -> None:
    """Install the core as a newcomer has it and let a real model answer."""
    session.install("--quiet", TORCH)
    session.install("--quiet", TORCH, str(CORE))
    asked = session.posargs or ["--chat", DEMO_PROMPT]
    session.run("dougong", "generate", "--model", "demo", *asked)


@nox.session(reuse_venv=True)
def extra(session: nox.Session) -> None:
    """Build the core's wheel, install it in an environment without the source, and use it there."""
    built = Path(session.create_tmp()) / "dist"
    shutil.rmtree(built, ignore_errors=True)
    session.install("--quiet", "build", "pytest>=9.2,<10", "pytest-timeout", TORCH)
    session.run("python", "-m", "build", "--wheel", "--outdir", str(built), str(CORE), silent=True)
    (wheel,) = built.glob("dougong-*.whl")
    session.install("--quiet", "--force-reinstall", "--no-deps", str(wheel))
    session.install("--quiet", TORCH, str(wheel))
    copied = built.parent / "from_the_wheel"
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(CORE / "tests" / "wheel", copied)
    with session.chdir(copied):
        session.run("python", "-m", "pytest", "-ra", "-W", "error", "--rootdir=.", env=ONE_THREAD)


@nox.session(venv_backend="none", default=False)
def bench(session: nox.Session) -> None:
    """Measure throughput and latency of the demo model; arguments go to both commands."""
    dougong = str(Path(_dev(session)).with_name("dougong"))
    for kind in ("throughput", "latency"):
        session.run(dougong, "bench", kind, "--model", "demo", *session.posargs, external=True)


@nox.session(venv_backend="none", default=False)
def bench_peers(session: nox.Session) -> None:
    """Install the peers, each in its own environment, and measure beside them in one run."""
    python = _dev(session)
    for step in ("install", "prepare_model"):
        session.run(python, "-m", f"benchmarks.peers.{step}", external=True)
    session.run(python, "-m", "benchmarks.peers.run", *session.posargs, external=True)
    for other in ("first_token", "scheduler_cost", "engine_overhead"):
        session.run(python, "-m", f"benchmarks.{other}", external=True)


@nox.session(venv_backend="none", default=False)
def changelog(session: nox.Session) -> None:
    """Print what the next release's changelog would say; `-- --build VERSION` writes it."""
    place = ["--config", str(CORE / "towncrier.toml"), "--dir", str(CORE)]
    match session.posargs:
        case ["--build", version]:
            _run(session, "towncrier", "build", "--yes", *place, "--version", version)
        case _:
            _run(session, "towncrier", "build", "--draft", *place, "--version", "next")


def _git(*args: str) -> str:
    """Output of a git command; empty where there is no git, no history or no such file."""
    done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


@nox.session(venv_backend="none", default=False)
def sizes(session: nox.Session) -> None:
    """Print the ten largest source files and how they grew since a commit (HEAD~1 unless given)."""
    since = session.posargs[0] if session.posargs else "HEAD~1"
    files = _git("ls-files", "--cached", "--others", "--exclude-standard", "*.py").splitlines()
    present = [name for name in files if (ROOT / name).exists()]
    lines = {name: (ROOT / name).read_text().count("\n") for name in present}
    for name in sorted(lines, key=lambda name: -lines[name])[:10]:
        before = _git("show", f"{since}:{name}").count("\n")
        session.log(f"{lines[name]:6d} lines  {lines[name] - before:+6d}  {name}")
