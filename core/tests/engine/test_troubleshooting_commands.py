"""Every command of ``docs/troubleshooting.md`` runs and ends as the page says.

The page says ``demo``, whose weights come over a network. A tiny checkpoint takes its place here.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command_line import run_command
from tests.support.tiny_models import write_tiny_checkpoint

PAGE = Path(__file__).parents[3] / "docs" / "troubleshooting.md"
_FENCE = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_ENDS = re.compile(r"ends with (?P<code>\d+)(?P<condition> if )?")


@dataclass(frozen=True)
class Command:
    """A line of the page, and the exit codes it may have."""

    words: tuple[str, ...]
    codes: frozenset[int]


def _commands(section: str) -> list[Command]:
    found = []
    for block in _FENCE.findall(section):
        for line in block.splitlines():
            command, _, remark = line.partition("#")
            says = _ENDS.search(remark)
            codes = {0} if says is None or says["condition"] else set()
            if says is not None:
                codes.add(int(says["code"]))
            found.append(Command(tuple(shlex.split(command)), frozenset(codes)))
    return found


def _sections() -> dict[str, list[Command]]:
    """Heading → its commands; in a section they follow one another in one folder."""
    _, *parts = re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    return {part.splitlines()[0]: _commands(part) for part in parts}


SECTIONS = _sections()


def test_every_section_has_a_command_and_stands_in_the_table_of_symptoms() -> None:
    text = PAGE.read_text("utf-8")
    for heading, commands in SECTIONS.items():
        assert commands, heading
        anchor = re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
        assert f"| [{heading}](#{anchor}) |" in text
    assert all(one.words[0] == "dougong" for some in SECTIONS.values() for one in some)


@pytest.mark.parametrize("heading", SECTIONS)
def test_its_commands_end_as_the_page_says(
    heading: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = str(write_tiny_checkpoint(tmp_path / "model"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for command in SECTIONS[heading]:
        words = [model if word == "demo" else word for word in command.words[1:]]
        code = run_command(*words)
        said = capsys.readouterr()
        shown = f"{' '.join(command.words)} ended with {code}:\n{said.out}\n{said.err}"
        assert code in command.codes, shown
        assert code == 0 or said.err.splitlines()[0].startswith("dougong: error:"), shown
