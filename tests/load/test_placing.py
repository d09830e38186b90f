"""Where files of a cluster are read, from listings of its nodes alone."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from gapscope.errors import UsageError
from gapscope.load.engines.base import Asked
from gapscope.load.engines.placing import (
    HERE,
    Node,
    Seen,
    candidates,
    is_everywhere,
    memory_bytes,
    place,
    same_file,
    share_out,
    with_labels,
)

A, B = Node("id-a", "a", 4, 8 << 30), Node("id-b", "b", 4, 8 << 30)
HEAD = Node("id-head", "head", 0, 8 << 30)
NOTHING = "there is no such file."


def seen(path="/run/rank0.json", digest="0", **others):
    return replace(Seen(path, path, path, True, None, 1000, 5, digest, False), **others)


def placed(listings, asked=1, nodes=(A, B)):
    """What is placed of the first thing asked for, as (name, places)."""
    listings = {HERE: [NOTHING] * asked, **listings}
    found = place([Asked(f"asked {n}") for n in range(asked)], listings, nodes)
    return [(p.shown, list(p.seen)) for p in found]


# One file, or several ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"path": "/other", "key": "/other"}, True),
        ({"digest": "1"}, False),
        ({"size_bytes": 999}, False),
        ({"mtime_ns": 6}, False),
        ({"mtime_ns": 6, "is_whole": True}, False),
    ],
)
def test_one_file_has_one_size_time_and_content(change, same):
    assert same_file(seen(), seen(**change)) == same_file(seen(**change), seen()) == same


def test_of_small_files_the_content_decides():
    assert same_file(seen(is_whole=True), seen(is_whole=True, mtime_ns=6))


def test_a_file_on_a_shared_file_system_is_one_under_the_name_that_the_user_typed():
    typed = seen(shown="rank0.json")
    assert placed({HERE: [[typed]], "id-a": [[seen()]], "id-b": [[seen()]]}) == [("rank0.json", [HERE, "id-a", "id-b"])]


def test_a_file_that_only_nodes_share_has_no_node_in_its_name():
    assert placed({"id-a": [[seen()]], "id-b": [[seen()]]}) == [("/run/rank0.json", ["id-a", "id-b"])]


def test_a_file_of_one_node_is_named_with_it():
    assert placed({"id-a": [NOTHING], "id-b": [[seen()]]}) == [("b:/run/rank0.json", ["id-b"])]


def test_a_file_of_this_machine_alone_keeps_its_name():
    here = seen(shown="rank0.json")
    assert placed({HERE: [[here]], "id-a": [NOTHING], "id-b": [NOTHING]}) == [("rank0.json", [HERE])]


def test_other_files_of_one_name_are_the_files_of_other_ranks():
    assert placed({"id-a": [[seen()]], "id-b": [[seen(digest="1")]]}) == [
        ("a:/run/rank0.json", ["id-a"]),
        ("b:/run/rank0.json", ["id-b"]),
    ]


def test_other_files_of_one_name_are_told_apart_here_too():
    listings = {HERE: [[seen(shown="r")]], "id-a": [[seen()]], "id-b": [[seen(digest="1")]]}
    assert placed(listings) == [("a:/run/rank0.json", [HERE, "id-a"]), ("b:/run/rank0.json", ["id-b"])]
    del listings["id-a"]
    name = f"{os.uname().nodename}:/run/rank0.json"
    assert placed(listings, nodes=[B]) == [(name, [HERE]), ("b:/run/rank0.json", ["id-b"])]


def test_a_name_that_is_a_link_on_some_nodes_is_one_file():
    linked = seen(key="/mnt/real/rank0.json")
    assert placed({HERE: [[linked]], "id-a": [[seen()]]}) == [("/run/rank0.json", [HERE, "id-a"])]


def test_two_names_of_one_file_on_one_node_are_read_once():
    twice = [seen("/run/link.json", key="/run/rank0.json"), seen()]
    assert placed({"id-a": [twice]}) == [("a:/run/link.json", ["id-a"])]


def test_copies_of_other_names_stay_apart():
    listings = {"id-a": [[seen(), seen("/run/copy.json")]]}
    assert [name for name, _ in placed(listings)] == ["a:/run/copy.json", "a:/run/rank0.json"]


def test_files_are_ordered_by_path_and_then_by_node():
    of_b = [seen("/run/rank10/x", "b"), seen("/run/rank1.json", "c"), seen("/run/rank1/x", "d")]
    listings = {"id-b": [of_b], "id-a": [[seen("/run/rank1/x", "a")]]}
    names = [name for name, _ in placed(listings)]
    assert names == ["a:/run/rank1/x", "b:/run/rank1/x", "b:/run/rank1.json", "b:/run/rank10/x"]


# What was asked ---------------------------------------------------------------------------------------------------


def test_what_is_nowhere_is_an_error_that_names_it():
    with pytest.raises(UsageError, match=r"^asked 1: .*on the 1 node of the cluster \(there is no such file\.\)$"):
        placed({HERE: [[seen()], NOTHING], "id-a": [NOTHING, NOTHING]}, asked=2, nodes=[A])


def test_a_node_that_did_not_answer_has_nothing():
    assert placed({"id-a": [[seen()]]}) == [("a:/run/rank0.json", ["id-a"])]


def test_the_job_of_a_file_is_the_one_that_was_stated_last():
    asked = [Asked("all"), Asked("some", "prefill"), Asked("the same", "decode"), Asked("all again")]
    (found,) = place(asked, {HERE: [[seen()]] * 4, "id-a": [[seen()]] * 4}, [A])
    assert found.job == "decode"


def test_a_file_is_named_if_it_was_named_once():
    asked = [Asked("folder"), Asked("file")]
    (found,) = place(asked, {HERE: [[seen(named=False, shown="in folder")], [seen(shown="file")]]}, [])
    assert found.named
    assert found.shown == "file"


# Where it is read -------------------------------------------------------------------------------------------------


def one(places, nodes, **change):
    listings = {HERE: [NOTHING], **{where: [[seen(**change)]] for where in places}}
    (found,) = place([Asked("it")], listings, nodes)
    return found


@pytest.mark.parametrize(
    ("places", "order", "everywhere"),
    [
        ([HERE, "id-a", "id-b"], ["id-a", "id-b", HERE], True),
        (["id-a", "id-b", "id-head"], ["id-a", "id-b", "id-head"], True),
        ([HERE, "id-b"], ["id-b", HERE], False),
        ([HERE, "id-head"], [HERE, "id-head"], False),
        (["id-head"], ["id-head"], False),
        ([HERE], [HERE], False),
    ],
)
def test_nodes_that_lend_processors_come_first(places, order, everywhere):
    nodes = [A, B, HEAD]
    assert candidates(one(places, nodes), nodes) == order
    assert is_everywhere(one(places, nodes), nodes) == everywhere


def test_no_node_may_read_what_has_another_path_there():
    listings = {HERE: [NOTHING], "id-a": [[seen("/a", key="/mnt")]], "id-b": [[seen("/b", key="/mnt")]]}
    (found,) = place([Asked("it")], listings, [A, B])
    assert list(found.seen) == ["id-a", "id-b"]
    assert not is_everywhere(found, [A, B])


def test_files_are_shared_out_by_size_and_processors():
    def files(sizes, places):
        return [one(places, [A, small], size_bytes=size) for size in sizes]

    small = replace(B, cpus=1)
    both = files([100, 90, 80, 10, 10], ["id-a", "id-b"])
    assert share_out(both, [A, small]) == ["id-a", "id-a", "id-a", "id-b", "id-b"]
    bound = files([100], ["id-b"]) + files([50, 40], ["id-a", "id-b"])
    assert share_out(bound, [A, small]) == ["id-b", "id-a", "id-a"]
    assert share_out(files([100, 90], [HERE, "id-b"]), [A, small]) == ["id-b", "id-b"]
    assert share_out(files([100, 90], [HERE]), [A, small]) == [HERE, HERE]


def test_memory_is_set_aside_by_size_and_never_more_than_half_a_node():
    assert memory_bytes(0, "a.json", [A]) == 256 << 20
    assert memory_bytes(1 << 30, "a.json", [A]) == (256 << 20) + (2 << 30)
    assert memory_bytes(1 << 26, "a.json.gz", [A]) == (256 << 20) + (1 << 30)
    assert memory_bytes(100 << 30, "a.json", [A, replace(B, memory_bytes=2 << 30)]) == 1 << 30
    assert memory_bytes(1 << 20, "a.json", []) == 258 << 20


def test_hosts_with_several_nodes_are_told_apart_by_id():
    hosts = [("0123456789", "one"), ("abcdefghij", "two"), ("klmnopqrst", "two")]
    assert list(with_labels(hosts).values()) == ["one", "two/abcdefgh", "two/klmnopqr"]
