"""The one gate: `nox` says whether the tree may land; `nox -s demo` shows a model answering.

The sessions of the gate share one environment (`.nox/dev`), so that torch is installed once; it is
made by whichever session runs first, and made again when what it depends on has changed. A second
one (`.nox/plugins`) lies over it and holds the suite and the simulated device, built from C++ and
installed as a vendor's wheel is: the core's own tests see no plugin. A third one (`.nox/vendors`)
lies over that and holds the vendors' plugins, which the suite's own tests do not see.

Environment variables:
    NOX_TORCH: The torch requirement to install; `torch==2.13.0` unless set. The CPU build is
        enough for everything here. Where pip's index offers only a larger one, point
        `PIP_EXTRA_INDEX_URL` at PyTorch's CPU index: the local version (`+cpu`) found there wins.
    NOX_CHROMIUM: The browser that shows the status page; the installed Chromium unless set.
    NOX_DEV_PYTHON: An interpreter that has everything but plugins; nothing is installed then.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import nox
import nox.project

nox.needs_version = ">=2024.10.9"
nox.options.sessions = [
    *("lint", "types", "imports", "tests", "sim", "conformance", "vendors", "mutants-fast")
]
nox.options.default_venv_backend = "virtualenv"  # and pip: it alone honours the machine's torch

ROOT = Path(__file__).parent
CORE = ROOT / "core"
SIM = ROOT / "plugins" / "reference-sim"
CONFORMANCE = ROOT / "conformance"
PACKAGES = (CORE, SIM, CONFORMANCE)
TRITON_KERNELS = ROOT / "plugins" / "triton-kernels"
ASCEND, XPU, ROCM = (ROOT / "plugins" / f"vendor-{name}" for name in ("ascend", "xpu", "rocm"))
VENDORS = (TRITON_KERNELS, ASCEND, XPU, ROCM)
LANES = {"ascend": ASCEND, "xpu": XPU, "ipex": XPU, "rocm": ROCM, "triton": TRITON_KERNELS}
PYPROJECT = CORE / "pyproject.toml"
SHARED = ROOT / ".nox" / "dev"
PLUGINS = ROOT / ".nox" / "plugins"
OVER_PLUGINS = ROOT / ".nox" / "vendors"
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
        _lay_over(session, below, PLUGINS)
        _pip(session, PLUGINS, "--no-deps", "-e", str(CONFORMANCE))
        stamp.write_text(wanted)
    built, sources = PLUGINS / "sim-fingerprint", _sim_sources()
    if not built.exists() or built.read_text() != sources:
        wheels = PLUGINS / "wheels"
        shutil.rmtree(wheels, ignore_errors=True)
        pip_wheel = ("pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps")
        session.run(below, "-m", *pip_wheel, "-w", str(wheels), str(SIM), external=True)
        _pip(session, PLUGINS, "--no-deps", "--force-reinstall", *map(str, wheels.glob("*.whl")))
        built.write_text(sources)
    return python


def _with_vendors(session: nox.Session) -> str:
    """Python of one more environment over that one, with every vendor's plugin editable.

    They are kept apart: the tests of the suite and of the simulated device see no vendor's plugin.
    """
    below = _with_plugins(session)
    stamp, python = OVER_PLUGINS / "fingerprint", str(OVER_PLUGINS / "bin" / "python")
    described = (PLUGINS / "fingerprint", *(one / "pyproject.toml" for one in VENDORS))
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in described)).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        _lay_over(session, below, OVER_PLUGINS)
        editable = (part for one in VENDORS for part in ("-e", str(one)))
        _pip(session, OVER_PLUGINS, "--no-deps", "--no-build-isolation", *editable)
        stamp.write_text(wanted)
    return python


def _lay_over(session: nox.Session, below: str, place: Path) -> None:
    """Make an environment without pip that sees everything of the one of another Python."""
    session.run(below, "-m", "venv", "--clear", "--without-pip", str(place), external=True)
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    under, over = (
        subprocess.run([one, "-c", ask], capture_output=True, text=True, check=True).stdout
        for one in (below, str(place / "bin" / "python"))
    )
    link = f"import site; site.addsitedir({under.strip()!r})\n"
    (Path(over.strip()) / "under.pth").write_text(link)


def _pip(session: nox.Session, place: Path, *args: str) -> None:
    """Install into an environment over another one, which has no pip of its own."""
    over = ("--python", str(place / "bin" / "python"))
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
    for package in (SIM, CONFORMANCE, *VENDORS):
        parts = (package / part for part in ("src", "tests", "tools"))
        _mypy(session, package, *(str(part) for part in parts if part.is_dir()))


def _mypy(session: nox.Session, package: Path, *places: str) -> None:
    beside = (SIM, CONFORMANCE, TRITON_KERNELS)
    used = (one / "src" for one in beside) if package in VENDORS else ()
    path = os.pathsep.join(str(part) for part in (package / "src", package, *used))
    config = ("--config-file", str(PYPROJECT))
    _run(session, "mypy", *config, *places, env={"MYPYPATH": path})


@nox.session(venv_backend="none")
def imports(session: nox.Session) -> None:
    """Check who imports whom, by core/tooling/importlinter.toml and beside it."""
    python = Path(_dev(session))
    cache = ROOT / ".nox" / "import_linter_cache"
    path = os.pathsep.join(str(package / "src") for package in (*PACKAGES, *VENDORS))
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
        chosen = ("-m", "not extra", "--durations=10", *together, *session.posargs)
        _run(session, "pytest", *chosen, env=ONE_THREAD)


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


@nox.session(venv_backend="none")
def vendors(session: nox.Session) -> None:
    """Run the vendors' tests that need nothing of a vendor; `lane_...` has the others.

    Arguments go to pytest, and a package's folder among them chooses it:
    `nox -s vendors -- plugins/vendor-xpu -k attention`.
    """
    known = {str(one.relative_to(ROOT)): one for one in VENDORS}
    chosen = [known[arg.rstrip("/")] for arg in session.posargs if arg.rstrip("/") in known]
    rest = [arg for arg in session.posargs if arg.rstrip("/") not in known]
    for package in chosen or VENDORS:
        _tests_of_vendor(session, package, "not lane and not extra", *rest)


def _tests_of_vendor(session: nox.Session, package: Path, marked: str, *args: str) -> None:
    python = _with_vendors(session)
    together = ("-n", "2", "--dist", "loadfile", "--durations=5")
    lanes = nox.project.load_toml(package / "lane.toml")["lane"].values()
    left_out = [f"--ignore={place}" for lane in lanes for place in lane["tests"]]
    command = ("-m", "pytest", *together, "-m", marked, *left_out, *args)
    codes = (0, NO_TESTS) if marked.startswith("extra") else (0,)
    with session.chdir(package):
        session.run(python, *command, env=ONE_THREAD, external=True, success_codes=codes)


NO_TESTS = 5
"""Exit code of pytest where nothing fits: not every vendor has slow tests."""


def _lane(session: nox.Session, name: str) -> None:
    """Run a vendor's tests beside its own wheels, and write down what they showed.

    The package's ``lane.toml`` says what is installed and run; see ``docs/ladder.md``. A lane that
    cannot have a vendor's wheel is skipped, and its report says so.
    """
    package, out = LANES[name], ROOT / ".nox" / "lanes" / name
    lane = nox.project.load_toml(package / "lane.toml")["lane"][name]
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for step in lane["install"]:
        _lane_install(session, name, step, out)
    env = {**ONE_THREAD, "LANE_OUT": str(out)}
    for variable, value in lane.get("environment", {}).items():
        env[variable] = value.format(out=out, env=session.virtualenv.location, package=package)
    if "prepare" in lane:
        code = _lane_run(session, package, env, lane["prepare"])
        if code == LANE_MISSING:
            _lane_skip(session, name, f"{lane['prepare']} could not have what it needs", out)
        elif code:
            session.error(f"{lane['prepare']} ended with {code}")
    tests = ("pytest", "-m", "lane", "-q", "-p", "no:cacheprovider", *lane["tests"])
    code = _lane_run(session, package, env, *tests, *session.posargs)
    if _lane_report(session, name, out, "--tests", "failed" if code else "passed"):
        session.error(f"lane {name} failed; see {out / 'report.md'}")
    page = CORE / "tests" / "architecture" / "support_page.py"
    if _told(sys.executable, page, "--lane", name, "--report", out / "report.json"):
        session.error(f"lane {name}: docs/support.md says more than the lane showed")


LANE_MISSING = 75
"""Exit code of a lane's preparation that could not have what it needs (EX_TEMPFAIL)."""


def _lane_install(session: nox.Session, name: str, step: dict[str, Any], out: Path) -> None:
    ours = {"core": CORE, "conformance": CONFORMANCE, "triton_kernels": TRITON_KERNELS}
    packages: list[str] = []
    for one in step["packages"]:
        place = {**ours, "package": LANES[name]}.get(one.strip("{}"))
        if one == "{torch}":
            packages.append(TORCH)
        elif one == "{sim}":
            _with_plugins(session)
            packages += map(str, (PLUGINS / "wheels").glob("*.whl"))
        elif one == "{tests}":
            packages += LANE_TOOLS
        else:
            packages += ("-e", str(place)) if place else (one,)
    try:
        session.install("--quiet", *step.get("args", ()), *packages)
    except nox.command.CommandFailed:
        if not step.get("from_vendor"):
            raise
        _lane_skip(session, name, f"pip could not have {' '.join(packages)}", out)


LANE_TOOLS = ("pytest>=9.2,<10", "pytest-timeout", "pytest-asyncio", "numpy")


def _lane_run(session: nox.Session, package: Path, env: dict[str, str], *command: str) -> int:
    """Run a module with the lane's Python in the package's folder; returns its exit code."""
    python = str(Path(session.bin) / "python")
    session.log(f"{package.relative_to(ROOT)}: python -m {' '.join(command)}")
    path = {"PATH": os.pathsep.join((session.bin, os.environ["PATH"]))}
    done = subprocess.run(
        [python, "-m", *command], cwd=package, env={**os.environ, **path, **env}, check=False
    )
    return done.returncode


def _told(*command: str | Path) -> int:
    """Run something that prints; returns its exit code."""
    return subprocess.run([str(one) for one in command], check=False).returncode


def _lane_report(session: nox.Session, name: str, out: Path, *args: str) -> int:
    distribution = nox.project.load_toml(LANES[name] / "pyproject.toml")["project"]["name"]
    module = "dougong_conformance.ladder.lane_report"
    command = (module, str(out), "--lane", name, "--distribution", distribution, *args)
    python = _with_plugins(session)
    return _told(python, "-m", *command)


def _lane_skip(session: nox.Session, name: str, reason: str, out: Path) -> NoReturn:
    """Say loudly that nothing was shown."""
    _lane_report(session, name, out, "--skipped", reason)
    line = "!" * 78
    for text in (line, f"LANE {name.upper()} DID NOT RUN: {reason}", "Nothing was shown.", line):
        session.warn(text)
    session.skip(f"lane {name} did not run: {reason}")


@nox.session(reuse_venv=True, default=False)
def lane_ascend(session: nox.Session) -> None:
    """Climb L1 to L3 with the published torch_npu over a double of the CL runtime."""
    _lane(session, "ascend")


@nox.session(reuse_venv=True, default=False)
def lane_xpu(session: nox.Session) -> None:
    """Load the published vllm-xpu-kernels beside CPU torch and bind to its schemas."""
    _lane(session, "xpu")


@nox.session(reuse_venv=True, default=False)
def lane_ipex(session: nox.Session) -> None:
    """Run the kernels of the CPU build of intel-extension-for-pytorch."""
    _lane(session, "ipex")


@nox.session(reuse_venv=True, default=False)
def lane_rocm(session: nox.Session) -> None:
    """Import AITER, run its fakes, compile and interpret kernels for AMD's chips."""
    _lane(session, "rocm")


@nox.session(reuse_venv=True, default=False)
def lane_triton(session: nox.Session) -> None:
    """Interpret the portable Triton kernels and compile them for every chip that can be had."""
    _lane(session, "triton")


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
    """Run what takes minutes: wheels, the slow tests, a browser, processes that die."""
    for name in ("wheels", "slow", "browser", "selftest"):
        session.notify(name)


@nox.session(reuse_venv=True, default=False)
def wheels(session: nox.Session) -> None:
    """Build every wheel, install them in an environment without the source, and use them there."""
    built = Path(session.create_tmp()) / "dist"
    shutil.rmtree(built, ignore_errors=True)
    tools = ("build", "setuptools>=80", "wheel", "pytest>=9.2,<10", "pytest-timeout")
    session.install("--quiet", *tools, TORCH)
    for package in (CORE, CONFORMANCE, *VENDORS):
        session.run(
            *("python", "-m", "build", "--wheel", "--outdir", str(built), str(package)), silent=True
        )
    pip_wheel = ("pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps")
    session.run("python", "-m", *pip_wheel, "--wheel-dir", str(built), str(SIM))
    names = sorted(str(path) for path in built.glob("*.whl"))
    session.install("--quiet", "--force-reinstall", "--no-deps", *names)
    session.install("--quiet", TORCH, *names)
    of_vendors = [name for name in names if Path(name).name.startswith(VENDOR_WHEELS)]
    session.run("python", "-m", "dougong_conformance.ladder.wheel_contents", *of_vendors)
    session.run("python", "-c", NOT_HERE)
    for package in (*PACKAGES, *VENDORS):
        if not any((package / "tests" / "wheel").glob("test_*.py")):
            continue
        copied = built.parent / f"from_the_wheel_{package.name}"
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(package / "tests" / "wheel", copied)
        with session.chdir(copied):
            session.run(
                *("python", "-m", "pytest", "-ra", "-W", "error", "--rootdir=."), env=ONE_THREAD
            )


VENDOR_WHEELS = tuple(f"dougong_{name}-" for name in ("ascend", "rocm", "xpu", "triton_kernels"))

NOT_HERE = """
import importlib, json, subprocess, sys
for name in ("dougong_ascend", "dougong_xpu", "dougong_rocm", "dougong_triton_kernels"):
    importlib.import_module(name)
told = subprocess.run(
    [sys.executable, "-m", "dougong.cli.main", "doctor", "--json", "--no-test"],
    capture_output=True, text=True, check=False,
)
plugins = json.loads(told.stdout)["plugins"]
rows = {row["name"]: row for row in plugins if row["verdict"] != "shadowed"}
for name in ("ascend", "xpu", "rocm"):
    row = rows[name]
    assert row["verdict"] == "not_here" and row["reason"], row
    print(f"{name}: {row['reason']}")
"""
"""On a machine without a vendor's device every wheel says so, and what is missing."""


@nox.session(venv_backend="none", default=False)
def slow(session: nox.Session) -> None:
    """Run the tests marked ``extra``: tampering, browsers, long runs, weights to be fetched."""
    for package in PACKAGES:
        _tests_of(session, package, "-m", "extra")
    for package in VENDORS:
        _tests_of_vendor(session, package, "extra and not lane")


@nox.session(venv_backend="none", default=False)
def browser(session: nox.Session) -> None:
    """Use the status page in Chromium: mouse, keyboard, light, dark; pictures in .nox/screens."""
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if not os.environ.get("NOX_CHROMIUM", found):
        line = "!" * 78
        how = "`apt-get install chromium`, or set NOX_CHROMIUM to the path of one."
        for text in (line, f"There is no Chromium, so the status page is untested: {how}", line):
            session.warn(text)
        session.error("the status page was not tested: there is no Chromium")
    env = {**ONE_THREAD, "NOX_SCREENS": str(ROOT / ".nox" / "screens")}
    with session.chdir(CORE):
        python = _dev(session)
        command = ("-m", "pytest", "tests/browser", *session.posargs)
        session.run(python, *command, env=env, external=True)


CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


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

    PACKAGE is its folder: ``core``, ``conformance``, ``plugins/vendor-xpu``.
    """
    match session.posargs:
        case ["--build", folder, version]:
            place = _towncrier_place(ROOT / folder)
            _run(session, "towncrier", "build", "--yes", *place, "--version", version)
        case _:
            for package in (*PACKAGES, *VENDORS):
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
