"""Handoffs without marks on built recordings: what is taken, what is paired, and what is said of the rest."""

import polars as pl
import pytest

import gapscope
from gapscope.schema import EVENTS
from gapscope.testing import Recording, trace

US = 1_000
COMPUTE, NCCL = 7, 17


class Rank:
    """A rank that computes on one stream and communicates on another; times in µs."""

    def __init__(self, rank, ranks=2, tool="torch", device=None):
        self.rank, self.tool = rank, tool
        self.file = Recording(f"rank{rank}", pid=100 + rank, tool=tool)
        self.file.rows["processes"][0]["file_rank"] = rank
        self.device = rank if device is None else device

    def step(self, number, start, end):
        self.file.mark(f"step step={number}", start * US, end * US)

    def kernel(self, call, start, end, stream=COMPUTE, name="gemm"):
        self.file.kernel(call * US, start * US, end * US, stream, name=name, device=self.device)

    def join(self, call, waiting, recorded):
        """Let a stream wait for all that another has been given so far."""
        self.file.event_record(call * US, recorded)
        self.file.stream_wait(call * US + 500, waiting)

    def message(self, op, peer, asked, call, start, end, group="0", size_bytes=1024, seq=None, waits=True):
        """Ask for a send or a receive, as torch's process group of NCCL does."""
        if waits:
            self.join(asked, NCCL, COMPUTE)
        row = {"thread": 1, "start_ns": asked * US, "end_ns": (asked + 1) * US, "op": op, "peer": peer, "group": group}
        self.file._add("comms", {**row, "size_bytes": size_bytes, "seq": seq})
        span = {"kind": "annotation", "thread": 1, "start_ns": (call - 1) * US, "end_ns": (call + 2) * US}
        self.file._add("ranges", {**span, "name": f"nccl:{op} 0->1"})
        self.kernel(call, start, end, NCCL, "ncclDevKernel_SendRecv")
        if op == "recv":
            self.join(call + 3, COMPUTE, NCCL)


def analyzed(*ranks, **options):
    return gapscope.analyze(trace(*(r.file for r in ranks)), **options)


def events(row):
    return tuple(None if row[f"{e}_ns"] is None else row[f"{e}_ns"] // US for e in EVENTS)


def pipeline(steps=3, every=1_000):
    """Rank 0 computes and sends, rank 1 receives and computes; one message a step."""
    sender, receiver = Rank(0), Rank(1)
    for k in range(steps):
        at = k * every
        for rank in (sender, receiver):
            rank.step(k, at, at + every - 10)
        sender.kernel(at + 5, at + 100, at + 200)
        sender.message("send", 1, asked=at + 30, call=at + 40, start=at + 210, end=at + 220)
        sender.kernel(at + 60, at + 215, at + 400, name="next microbatch")
        receiver.kernel(at + 2, at + 10, at + 20, name="earlier work")
        receiver.message("recv", 0, asked=at + 50, call=at + 60, start=at + 70, end=at + 225)
        receiver.kernel(at + 80, at + 230, at + 300)
    return sender, receiver


def test_producer_and_consumer_are_what_waits_say():
    found = analyzed(*pipeline())
    rows = found.handoffs.sort("seq").to_dicts()
    assert [(r["src_rank"], r["dst_rank"], r["channel"], r["seq"], r["step"]) for r in rows] == [
        (0, 1, 0, k, k) for k in range(3)
    ]
    for k, row in enumerate(rows):
        # Neither the kernel behind the send nor the one before the receive.
        assert events(row) == tuple(k * 1_000 + t for t in (200, 30, 50, 210, 225, 230))
        assert (row["origin"], row["transport"], row["size_bytes"]) == ("metadata", "nccl", 1024)
        assert row["status"] == "complete"


def test_without_waits_the_neighbors_are_not_known():
    sender, receiver = pipeline()
    for rank in (sender, receiver):
        rank.file.rows["syncs"].clear()
    found = analyzed(sender, receiver)
    assert set(found.handoffs["status"].cast(pl.String)) == {"incomplete"}
    for row in found.handoffs.sort("seq").to_dicts():
        at = row["seq"] * 1_000
        assert events(row) == (None, at + 30, at + 50, at + 210, at + 225, None)
    codes = {f.code for f in found.findings}
    assert {"missing_producer_finish", "missing_consumer_start"} <= codes


def test_on_one_stream_the_neighbors_are_those_on_it():
    ranks = [Rank(0), Rank(1)]
    for rank in ranks:
        late = 30 * (1 - rank.rank)
        rank.kernel(1, 10, 50, name="before")
        rank.file.communication(
            "allreduce", 5 * US, (60 + late) * US, 100 * US, COMPUTE, group="tp", size_bytes=8, seq=1, device=rank.rank
        )
        rank.file.rows["ops"][-1]["device"] = rank.rank
        rank.kernel(8, 105, 150, name="after")
    [row] = analyzed(*ranks).handoffs.to_dicts()
    # Rank 0 came 30 later; rank 1 waited that long, and the rest is transfer.
    assert (row["kind"], row["group"], row["src_rank"], row["dst_rank"]) == ("collective", "tp", 0, 1)
    assert events(row) == (50, 5, 5, 90, 100, 105)
    assert row["movement_start_ns"] - row["arrival_ns"] == 30 * US
    assert (row["transfer_ns"], row["shortest_rank"]) == (10 * US, 0)


def test_the_last_rank_is_found_on_the_common_timebase():
    """Shifting a file changes nothing: which rank is last does not come from the files' own clocks."""
    for shift in (0, 10**9, -(10**9)):
        ranks = [Rank(0), Rank(1)]
        for rank in ranks:
            for k in range(6):
                at, late = 1_000 * k, 30 * (1 - rank.rank)
                rank.kernel(at + 1, at + 10, at + 50)
                rank.file.communication(
                    "allreduce", (at + 5) * US, (at + 60 + late) * US, (at + 100) * US, COMPUTE, group="tp", seq=k
                )
                rank.file.rows["ops"][-1]["device"] = rank.rank
                rank.kernel(at + 8, at + 105, at + 150)
        ranks[1].file.shift(shift * 1)
        found = analyzed(*ranks).handoffs
        assert found["src_rank"].to_list() == [0] * 6, shift


def test_unequal_counts_are_ambiguous_and_said():
    sender, receiver = pipeline()
    # One more send in the middle step, which nothing received: the order of that step tells nothing.
    sender.message("send", 1, asked=1_500, call=1_510, start=1_520, end=1_530)
    found = analyzed(sender, receiver)
    states = found.handoffs.group_by("step", pl.col("status").cast(pl.String)).len().sort("step", "status").rows()
    assert states == [(0, "complete", 1), (1, "ambiguous", 3), (2, "complete", 1)]
    assert found.handoffs["handoff_id"].n_unique() == found.handoffs.height
    notes = {(f.rank, f.count) for f in found.findings if f.code == "unpaired_communication"}
    assert notes == {(0, 2), (1, 1)}


def test_sizes_that_differ_are_no_pair():
    sender, receiver = Rank(0), Rank(1)
    sender.message("send", 1, asked=30, call=40, start=210, end=220, size_bytes=1024)
    receiver.message("recv", 0, asked=50, call=60, start=70, end=225, size_bytes=2048)
    assert analyzed(sender, receiver).handoffs["status"].to_list() == ["ambiguous", "ambiguous"]


def test_a_peer_without_a_recording_leaves_an_end_alone():
    sender, _ = pipeline()
    found = analyzed(sender)
    assert set(found.handoffs["status"].cast(pl.String)) == {"unmatched_send"}
    assert found.handoffs["dst_rank"].to_list() == [1, 1, 1]


def test_recorded_numbers_pair_what_order_does_not():
    sender, receiver = Rank(0), Rank(1)
    for k in range(3):
        sender.message("send", 1, asked=100 * k + 10, call=100 * k + 20, start=100 * k + 30, end=100 * k + 40, seq=k)
    for k in (1, 2):
        at = 100 * k
        receiver.message("recv", 0, asked=at + 10, call=at + 20, start=at + 30, end=at + 41, seq=k)
    found = analyzed(sender, receiver).handoffs.sort("seq")
    # The first was sent before the receiver recorded.
    states = found.select(pl.col("status").cast(pl.String), pl.col("available_ns").is_not_null()).rows()
    assert states == [("edge_of_window", False), ("incomplete", True), ("incomplete", True)]


def test_communicators_get_channels_of_their_own():
    sender, receiver = Rank(0), Rank(1)
    for k, group in enumerate(("0", "1")):
        at = 100 * k
        sender.message("send", 1, asked=at + 10, call=at + 20, start=at + 30, end=at + 40, group=group)
        receiver.message("recv", 0, asked=at + 10, call=at + 20, start=at + 30, end=at + 41, group=group)
    found = analyzed(sender, receiver).handoffs
    assert found.select("channel", "seq").sort("channel").rows() == [(0, 0), (1, 0)]


def one_shot(rank, *names):
    for k, name in enumerate(names):
        at = 100 * k
        rank.kernel(at + 1, at + 10, at + 20)
        rank.kernel(at + 2, at + 30 + 5 * rank.rank, at + 50, name=name)
        rank.kernel(at + 3, at + 55, at + 60)


def test_declared_kernels_are_collectives_of_those_who_run_them():
    ranks = [Rank(r) for r in range(3)]
    for rank in ranks[:2]:
        one_shot(rank, "cross_device_reduce<half>", "cross_device_reduce<half>")
    ranks[2].kernel(1, 10, 20)
    assert not analyzed(*ranks).handoffs.height
    found = analyzed(*ranks, comm_kernels=["cross_device"]).handoffs
    assert found.select("group", "seq", "src_rank", "dst_rank").rows() == [
        ("cross_device", 0, 1, 0),
        ("cross_device", 1, 1, 0),
    ]
    assert [events(r) for r in found.to_dicts()] == [(20, 2, 2, 35, 50, 55), (120, 102, 102, 135, 150, 155)]


def test_declared_kernels_of_unequal_counts_are_said():
    ranks = [Rank(0), Rank(1)]
    one_shot(ranks[0], "my_reduce", "my_reduce")
    one_shot(ranks[1], "my_reduce")
    found = analyzed(*ranks, comm_kernels=["my_reduce"])
    assert not found.handoffs.height
    counts = {(f.rank, f.count) for f in found.findings if f.code == "unpaired_collectives"}
    assert counts == {(0, 2), (1, 1)}


def test_declared_kernels_count_beside_marks():
    ranks = [Rank(0), Rank(1)]
    for rank in ranks:
        one_shot(rank, "my_reduce")
    ranks[0].file.mark("produce src=0 dst=1 seq=7", 0, 5 * US)
    kinds = analyzed(*ranks, comm_kernels=["my_reduce"]).handoffs
    assert set(kinds["origin"]) == {"marks", "order"}
    assert not set(kinds.filter(pl.col("origin") == "order")["channel"]) & {0}


def broadcast(rank, root, at, start, end):
    rank.kernel(at, at + 5, at + 9)
    file = rank.file
    file.communication(
        "broadcast",
        (at + 1) * US,
        start * US,
        end * US,
        COMPUTE,
        group="0",
        group_ranks="[0, 1, 2]",
        seq=at,
        external_id=at,
    )
    file.rows["ops"][-1]["device"] = rank.rank
    row = {
        "thread": 1,
        "start_ns": at * US,
        "end_ns": (at + 1) * US,
        "op": "broadcast",
        "root": root,
        "external_id": at,
    }
    file._add("comms", {**row, "group": "0", "group_ranks": "[0, 1, 2]"})
    rank.kernel(at + 3, end + 2, end + 9)


def test_a_broadcast_goes_from_its_root_to_each_other_rank():
    ranks = [Rank(r) for r in range(3)]
    for rank in ranks:
        broadcast(rank, root=1, at=10, start=30 + rank.rank, end=60)
    found = analyzed(*ranks).handoffs.sort("dst_rank")
    assert found.select("kind", "src_rank", "dst_rank").rows() == [("p2p", 1, 0), ("p2p", 1, 2)]
    assert [events(r)[3:] for r in found.to_dicts()] == [(31, 60, 62), (31, 60, 62)]


@pytest.mark.parametrize("owner", [0, 1])
def test_peer_copies_know_both_ranks_and_no_consumer(owner):
    ranks = [Rank(0), Rank(1)]
    for rank in ranks:
        rank.kernel(1, 10, 50)
    file = ranks[owner].file
    copy = {"kind": "memcpy", "copy_kind": "PtoP", "name": "copy", "from_device": 0, "to_device": 1, "size_bytes": 64}
    file.op(file.call(5 * US, family="memcpy"), 60 * US, 80 * US, COMPUTE, device=owner, **copy)
    [row] = analyzed(*ranks).handoffs.to_dicts()
    # What the fetching side did before is not what produced the data.
    assert events(row) == (50 if owner == 0 else None, 5, 5, 60, 80, None)
    assert (row["src_rank"], row["dst_rank"], row["transport"]) == (0, 1, "copy_engine")
    assert row["status"] == "incomplete"


def host_pipeline(*, names):
    ranks = [Recording(f"rank{r}", pid=100 + r, tool="torch", cpu_only=True) for r in (0, 1)]
    for rank, file in enumerate(ranks):
        file.rows["processes"][0]["file_rank"] = rank
    for k in range(2):
        at = 1_000 * k
        if names:
            for file, name, start, end in (
                (ranks[0], f"PP:0F{k}", 10, 90), (ranks[0], f"PP:0SEND_F{k}", 95, 130),
                (ranks[1], f"PP:1RECV_F{k}", 5, 9),
            ):  # fmt: skip
                row = {"kind": "annotation", "thread": 1, "start_ns": (at + start) * US, "end_ns": (at + end) * US}
                file._add("ranges", {**row, "name": name})
        ranks[0].message("gloo:send", (at + 100) * US, (at + 120) * US)
        ranks[1].message("gloo:recv", (at + 6) * US, (at + 110) * US)
    return gapscope.analyze(trace(*ranks))


def test_host_messages_are_bounded_by_their_calls():
    found = host_pipeline(names=False)
    assert [events(r) for r in found.handoffs.to_dicts()] == [
        (100, 100, 6, 100, 110, 110),
        (1_100, 1_100, 1_006, 1_100, 1_110, 1_110),
    ]
    assert set(found.handoffs["producer_finish_source"].cast(pl.String)) == {"estimated"}
    assert {"host_bounds", "paired_by_order"} <= {f.code for f in found.findings}


def test_processes_without_ranks_are_counted_each_where_containers_number_them_alike():
    files = [Recording(f"host{n}", pid=1, tool="torch", cpu_only=True) for n in (0, 1)]
    for n, file in enumerate(files):
        file.rows["processes"][0]["file_rank"] = None
        for k in range(n + 1):
            file.message(("gloo:send", "gloo:recv")[n], k * US, (k + 1) * US)
    (note,) = (f for f in gapscope.analyze(trace(*files)).findings if f.code == "communication_without_ranks")
    assert note.count == 2
    assert note.message.endswith("process (pid 1): 1 send; process (pid 1): 2 receives.")


def test_a_schedule_names_stage_microbatch_and_the_producers_end():
    found = host_pipeline(names=True).handoffs.to_dicts()
    assert [(r["src_stage"], r["dst_stage"], r["direction"], r["microbatch"]) for r in found] == [
        (0, 1, "fwd", 0),
        (0, 1, "fwd", 1),
    ]
    assert [events(r)[0] for r in found] == [90, 1_090]
    assert {r["producer_finish_source"] for r in found} == {"emitted"}
    assert {r["origin"] for r in found} == {"metadata"}


# What must not be taken for more than it is -----------------------------------------------------------------------


def collective(rank, at, start, end, name="nccl", **row):
    rank.kernel(at + 1, at + 10, at + 20)
    rank.file.communication("allreduce", (at + 25) * US, start * US, end * US, COMPUTE, size_bytes=8, **row)
    rank.file.rows["ops"][-1]["device"] = rank.rank
    rank.kernel(at + 41, end + 30, end + 35)


def of_group(members, ranks=2, late=5, group="tp"):
    found = [Rank(r) for r in range(ranks)]
    for rank in found:
        for k in range(3):
            at = 1_000 * k
            row = {"group": group, "group_ranks": str(members), "group_size": len(members)}
            collective(rank, at, at + 30 + late * rank.rank, at + 60, **row)
    return found


def test_a_group_with_members_that_are_not_recorded_has_no_last_rank():
    found = analyzed(*of_group([0, 1, 2, 3]))
    assert found.handoffs.select("src_rank", "transfer_ns", "shortest_rank").unique().rows() == [(None, None, None)]
    [note] = [f for f in found.findings if f.code == "group_not_whole"]
    assert note.count == 3
    whole = analyzed(*of_group([0, 1])).handoffs
    assert whole["src_rank"].to_list() == [1, 1, 1]
    assert whole["transfer_ns"].to_list() == [25 * US] * 3


def test_operations_of_a_replayed_graph_are_told_by_their_names():
    """Three kernels of one correlation id a replay; only one of them is declared. The order of rows does not matter."""
    for turned in (False, True):
        ranks = [Rank(0), Rank(1)]
        for rank in ranks:
            for k in range(2):
                at, late = 1_000 * k, 5 * rank.rank
                graph = rank.file.call(at * US, family="graph_launch")
                for start, end, name in ((10, 20, "gemm"), (30 + late, 50, "cross_device_reduce"), (55, 90, "gemm2")):
                    rank.file.op(graph, (at + start) * US, (at + end) * US, COMPUTE, device=rank.rank, name=name)
            if turned:
                rank.file.rows["ops"].reverse()
        rows = analyzed(*ranks, comm_kernels=["cross_device"]).handoffs.sort("seq").to_dicts()
        assert [events(r) for r in rows] == [(20, 0, 0, 35, 50, 55), (1_020, 1_000, 1_000, 1_035, 1_050, 1_055)]
        assert [r["arrival_ns"] // US for r in rows] == [30, 1_030]


def test_numbers_of_one_rank_alone_pair_nothing():
    sender, receiver = pipeline()
    for row in sender.file.rows["comms"]:
        row["seq"] = row["start_ns"]
    assert set(analyzed(sender, receiver).handoffs["status"].cast(pl.String)) == {"ambiguous"}


def test_steps_of_one_rank_alone_pair_nothing():
    sender, receiver = pipeline()
    receiver.file.rows["ranges"] = [r for r in receiver.file.rows["ranges"] if "step" not in r["name"]]
    assert set(analyzed(sender, receiver).handoffs["status"].cast(pl.String)) == {"ambiguous"}


def test_a_step_number_that_comes_again_names_no_step():
    ranks = pipeline(steps=4)
    for rank in ranks:
        for row in rank.file.rows["ranges"]:
            for again, first in (("2", "0"), ("3", "1")):
                row["name"] = row["name"].replace(f"step={again}", f"step={first}")
    found = analyzed(*ranks)
    assert found.handoffs["step"].null_count() == found.handoffs.height
    assert "paired_without_steps" in {f.code for f in found.findings}


def test_names_of_a_schedule_at_one_end_are_of_both():
    sender, receiver = pipeline()
    for k in range(3):
        row = {"kind": "annotation", "thread": 1, "start_ns": (1_000 * k + 29) * US, "end_ns": (1_000 * k + 45) * US}
        sender.file._add("ranges", {**row, "name": f"PP:0SEND_F{k}"})
    found = analyzed(sender, receiver).handoffs.sort("seq")
    assert set(found["status"].cast(pl.String)) == {"complete"}
    assert found.select("src_stage", "dst_stage", "direction", "microbatch").rows() == [
        (0, 1, "fwd", k) for k in range(3)
    ]


def test_groups_of_one_name_and_other_members_are_different_groups():
    for shift in (0, -(10**6), 3 * 10**14):
        ranks = [Rank(r) for r in range(4)]
        for rank in ranks:
            members = [0, 1] if rank.rank < 2 else [2, 3]
            for k in range(3):
                row = {"group": "tp", "group_ranks": str(members), "group_size": 2}
                collective(rank, 1_000 * k, 1_000 * k + 30 + rank.rank % 2, 1_000 * k + 60, **row)
            if rank.rank > 1:
                rank.file.shift(shift)
        ids = set(analyzed(*ranks).handoffs["handoff_id"])
        assert ids == {f"tp[{a}, {a + 1}]/0/{k}@{a}" for a in (0, 2) for k in range(3)}, shift


def test_what_no_handoff_is_made_of_is_counted():
    ranks = [Rank(0), Rank(1)]
    for rank in ranks:
        broadcast(rank, root=5, at=10, start=30, end=60)  # such a rank is not in the group
    found = analyzed(*ranks)
    assert not found.handoffs.height
    assert {(f.rank, f.count) for f in found.findings if f.code == "communication_left_out"} == {(0, 1), (1, 1)}


@pytest.mark.parametrize("text", ["[0, 99999999999]", "no list", "[]", None])
def test_members_of_a_group_may_be_any_text(text):
    ranks = [Rank(0), Rank(1)]
    for rank in ranks:
        collective(rank, 0, 30, 60, group="0", group_ranks=text)
    assert analyzed(*ranks).handoffs.height == 1


@pytest.mark.parametrize("name", [f"PP:{'9' * 25}SEND_F0", f"PP:0SEND_F{'9' * 30}", f"PP:{'9' * 25}F0"])
def test_numbers_of_a_schedule_may_be_too_large(name):
    sender, receiver = pipeline()
    row = {"kind": "annotation", "thread": 1, "start_ns": 29 * US, "end_ns": 45 * US, "name": name}
    sender.file._add("ranges", row)
    assert analyzed(sender, receiver).handoffs.height == 3


def test_keys_that_come_out_as_one_text_get_ids_of_their_own():
    ranks = [Rank(0), Rank(1)]
    for rank in ranks:
        for at, key in ((0, "job=p group=tp seq=0"), (100, "group=p:tp seq=0")):
            rank.file.mark(f"submit {key} rank={rank.rank}", at * US, (at + 5) * US)
            rank.kernel(at + 1, at + 10 + rank.rank, at + 20)
    ids = analyzed(*ranks).handoffs["handoff_id"].to_list()
    assert sorted(ids) == ["p:tp/0/0@0", "p:tp/0/0@0#2"]
