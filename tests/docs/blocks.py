"""Blocks of code in Markdown files: what they are, and what they need to run."""

from __future__ import annotations

import re
import shutil
import textwrap
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
DATA = REPOSITORY / "tests" / "data"

BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
SHOWN_OUTPUT = re.compile(r"<!-- output of: (?P<command>.+?) -->\n```\w*\n(?P<output>.*?)```", re.DOTALL)
PRINTED = re.compile(r"<!-- the block above prints -->\n```text\n(?P<output>.*?)```", re.DOTALL)

# Files that stand in for those of the reader. Readers go by content, so the names do not matter.
STAND_INS = {
    "rank0.json.gz": DATA / "two-gpus" / "nccl_none_torch_rank0.json.gz",
    "rank1.json.gz": DATA / "two-gpus" / "nccl_none_torch_rank1.json.gz",
}

SETUP = "python3 -m venv .venv && "
"""How commands begin that make an environment; CI runs them, not a test."""


@dataclass(frozen=True)
class Block:
    """A block of code: its language, its text without the indent, and where it ends in the file."""

    language: str
    body: str
    end: int

    @property
    def commands(self):
        return [line.strip() for line in self.body.splitlines() if line.strip()]


def blocks(text):
    return [Block(m["language"], textwrap.dedent(m["body"]), m.end()) for m in BLOCK.finditer(text)]


def commands(text):
    """Return the lines of all sh and bash blocks."""
    return [command for block in blocks(text) if block.language in ("sh", "bash") for command in block.commands]


def python_blocks(text):
    return [block.body for block in blocks(text) if block.language == "python"]


def put_stand_ins(folder, text):
    """Put the recordings that a text speaks of into a folder, as files and as folders."""
    for name, recording in STAND_INS.items():
        shutil.copy(recording, folder / name)
    for name in re.findall(r'analyze\("([\w-]+)/"\)', text):
        (folder / name).mkdir()
        for file_name, recording in STAND_INS.items():
            shutil.copy(recording, folder / name / file_name)


def without_trailing_spaces(text):
    return [line.rstrip() for line in text.strip("\n").splitlines()]
