"""From what the user typed to the files to read."""

from __future__ import annotations

import os

import pytest

from gapscope.errors import UsageError
from gapscope.inputs import expand


def touch(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def names(entries):
    return [e.path.name for e in entries]


def test_files_folders_and_patterns_each_once(tmp_path):
    touch(tmp_path, "run/rank1.json", "run/deep/rank0.json", "run/.hidden", "other.json")
    entries = expand([tmp_path / "run", tmp_path / "run" / "rank1.json", str(tmp_path / "oth*.json")])
    assert [(e.path.name, e.named) for e in entries] == [
        ("other.json", False),
        ("rank0.json", False),
        ("rank1.json", True),
    ]


def test_order_does_not_depend_on_how_it_was_asked(tmp_path):
    touch(tmp_path, "b.json", "a.json")
    assert expand([tmp_path / "b.json", tmp_path / "a.json"]) == expand([tmp_path / "a.json", tmp_path / "b.json"])


def test_brackets_and_spaces_in_a_name_are_no_pattern(tmp_path):
    touch(tmp_path, "rank[0] step 5.json")
    assert names(expand([tmp_path / "rank[0] step 5.json"])) == ["rank[0] step 5.json"]


def test_an_export_beside_its_report_stands_in_for_it(tmp_path):
    touch(tmp_path, "out.nsys-rep", "out.sqlite", "alone.sqlite")
    entries = expand([tmp_path])
    assert names(entries) == ["alone.sqlite", "out.nsys-rep"]
    assert entries[1].stand_in == tmp_path / "out.sqlite"


def test_an_export_that_was_named_is_read(tmp_path):
    touch(tmp_path, "out.nsys-rep", "out.sqlite")
    assert names(expand([tmp_path / "out.sqlite"])) == ["out.sqlite"]


def test_a_parquet_export_is_one_input(tmp_path):
    touch(tmp_path, "out_pqtdir/CUPTI_ACTIVITY_KIND_KERNEL.parquet", "out_pqtdir/StringIds.parquet", "more.json")
    assert names(expand([tmp_path])) == ["more.json", "out_pqtdir"]
    assert names(expand([tmp_path / "out_pqtdir"])) == ["out_pqtdir"]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["nothing.json"], "no such file, and as a pattern it matches nothing"),
        ([], "No recording was named"),
        (["empty"], "holds no files"),
        (["x" * 5000], "cannot be looked into"),
    ],
)
def test_what_cannot_be_found_is_an_error(tmp_path, paths, message):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=message):
        expand([tmp_path / p for p in paths])


def test_an_empty_path_is_not_the_working_directory():
    with pytest.raises(UsageError, match="An empty path"):
        expand([""])


def test_pipes_and_links_that_lead_in_circles_are_left_out(tmp_path):
    touch(tmp_path, "a/rank0.json")
    os.mkfifo(tmp_path / "a" / "pipe")
    (tmp_path / "a" / "self").symlink_to(".")
    (tmp_path / "a" / "up").symlink_to("..")
    assert names(expand([tmp_path])) == ["rank0.json"]


def test_a_link_to_nothing_that_was_named_is_not_dropped(tmp_path):
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    assert [(e.path.name, e.named) for e in expand([tmp_path / "gone.json"])] == [("gone.json", True)]
