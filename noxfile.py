"""The one gate: `nox` says whether the tree may land; `nox -s demo` shows a model answering.

The sessions of the gate share one environment (`.nox/dev`), so that torch is installed once; it is
made by whichever session runs first, and made again when what it depends on has changed. A second
one (`.nox/plugins`) lies over it and holds the suite and the simulated device, built from C++ and
installed as a vendor's wheel is: the core's own tests see no plugin.

Environment variables:
    NOX_TORCH: The torch requirement to install; `torch==2.13.0` unless set. The CPU build is
        enough for everything here. Where pip's index offers only a larger one, point
        `PIP_EXTRA_INDEX_URL` at PyTorch's CPU index: the local version (`+cpu`) found there wins.
    NOX_DEV_PYTHON: An interpreter that has everything but plugins; nothing is installed then.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nox
import nox.project

nox.needs_version = ">=2024.10.9"
nox.options.sessions = ["lint", "types", "imports", "tests", "sim", "conformance", "mutants-fast"]
nox.options.default_venv_backend = "virtualenv"  # and pip: it alone honours the machine's torch

ROOT = Path(__file__).parent
CORE = ROOT / "core"
SIM = ROOT / "plugins" / "reference-sim"
CONFORMANCE = ROOT / "conformance"
PACKAGES = (CORE, SIM, CONFORMANCE)
PYPROJECT = CORE / "pyproject.toml"
SHARED = ROOT / ".nox" / "dev"
PLUGINS = ROOT / ".nox" / "plugins"
TORCH = os.environ.get("NOX_TORCH", "torch==2.13.0")
# pytest workers and small models: one thread each is faster than two that wait for one another.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
DEMO_PROMPT = "What is the capital of France, and what is it known for?"


def _projects() -> list[dict[str, Any]]:
    return [nox.project.load_toml(package / "pyproject.toml") for package in PACKAGES]


def _requirements() -> list[str]:
    """What checks need beside the packages: their ``dev`` groups, and what the suite runs on."""
    wanted = {line for one in _projects() for line in nox.project.dependency_groups(one, "dev")}
    suite = nox.project.load_toml(CONFORMANCE / "pyproject.toml")["project"]["dependencies"]
    return sorted(wanted | {line for line in suite if not line.startswith(("dougong", "torch"))})


def _fingerprint() -> str:
    """Changes when the shared environment must be made anew."""
    projects = [project["project"] for project in _projects()]
    wanted = [sys.version, TORCH, repr(projects), *_requirements(), str(CORE)]
    return hashlib.sha256("\n".join(wanted).encode()).hexdigest()


def _dev(session: nox.Session) -> str:
    """Python of the shared environment, with the core installed editable."""
    if given := os.environ.get("NOX_DEV_PYTHON"):
        return given
    stamp = SHARED / "fingerprint"
    python = str(SHARED / "bin" / "python")
    pip = (python, "-m", "pip", "install", "--quiet")
    if not stamp.exists() or stamp.read_text() != _fingerprint():
        session.run(sys.executable, "-m", "virtualenv", "--clear", "-q", str(SHARED), external=True)
        session.run(*pip, TORCH, external=True)
        session.run(*pip, TORCH, "-e", str(CORE), *_requirements(), external=True)
        stamp.write_text(_fingerprint())
    return python


def _sim_sources() -> str:
    """Changes when the simulated device and its plugin must be built anew."""
    tracked = _git("ls-files", "--cached", "--others", "--exclude-standard", str(SIM)).splitlines()
    sources = sorted(ROOT / name for name in tracked if "/tests/" not in name)
    present = [path for path in sources if path.is_file()]
    return hashlib.sha256(b"".join(path.read_bytes() for path in present)).hexdigest()


def _with_plugins(session: nox.Session) -> str:
    """Python of the environment over the shared one: the suite editable, the plugin as a wheel."""
    below = _dev(session)
    stamp, python = PLUGINS / "fingerprint", str(PLUGINS / "bin" / "python")
    wanted = f"{below} {_fingerprint()}"
    if not stamp.exists() or stamp.read_text() != wanted:
        session.run(below, "-m", "venv", "--clear", "--without-pip", str(PLUGINS), external=True)
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        under, over = (
            subprocess.run([one, "-c", ask], capture_output=True, text=True, check=True).stdout
            for one in (below, python)
        )
        link = f"import site; site.addsitedir({under.strip()!r})\n"
        (Path(over.strip()) / "under.pth").write_text(link)
        _pip(session, "--no-deps", "-e", str(CONFORMANCE))
        stamp.write_text(wanted)
    built, sources = PLUGINS / "sim-fingerprint", _sim_sources()
    if not built.exists() or built.read_text() != sources:
        wheels = PLUGINS / "wheels"
        shutil.rmtree(wheels, ignore_errors=True)
        pip_wheel = ("pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps")
        session.run(below, "-m", *pip_wheel, "-w", str(wheels), str(SIM), external=True)
        _pip(session, "--no-deps", "--force-reinstall", *map(str, wheels.glob("*.whl")))
        built.write_text(sources)
    return python


def _pip(session: nox.Session, *args: str) -> None:
    """Install into the environment over the shared one, which has no pip of its own."""
    over = ("--python", str(PLUGINS / "bin" / "python"))
    session.run(_dev(session), "-m", "pip", *over, "install", "--quiet", *args, external=True)


def _run(session: nox.Session, module: str, *args: str, env: dict[str, str] | None = None) -> None:
    session.run(_dev(session), "-m", module, *args, env=env, external=True)


def _run_with_plugins(session: nox.Session, module: str, *args: str) -> None:
    python = _with_plugins(session)
    session.run(python, "-m", module, *args, env=ONE_THREAD, external=True)


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Ruff: rules and format. `nox -s lint -- --fix` mends what can be mended."""
    _run(session, "ruff", "check", *session.posargs, ".")
    fixing = "--fix" in session.posargs
    _run(session, "ruff", "format", *([] if fixing else ["--check"]), ".")


@nox.session(venv_backend="none")
def types(session: nox.Session) -> None:
    """Run mypy --strict over every package, their tests, the benchmarks and this file.

    One run per package: each has tests of its own, in folders of the same names.
    """
    core = ("core/src", "core/tests", "benchmarks", "noxfile.py")
    _mypy(session, CORE, *core)
    for package in (SIM, CONFORMANCE):
        parts = (package / part for part in ("src", "tests", "tools"))
        _mypy(session, package, *(str(part) for part in parts if part.is_dir()))


def _mypy(session: nox.Session, package: Path, *places: str) -> None:
    path = os.pathsep.join(str(part) for part in (package / "src", package))
    config = ("--config-file", str(PYPROJECT))
    _run(session, "mypy", *config, *places, env={"MYPYPATH": path})


@nox.session(venv_backend="none")
def imports(session: nox.Session) -> None:
    """Check who imports whom, by core/tooling/importlinter.toml and beside it."""
    python = Path(_dev(session))
    cache = ROOT / ".nox" / "import_linter_cache"
    path = os.pathsep.join(str(package / "src") for package in PACKAGES)
    for rules in sorted((CORE / "tooling").glob("importlinter*.toml")):
        session.run(
            str(python.with_name("lint-imports")),
            *("--no-logo", "--cache-dir", str(cache), str(rules)),
            env={"PYTHONPATH": path},
            external=True,
        )


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """Run all tests in two processes; arguments go to pytest: `nox -s tests -- -k scheduler`."""
    with session.chdir(CORE):
        together = ("-n", "2", "--dist", "loadfile")
        _run(session, "pytest", "--durations=10", *together, *session.posargs, env=ONE_THREAD)


@nox.session(venv_backend="none")
def sim(session: nox.Session) -> None:
    """Run the tests of the simulated device and of its plugin."""
    _tests_of(session, SIM)


@nox.session(venv_backend="none")
def conformance(session: nox.Session) -> None:
    """Run the tests of the conformance suite; `extra` has the slow ones."""
    _tests_of(session, CONFORMANCE, "-m", "not extra and not gate")


def _tests_of(session: nox.Session, package: Path, *args: str) -> None:
    chosen = args or ("-m", "not extra")
    together = ("-n", "2", "--dist", "loadfile", "--durations=10")
    with session.chdir(package):
        _run_with_plugins(session, "pytest", *together, *chosen, *session.posargs)


@nox.session(name="mutants-fast", venv_backend="none")
def mutants_fast(session: nox.Session) -> None:
    """Every broken plugin against the check that must reject it, every legal one accepted."""
    with session.chdir(CONFORMANCE):
        gate = ("tests/unit/selftest/test_gate.py", "-m", "gate", "-q")
        _run_with_plugins(session, "pytest", *gate, *session.posargs)


@nox.session(reuse_venv=True)
def demo(session: nox.Session) -> None:
    """Install the core as a newcomer has it and let a real model answer."""
    session.install("--quiet", TORCH)
    session.install("--quiet", TORCH, str(CORE))
    asked = session.posargs or ["--chat", DEMO_PROMPT]
    session.run("dougong", "generate", "--model", "demo", *asked)


@nox.session(venv_backend="none")
def extra(session: nox.Session) -> None:
    """Run what takes minutes: wheels in empty environments, the slow tests, processes that die."""
    for name in ("wheels", "slow", "selftest"):
        session.notify(name)


@nox.session(reuse_venv=True, default=False)
def wheels(session: nox.Session) -> None:
    """Build every wheel, install them in an environment without the source, and use them there."""
    built = Path(session.create_tmp()) / "dist"
    shutil.rmtree(built, ignore_errors=True)
    tools = ("build", "setuptools>=80", "wheel", "pytest>=9.2,<10", "pytest-timeout")
    session.install("--quiet", *tools, TORCH)
    for package in (CORE, CONFORMANCE):
        session.run(
            *("python", "-m", "build", "--wheel", "--outdir", str(built), str(package)), silent=True
        )
    pip_wheel = ("pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps")
    session.run("python", "-m", *pip_wheel, "--wheel-dir", str(built), str(SIM))
    names = sorted(str(path) for path in built.glob("*.whl"))
    session.install("--quiet", "--force-reinstall", "--no-deps", *names)
    session.install("--quiet", TORCH, *names)
    for package in (CORE, SIM, CONFORMANCE):
        if not (package / "tests" / "wheel").is_dir():
            continue
        copied = built.parent / f"from_the_wheel_{package.name}"
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(package / "tests" / "wheel", copied)
        with session.chdir(copied):
            session.run(
                *("python", "-m", "pytest", "-ra", "-W", "error", "--rootdir=."), env=ONE_THREAD
            )


@nox.session(venv_backend="none", default=False)
def slow(session: nox.Session) -> None:
    """Run the tests marked ``extra``: tampering, browsers, long runs."""
    for package in (SIM, CONFORMANCE):
        _tests_of(session, package, "-m", "extra")


@nox.session(venv_backend="none", default=False)
def selftest(session: nox.Session) -> None:
    """Every mutant against its check, those that crash and hang among them; prints both numbers."""
    _run_with_plugins(session, "dougong_conformance", "selftest", *session.posargs)


@nox.session(venv_backend="none", default=False)
def mutants(session: nox.Session) -> None:
    """Every broken plugin against every check, most of an hour; written to ``.nox/mutants``."""
    out = ROOT / ".nox" / "mutants"
    command = ("selftest", "--matrix", "--out", str(out))
    _run_with_plugins(session, "dougong_conformance", *command, *session.posargs)


QUESTIONS = {
    "Does the core judge devices anywhere?": (CORE, "tests/architecture/test_vendor_neutral.py"),
    "Can every capability that the core uses be asked?": (
        CORE,
        "tests/engine/test_asking_devices.py",
    ),
    "Does every unsupported combination fail at the start, with a reason?": (
        CORE,
        "tests/engine/test_unsupported_combinations.py",
    ),
}


@nox.session(venv_backend="none", default=False)
def decoupling(session: nox.Session) -> None:
    """Ask the five questions of decoupling; each has a check of its own."""
    for question, (package, test) in QUESTIONS.items():
        session.log(question)
        with session.chdir(package):
            _run(session, "pytest", "-q", test, env=ONE_THREAD)
    session.log("Does it run well, and not only run?")
    out = ROOT / ".nox" / "performance"
    command = ("run", "--plugin", "sim", "--profile", "performance", "--out", str(out))
    _run_with_plugins(session, "dougong_conformance", *command)
    session.log("Does each wheel build, install alone and pass its suite? See the next session.")
    session.notify("wheels")


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
    """Print what each package's next release would say; `-- --build PACKAGE VERSION` writes it.

    PACKAGE is its folder: ``core``, ``conformance``, ``plugins/reference-sim``.
    """
    match session.posargs:
        case ["--build", folder, version]:
            place = _towncrier_place(ROOT / folder)
            _run(session, "towncrier", "build", "--yes", *place, "--version", version)
        case _:
            for package in PACKAGES:
                place = _towncrier_place(package)
                _run(session, "towncrier", "build", "--draft", *place, "--version", "next")


def _towncrier_place(package: Path) -> tuple[str, ...]:
    return ("--config", str(package / "towncrier.toml"), "--dir", str(package))


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
