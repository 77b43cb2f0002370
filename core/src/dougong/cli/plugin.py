"""``dougong plugin new``: a plugin's project, small, complete and running before it is changed."""

from __future__ import annotations

import ast
import importlib.resources
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Annotated

import importlib_metadata
import typer

from dougong import __version__
from dougong.contracts.rank_plan import NATIVE
from dougong.contracts.version import CONTRACT_VERSION
from dougong.errors import ConfigError
from dougong.platforms.entry_points import find_entry_points

app = typer.Typer(no_args_is_help=True)

_TEMPLATES = "plugin_files"
_FILES: Mapping[str, str] = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "src/$package/__init__.py": "init.py",
    "src/$package/py.typed": "",
    "src/$package/plugin.py": "plugin.py",
    "src/$package/platform.py": "platform.py",
    "src/$package/hooks.py": "hooks.py",
    "src/$package/pretend.py": "pretend.py",
    "tests/test_$word.py": "test.py",
}
"""File of a project → its template; empty: an empty file."""
_READ_BY_AUTHORS = ("plugin.py", "platform.py", "hooks.py")
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_MAX_LENGTH = 20
# Words that stand for something of the core's own beside implementation and platform names.
_TAKEN_BY_THE_CORE = {"cpu": "the core's own platform", "reference": "the core's own attention"}
_PREFIX = "dougong-"


@app.callback()
def plugin() -> None:
    """Write a plugin of your own."""


@app.command(
    epilog="The project runs at once, on a pretended device; its README says what to change."
)
def new(
    name: Annotated[
        str, typer.Argument(help="What users will type after --platform; 'acme', for instance.")
    ],
    folder: Annotated[
        Path, typer.Option(help="Where to write dougong-NAME/; made if it is missing.")
    ] = Path(),
) -> None:
    """Write the project of a wheel dougong-NAME that brings a platform and two ops of its own."""
    project = write_project(name, folder)
    num_lines, num_kernel_lines = count_lines(name)
    made = (
        f"{project}: {num_lines} lines for a platform {name!r} and an op of its own, "
        f"{num_kernel_lines} for a second op; on a pretended device until you change it."
    )
    steps = (
        f"pip install -e {project}",
        f"dougong doctor --platform {name}",
        f"dougong explain demo --platform {name}",
        f"dougong generate --platform {name} --model demo --chat 'Why is the sky blue?'",
    )
    print("\n".join((made, *(f"  {step}" for step in steps), "Then look for CHANGE in its files.")))


def write_project(name: str, folder: Path) -> Path:
    """Write the files below ``folder``; the new project's folder.

    Raises:
        ConfigError: The name will not do, is taken, or the folder is there already. Nothing was
            written.
    """
    files = render(name)
    project = folder / f"{_PREFIX}{name}"
    if problems := (*_who_has(name), *_places_taken(project)):
        raise ConfigError(f"no plugin {name!r} was written:", problems)
    try:
        for path, text in files.items():
            (project / path).parent.mkdir(parents=True, exist_ok=True)
            (project / path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{project} cannot be written: {error}. Choose another place with --folder."
        ) from error
    return project


def render(name: str) -> dict[str, str]:
    """Every file of the project of a platform, by its path within the project.

    Raises:
        ConfigError: The name will not do.
    """
    num_lines, num_kernel_lines = map(str, count_lines(name))
    words = {**_words(name), "num_lines": num_lines, "num_kernel_lines": num_kernel_lines}
    return {
        Template(path).substitute(words): _filled(template, words) if template else ""
        for path, template in _FILES.items()
    }


def count_lines(name: str) -> tuple[int, int]:
    """Lines of code an author has to understand: no imports, comments, texts, lone brackets.

    Returns:
        Those of the platform with the op it overrides, and those of the conditional kernel.
    """
    words = _words(name)
    sources = "\n".join(_filled(template, words) for template in _READ_BY_AUTHORS)
    num_lines, num_kernel_lines = map(_num_code_lines, _cut(sources, "@register_kernel("))
    return num_lines, num_kernel_lines


def _cut(text: str, mark: str) -> tuple[str, str]:
    before, _, after = text.partition(mark)
    return before, mark + after


def _filled(template: str, words: Mapping[str, str]) -> str:
    folder = importlib.resources.files("dougong.cli") / _TEMPLATES
    text = (folder / f"{template}.template").read_text(encoding="utf-8")
    return Template(text).substitute(words)


def _words(name: str) -> dict[str, str]:
    """What stands for what in the templates."""
    _check_name(name)
    word = name.replace("-", "_")
    return {
        "name": name,
        "word": word,
        "distribution": f"{_PREFIX}{name}",
        "package": f"dougong_{word}",
        "prefix": "".join(part.capitalize() for part in name.split("-")),
        "contract": f">={CONTRACT_VERSION},<{int(CONTRACT_VERSION.split('.')[0]) + 1}",
        "core": _core_requirement(__version__),
    }


def _core_requirement(version: str) -> str:
    """The core's versions that may be installed with the wheel: up to the next that may break it.

    Before 1.0 that is the next minor version.
    """
    major, minor = (int(part) for part in version.split(".")[:2])
    return f"dougong>={major}.{minor},<{f'{major + 1}' if major else f'0.{minor + 1}'}"


def _check_name(name: str) -> None:
    if name.startswith(_PREFIX):
        raise ConfigError(
            f"{name!r} is the name of a distribution; give the platform's: "
            f"dougong plugin new {name.removeprefix(_PREFIX)}"
        )
    if not _NAME.fullmatch(name) or len(name) > _MAX_LENGTH:
        raise ConfigError(
            f"a platform cannot be called {name!r}: its name is typed after --platform, begins a "
            "kernel's name and ends those of a distribution and of a Python package. Take lower "
            f"case letters, digits and single hyphens, a letter first, at most {_MAX_LENGTH} of "
            "them: 'acme', 'acme-x1'."
        )
    taken = {**_TAKEN_BY_THE_CORE, NATIVE: "what plain torch is called"}
    if name in taken:
        raise ConfigError(
            f"{name!r} is {taken[name]}; call yours by another name, as in "
            f"dougong plugin new acme-{name}"
        )


def _who_has(name: str) -> Iterator[str]:
    """Whoever is installed under this name; a plugin's metadata is read, its code is not."""
    for found in find_entry_points():
        if found.name == name:
            yield (
                f"{found.distribution} {found.version} brings a platform {name!r} already; two "
                "wheels of one name are refused. Choose another name, or uninstall it"
            )
            return
    distribution = f"{_PREFIX}{name}"
    try:
        version = importlib_metadata.version(distribution)
    except importlib_metadata.PackageNotFoundError:
        return
    yield f"{distribution} {version} is installed already. Choose another name, or uninstall it"


def _places_taken(project: Path) -> Iterator[str]:
    if project.exists() or project.is_symlink():
        yield f"{project} exists already. Choose another name or --folder, or remove it"
        return
    parents = (parent for parent in project.absolute().parents if parent.exists())
    nearest = next(parents)
    if not nearest.is_dir():
        yield f"{nearest} is a file. Choose another place with --folder"


def _num_code_lines(source: str) -> int:
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                skipped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate((line.strip() for line in source.splitlines()), start=1)
    return sum(
        number not in skipped and not line.startswith("#") and line.strip("()[]{}, ") != ""
        for number, line in lines
    )
