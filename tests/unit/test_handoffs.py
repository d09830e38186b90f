"""Handoffs from built recordings: every time is exact, each corner case has its own right answer."""

from __future__ import annotations

import polars as pl
import pytest

import gapscope
from gapscope.errors import IdentityError
from gapscope.testing import Recording, trace

TIMES = ["producer_finish_ns", "submit_ns", "receive_post_ns", "movement_start_ns", "available_ns", "consumer_start_ns"]


def source(seqs=(1, 2, 3), path="a", pid=10, **info):
    r = Recording(path, pid=pid, **info)
    for i in seqs:
        t = i * 1000
        r.mark(f"produce src=0 dst=1 seq={i} step={i}", t, t + 100)
        r.kernel(t + 10, t + 50, t + 150)
        r.kernel(t + 20, t + 150, t + 200)
        r.mark(f"submit src=0 dst=1 seq={i} step={i} bytes=64", t + 110, t + 120)
        r.kernel(t + 111, t + 220, t + 230, stream=13)
    return r


def destination(seqs=(1, 2, 3), path="b", pid=11, **info):
    r = Recording(path, pid=pid, **info)
    for i in seqs:
        t = i * 1000
        r.mark(f"receive src=0 dst=1 seq={i} step={i}", t, t + 10)
        r.kernel(t + 1, t + 240, t + 250, stream=13)
        r.mark(f"consume src=0 dst=1 seq={i} step={i}", t + 11, t + 20)
        r.kernel(t + 12, t + 260, t + 300)
        r.kernel(t + 14, t + 300, t + 400)
    return r


def analyze(*recordings, **options):
    return gapscope.analyze(trace(*recordings), **options)


def times(analysis, seq):
    return analysis.handoffs.filter(pl.col("seq") == seq).select(TIMES).row(0)


def field(analysis, name, seq):
    return analysis.handoffs.filter(pl.col("seq") == seq)[name].item()


def codes(analysis):
    return {f.code for f in analysis.findings}


PLAIN = (2200, 2110, 2000, 2220, 2250, 2260)


def test_six_times_of_a_plain_handoff():
    a = analyze(source(), destination())
    assert times(a, 2) == PLAIN
    assert a.handoffs["status"].to_list() == ["complete"] * 3
    assert a.handoffs["order"].to_list() == ["ok"] * 3
    assert a.handoffs["steady"].to_list() == [False, True, True]
    assert field(a, "gap_ns", 2) == 60
    assert field(a, "size_bytes", 2) == 64
    assert field(a, "handoff_id", 2) == "0>1/0/2"
    assert field(a, "submit_source", 2) == "emitted"
    assert field(a, "movement_start_source", 2) == "derived"
    assert codes(a) == {"half_bounded_clock"}


def test_two_files_have_no_clock_bound_and_one_file_that_of_its_devices():
    assert analyze(source(), destination()).handoffs["uncertainty_ns"].to_list() == [None] * 3
    one = source()
    for table, rows in destination(pid=10).rows.items():
        one.rows[table] += [{**row, "process": 11} for row in rows]
    one.rows["processes"][-1]["pid"] = 11
    a = analyze(one)
    # No sync says how late device times may be: 10 µs are assumed. How early they may be, launches tell: the quickest
    # took 270 ns (1 ns for drift). Both timers tick in 32 ns.
    assert a.handoffs["uncertainty_ns"].to_list() == [10_000 + 270 + 1 + 32 + 32] * 3
    assert times(a, 2) == PLAIN


def test_equal_correlation_ids_of_two_processes_do_not_mix():
    # both recordings count their correlation ids from 1
    assert times(analyze(source(), destination()), 3) == tuple(t + 1000 for t in PLAIN)


def test_order_of_files_and_rows_does_not_matter():
    s, d = source(), destination()
    for r in (s, d):
        for rows in r.rows.values():
            rows.reverse()
    assert analyze(d, s).handoffs.equals(analyze(source(), destination()).handoffs)


def test_operations_in_submit_do_not_count_for_an_enclosing_produce():
    r = Recording("a", pid=10)
    r.mark("produce src=0 dst=1 seq=1", 0, 100)
    r.kernel(10, 200, 300)
    r.mark("submit src=0 dst=1 seq=1", 50, 60)
    r.kernel(55, 400, 900, stream=13)
    a = analyze(r, destination(seqs=(1,)))
    assert times(a, 1)[:4] == (300, 50, 1000, 400)


def test_produce_inside_a_receive_keeps_its_operations():
    r = Recording("b", pid=11)
    r.mark("receive src=0 dst=1 seq=1", 0, 100)
    r.kernel(5, 10, 20)
    r.mark("produce src=1 dst=2 seq=1", 30, 60)
    r.kernel(40, 70, 90)
    a = analyze(r)
    assert a.handoffs.filter(pl.col("src_rank") == 1)["producer_finish_ns"].item() == 90
    assert a.handoffs.filter(pl.col("src_rank") == 0)["available_ns"].item() == 90


def test_one_forward_that_feeds_two_destinations_nests_its_ranges():
    r = Recording("a", pid=10)
    r.mark("produce src=0 dst=1 seq=1", 0, 100)
    r.mark("produce src=0 dst=2 seq=1", 1, 99)
    r.kernel(10, 200, 300)
    a = analyze(r)
    assert a.handoffs["producer_finish_ns"].to_list() == [300, 300]


def test_crossing_ranges_give_the_call_in_both_to_the_later_one():
    r = Recording("a", pid=10)
    r.mark("produce src=0 dst=1 seq=1", 0, 100)
    r.mark("produce src=0 dst=1 seq=2", 50, 150)
    r.kernel(40, 200, 300)
    r.kernel(60, 300, 400)
    r.kernel(120, 400, 500)
    a = analyze(r)
    assert [field(a, "producer_finish_ns", s) for s in (1, 2)] == [300, 500]


def test_another_thread_is_not_inside():
    r = source()
    r.kernel(2050, 5000, 9000, thread=2)
    assert times(analyze(r, destination()), 2) == PLAIN


def test_backward_threads_count_while_the_bracket_is_open():
    r = source()
    r.thread(2, "pt_autograd_0", autograd=True)
    r.kernel(2050, 2201, 2205, thread=2)
    r.kernel(2105, 2205, 2209, thread=2)  # after the bracket closed
    assert times(analyze(r, destination()), 2)[0] == 2205


def test_several_receives_of_one_key():
    d = Recording("b", pid=11)
    d.mark("receive src=0 dst=1 seq=1", 1000, 1010)  # posted: launches nothing
    d.mark("receive src=0 dst=1 seq=1", 1020, 1030)
    d.kernel(1025, 1240, 1250)
    d.mark("receive src=0 dst=1 seq=1", 1040, 1050)
    d.kernel(1045, 1260, 1270)
    d.mark("consume src=0 dst=1 seq=1", 1060, 1090)
    d.kernel(1070, 1280, 1290)
    a = analyze(source(seqs=(1,)), d)
    assert times(a, 1)[2:] == (1000, 1220, 1270, 1280)
    assert field(a, "status", 1) == "complete"


def test_deferred_receive_inside_consume_leaves_preparation_out():
    d = Recording("b", pid=11)
    d.mark("consume src=0 dst=1 seq=1", 0, 100)
    d.kernel(5, 10, 20)  # preparation
    d.mark("receive src=0 dst=1 seq=1", 30, 40)
    d.kernel(35, 1240, 1250)
    d.kernel(50, 1260, 1270)
    a = analyze(source(seqs=(1,)), d)
    assert times(a, 1)[4:] == (1250, 1260)
    assert field(a, "order", 1) == "ok"


def test_slots_are_one_handoff():
    s = Recording("a", pid=10)
    s.mark("produce src=0 dst=1 seq=1", 0, 10)
    s.kernel(5, 20, 30)
    for slot in (0, 1):
        s.mark(f"submit src=0 dst=1 seq=1 slot={slot} bytes={100 + slot}", 40 + slot * 10, 45 + slot * 10)
        s.kernel(41 + slot * 10, 60 + slot * 10, 65 + slot * 10)
    d = Recording("b", pid=11)
    for slot in (0, 1):
        d.mark(f"receive src=0 dst=1 seq=1 slot={slot}", 1 + slot, 2 + slot)
        d.kernel(1 + slot, 80 + slot * 10, 85 + slot * 10)
    d.mark("consume src=0 dst=1 seq=1", 10, 20)
    d.kernel(11, 99, 100)
    a = analyze(s, d)
    assert times(a, 1) == (30, 40, 1, 60, 95, 99)
    assert (field(a, "size_bytes", 1), field(a, "messages", 1)) == (201, 2)
    assert field(a, "status", 1) == "complete"


def test_a_size_that_one_message_lacks_is_unknown():
    s = source(seqs=(1,))
    s.mark("submit src=0 dst=1 seq=1 slot=1", 1130, 1140)
    s.kernel(1131, 1231, 1232)
    assert field(analyze(s, destination(seqs=(1,))), "size_bytes", 1) is None


def test_the_same_key_and_slot_twice_is_ambiguous():
    s = source()
    s.mark("submit src=0 dst=1 seq=2", 2130, 2140)
    a = analyze(s, destination())
    assert a.handoffs["status"].to_list() == ["complete", "ambiguous", "complete"]
    assert "ambiguous_handoffs" in codes(a)


def test_gpu_span_identifies_operations_without_a_recorded_call():
    s = source(seqs=(1,))
    s.rows["calls"].pop()  # the submit's call is not recorded
    s.gpu_span("submit src=0 dst=1 seq=1 step=1 bytes=64", 1219, 1231, stream=13)
    s.op(999, 1240, 1250, stream=13)  # an orphan beyond the span
    assert times(analyze(s, destination(seqs=(1,))), 1)[3] == 1220


def test_gpu_span_on_another_stream_does_not_count():
    s = source(seqs=(1,))
    s.rows["calls"].pop()
    s.gpu_span("submit src=0 dst=1 seq=1 step=1 bytes=64", 1219, 1231, stream=7)
    a = analyze(s, destination(seqs=(1,)))
    assert times(a, 1)[3] is None
    assert field(a, "movement_start_source", 1) == "missing"
    assert field(a, "status", 1) == "incomplete"


def test_without_a_call_nobody_can_tell_before_from_after_a_nested_receive():
    d = Recording("b", pid=11)
    d.mark("consume src=0 dst=1 seq=1", 0, 100)
    d.mark("receive src=0 dst=1 seq=1", 30, 40)
    d.kernel(35, 1240, 1250)
    d.kernel(50, 1270, 1280)
    d.op(999, 1260, 1265)
    d.gpu_span("consume src=0 dst=1 seq=1", 1259, 1281)
    assert times(analyze(source(seqs=(1,)), d), 1)[4:] == (1250, None)


def test_graph_rows_give_bounds_and_say_so():
    d = Recording("b", pid=11)
    d.mark("receive src=0 dst=1 seq=1", 0, 5)
    d.kernel(1, 1240, 1250)
    d.mark("consume src=0 dst=1 seq=1", 10, 20)
    d.op(d.call(11, family="graph_launch"), 1260, 1400, kind="graph")
    a = analyze(source(seqs=(1,)), d)
    assert times(a, 1)[5] == 1260
    assert field(a, "consumer_start_source", 1) == "estimated"
    assert "graph_bounds" in codes(a)


def test_one_graph_launch_with_many_kernels():
    s = Recording("a", pid=10)
    s.mark("produce src=0 dst=1 seq=1", 0, 10)
    c = s.call(5, family="graph_launch")
    for k in range(3):
        s.op(c, 20 + 10 * k, 29 + 10 * k, graph_node=k)
    assert times(analyze(s), 1)[0] == 49


def test_host_work_gives_the_brackets_own_times():
    s = Recording("a", pid=10)
    s.mark("produce src=0 dst=1 seq=1 device=cpu", 0, 100)
    s.mark("submit src=0 dst=1 seq=1 device=cpu bytes=8", 110, 150)
    d = Recording("b", pid=11)
    d.mark("receive src=0 dst=1 seq=1 device=cpu", 90, 160)
    d.mark("consume src=0 dst=1 seq=1 device=cpu", 170, 180)
    a = analyze(s, d)
    assert times(a, 1) == (100, 110, 90, 110, 160, 170)
    assert set(a.handoffs.select(pl.selectors.ends_with("_source")).row(0)) == {"emitted"}
    assert field(a, "status", 1) == "complete"


def test_a_cpu_only_file_needs_no_device_field():
    s = Recording("a", pid=10, cpu_only=True)
    s.mark("produce src=0 dst=1 seq=1", 0, 100)
    assert times(analyze(s), 1)[0] == 100


def test_gpu_work_that_was_not_traced_is_not_host_work():
    s = Recording("a", pid=10)
    s.mark("produce src=0 dst=1 seq=1", 0, 100)
    s.mark("submit src=0 dst=1 seq=1", 110, 120)
    a = analyze(s, destination(seqs=(1,)))
    assert times(a, 1)[:4] == (None, 110, 1000, None)
    assert field(a, "status", 1) == "incomplete"
    assert [f.message for f in a.findings if f.code == "missing_producer_finish"] == [
        "1 handoff without producer_finish: GPU work of the process was not recorded."
    ]


@pytest.mark.parametrize(("which", "expected"), [("last", None), ("first", 1200)])
def test_an_untimed_operation_that_could_have_decided_leaves_null(which, expected):
    s = source(seqs=(1,))
    row = s.rows["ops"][1 if which == "last" else 0]
    row["start_ns"] = row["end_ns"] = None
    a = analyze(s, destination(seqs=(1,)))
    assert times(a, 1)[0] == expected
    assert field(a, "status", 1) == ("incomplete" if expected is None else "complete")


def test_a_launch_without_a_gpu_record_that_could_have_decided_leaves_null():
    s = source(seqs=(1,))
    del s.rows["ops"][1]
    a = analyze(s, destination(seqs=(1,)))
    assert times(a, 1)[0] is None
    assert any("no GPU record" in f.message for f in a.findings)
    d = destination(seqs=(1,))
    del d.rows["ops"][-1]  # launched after the first operation of consume: cannot be its start
    assert times(analyze(source(seqs=(1,)), d), 1) == tuple(t - 1000 for t in PLAIN)


def test_a_lost_call_in_a_damaged_file_leaves_null_and_spares_the_rest():
    s = source(dropped={"damaged": 1})
    lost = next(i for i, c in enumerate(s.rows["calls"]) if c["start_ns"] == 2020)  # launches the last op of produce 2
    del s.rows["calls"][lost]
    a = analyze(s, destination())
    assert [times(a, i)[0] for i in (1, 2, 3)] == [1200, None, 3200]
    # it may as well have been launched first in the submit that follows
    assert times(a, 2)[1:] == (2110, 2000, None, 2250, 2260)
    whole = source()
    del whole.rows["calls"][lost]  # the same in a file without damage: the tool does not record that call
    assert times(analyze(whole, destination()), 2)[0] == 2150


def test_marks_behind_the_end_of_a_cut_file_give_no_gpu_times():
    s = source(truncated=True)
    s.rows["calls"] = [c for c in s.rows["calls"] if c["start_ns"] <= 2111]
    kept = {c["correlation"] for c in s.rows["calls"]}
    s.rows["ops"] = [o for o in s.rows["ops"] if o["correlation"] in kept]
    a = analyze(s, destination())
    assert times(a, 1) == tuple(t - 1000 for t in PLAIN)
    assert times(a, 2) == (2200, 2110, 2000, None, 2250, 2260)  # the submit's bracket ends behind the last call
    assert times(a, 3)[0] is None
    assert any("ends before" in f.message for f in a.findings)


def test_a_cut_file_whose_calls_are_not_in_order_gives_no_gpu_times():
    a = analyze(source(truncated=True, calls_in_order=False), destination())
    assert a.handoffs["producer_finish_ns"].null_count() == 3
    assert a.handoffs["movement_start_ns"].null_count() == 3


def test_a_receive_that_never_closes():
    d = destination(seqs=(1, 2))
    d.mark("receive src=0 dst=1 seq=3 step=3", 3000, None)
    a = analyze(source(), d)
    assert field(a, "status", 3) == "never_available"
    d.kernel(3001, 3240, 3250)
    d.mark("consume src=0 dst=1 seq=3 step=3", 3011, 3020)
    d.kernel(3012, 3260, 3300)
    a = analyze(source(), d)
    assert field(a, "status", 3) == "never_available"  # its end is not known, so neither is the last operation
    assert times(a, 3)[4] is None


def test_a_produce_that_never_closes_is_incomplete():
    s = source()
    next(r for r in s.rows["ranges"] if "produce" in r["name"] and "seq=2" in r["name"])["end_ns"] = None
    a = analyze(s, destination())
    assert field(a, "status", 2) == "incomplete"
    assert times(a, 2)[0] is None


def test_windows_that_overlap_in_part_put_handoffs_at_the_edge():
    a = analyze(source(seqs=range(1, 6)), destination(seqs=range(3, 8)))
    status = dict(a.handoffs.select("seq", "status").rows())
    assert status == {1: "edge_of_window", 2: "edge_of_window", 3: "complete", 4: "complete", 5: "complete"} | {
        6: "edge_of_window",
        7: "edge_of_window",
    }
    assert [f.level for f in a.findings if f.code.startswith("missing")] == ["info"] * 5


def test_a_hole_inside_both_windows_is_unmatched():
    d = destination()
    d.rows["ranges"] = [r for r in d.rows["ranges"] if "seq=2" not in r["name"]]
    assert field(analyze(source(), d), "status", 2) == "unmatched_send"
    s = source()
    s.rows["ranges"] = [r for r in s.rows["ranges"] if "seq=2" not in r["name"]]
    assert field(analyze(s, destination()), "status", 2) == "unmatched_receive"


def test_a_rank_that_was_not_given():
    a = analyze(source())
    assert a.handoffs["status"].unique().to_list() == ["unmatched_send"]
    assert a.handoffs["gap_ns"].null_count() == 3
    assert [(f.code, f.message, f.count) for f in a.findings] == [
        ("missing_rank", "3 handoffs without one end: rank 1 is not among the recordings.", 3)
    ]


def test_consumer_before_available_is_a_violation_and_left_out():
    d = destination()
    op = next(o for o in d.rows["ops"] if o["start_ns"] == 2260)
    op["start_ns"] = 2245
    a = analyze(source(), d)
    assert (field(a, "order", 2), field(a, "status", 2)) == ("violation", "complete")
    assert times(a, 2)[5] == 2245
    assert a.summary["handoffs"]["counted"] == 1


def test_recordings_that_were_never_made_at_the_same_time_have_no_durations():
    late = destination()
    for rows in late.rows.values():
        for row in rows:
            for key in ("start_ns", "end_ns"):
                if key in row:
                    row[key] += 10**9
    a = analyze(source(), late)
    assert a.handoffs["status"].to_list() == ["unaligned"] * 3
    assert a.handoffs["gap_ns"].null_count() == 3
    assert "windows_apart" in codes(a)


def test_one_handoff_that_went_backward_makes_all_between_two_files_worthless():
    d = destination()
    for o in d.rows["ops"]:
        if 2000 < o["start_ns"] < 3000:
            o["start_ns"] -= 100
            o["end_ns"] -= 100
    a = analyze(source(), d)
    assert a.handoffs["order"].to_list() == ["cannot_tell"] * 3
    assert [f.message for f in a.findings if f.code == "clocks_disagree"] == [
        "1 handoff from rank 0 to rank 1 went backward in time, by up to 32 ns: the clocks of the two files disagree "
        "by at least that."
    ]


def test_backward_between_ranks_without_a_clock_bound_cannot_be_told():
    d = destination()
    for o in d.rows["ops"]:
        o["start_ns"] -= 100
        o["end_ns"] -= 100
    a = analyze(source(), d)
    assert a.handoffs["order"].to_list() == ["cannot_tell"] * 3
    assert a.summary["handoffs"]["counted"] == 0


def test_a_file_without_absolute_time_has_no_cross_rank_duration():
    a = analyze(source(clock="relative"), destination())
    assert a.handoffs["status"].to_list() == ["unaligned"] * 3
    assert a.handoffs["gap_ns"].null_count() == 3
    assert "unaligned_file" in codes(a)


def test_a_local_handoff_has_no_transfer():
    r = Recording("a", pid=10)
    r.mark("produce src=0 dst=0 seq=1", 0, 10)
    r.kernel(5, 20, 30)
    r.mark("consume src=0 dst=0 seq=1", 12, 18)
    r.kernel(13, 35, 40)
    a = analyze(r)
    row = a.handoffs.row(0, named=True)
    assert (row["kind"], row["transport"], row["status"], row["gap_ns"]) == ("local", "local", "complete", 5)
    assert [row[f"{e}_source"] for e in ("submit", "movement_start", "available")] == ["not_applicable"] * 3


def test_points_are_the_event_at_their_stream_position():
    s = source(seqs=(1,))
    s.kernel(1130, 1500, 1600)
    s.point("producer_finish src=0 dst=1 seq=1", 1125)  # what was launched last before it: the submit's operation
    d = destination(seqs=(1,))
    d.point("consumer_start src=0 dst=1 seq=1", 1013)  # the operation launched first behind it
    a = analyze(s, d)
    assert times(a, 1)[0] == 1230
    assert times(a, 1)[5] == 1300


def test_collective_rows_name_the_last_rank_to_arrive():
    recordings = []
    for rank, arrival in ((0, 100), (1, 160), (2, 140)):
        r = Recording(f"r{rank}", pid=20 + rank)
        r.mark(f"produce group=tp seq=4 rank={rank}", 0, 10)
        r.kernel(5, 20, arrival - 10)
        r.mark(f"submit group=tp seq=4 rank={rank} bytes=32", 12, 16)
        r.kernel(13, arrival, 175)
        r.mark(f"receive group=tp seq=4 rank={rank}", 17, 19)
        r.kernel(18, 176, 177 + rank)
        r.mark(f"consume group=tp seq=4 rank={rank}", 20, 30)
        r.kernel(25, 180 + rank, 200)
        recordings.append(r)
    a = analyze(*recordings)
    rows = a.handoffs.sort("dst_rank").select("kind", "src_rank", "dst_rank", *TIMES, "status").rows()
    assert rows == [
        ("collective", 1, 0, 150, 12, 17, 160, 177, 180, "complete"),
        ("collective", 1, 2, 150, 12, 17, 160, 179, 182, "complete"),
    ]


def test_two_tools_that_saw_one_rank_are_merged_not_doubled():
    torch = Recording("a.json", pid=10, tool="torch")
    for row in source().rows["ranges"]:
        torch.rows["ranges"].append({**row, "start_ns": row["start_ns"] + 3, "kind": "annotation"})
    a = analyze(torch, source(path="z"), destination())
    assert a.handoffs.height == 3
    assert times(a, 2) == PLAIN
    assert "merged_tools" in codes(a)


def test_the_same_rank_twice_by_one_tool_is_an_error():
    with pytest.raises(IdentityError, match=r"Rank 0 was recorded twice .* by nsys: a and copy"):
        trace(source(), source(path="copy"))


def test_files_of_two_runs_are_an_error_that_lists_them():
    later = source(path="later", pid=77)
    for rows in later.rows.values():
        for row in rows:
            for key in ("start_ns", "end_ns"):
                if key in row:
                    row[key] += 10**9
    with pytest.raises(IdentityError, match="several runs") as error:
        trace(source(), destination(), later)
    assert "run 1: a, b" in str(error.value)
    assert "run 2: later" in str(error.value)


def test_disjoint_windows_of_one_process_are_one_run():
    a = analyze(source(seqs=(1, 2)), source(seqs=(3,), path="second"), destination())
    assert a.handoffs["status"].to_list() == ["complete"] * 3
    assert times(a, 3) == tuple(t + 1000 for t in PLAIN)


def test_contradicting_marks_of_one_process_are_an_error():
    r = source()
    r.mark("submit src=5 dst=1 seq=9", 9000, 9001)
    with pytest.raises(IdentityError, match=r"rank 0 .* and as rank 5"):
        trace(r)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: source(path="x_rank3.json"), "rank 0 by its marks and rank 3 by the file name"),
        (lambda: with_file_rank(source(), 2), "rank 0 by its marks and rank 2 by the file's own field"),
    ],
)
def test_contradicting_sources_of_a_rank_are_an_error_that_names_both(build, message):
    with pytest.raises(IdentityError, match=message):
        trace(build())


def with_file_rank(r, rank):
    r.rows["processes"][0]["file_rank"] = rank
    return r


def test_rank_option_tells_the_rank_of_a_silent_process():
    r = Recording("a", pid=10)
    r.mark("step step=1", 0, 10)
    t = trace(r, rank_of={10: 6})
    assert t.processes.select("rank", "rank_source").row(0) == (6, "option")


def test_warmup_moves_the_start_up():
    assert analyze(source(), destination(), warmup=2).handoffs["steady"].to_list() == [False, False, True]
    assert analyze(source(), destination(), warmup=0).handoffs["steady"].to_list() == [True, True, True]


def test_steps_and_ranks_select():
    t = trace(source(), destination())
    assert gapscope.analyze(t, steps=(2, None)).handoffs["seq"].to_list() == [2, 3]
    assert gapscope.analyze(t, steps=(None, 1)).handoffs["seq"].to_list() == [1]
    assert gapscope.analyze(t, ranks=[7]).handoffs.height == 0


def test_a_trace_without_marks_says_what_to_do():
    r = Recording("a", pid=10)
    r.kernel(1, 2, 3)
    a = analyze(r)
    assert a.handoffs.height == 0
    assert [f.code for f in a.findings] == ["no_handoff_marks"]
    assert "gapscope::submit" in a.findings[0].hint


def test_sizes_that_cannot_be_are_unknown_and_never_wrap():
    s = source(seqs=(1,))
    for slot in (1, 2, 3):
        s.mark(f"submit src=0 dst=1 seq=1 slot={slot} bytes=4000000000000000000", 1130 + slot, 1130 + slot)
    a = analyze(s, destination(seqs=(1,)))
    assert field(a, "size_bytes", 1) is None
    s = source(seqs=(1,))
    s.rows["ranges"][1]["name"] = "gapscope::submit src=0 dst=1 seq=1 bytes=-1"
    assert field(analyze(s, destination(seqs=(1,))), "size_bytes", 1) is None


def test_the_largest_size_can_be_summarized():
    s = source()
    for r in s.rows["ranges"]:
        r["name"] = r["name"].replace("bytes=64", "bytes=9223372036854775807")
    assert analyze(s, destination()).summary["edges"][0]["size_bytes_p50"] is None
