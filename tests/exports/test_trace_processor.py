"""Perfetto's own trace processor reads in the trace what the tables say."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

import gapscope
from gapscope.exports import write_perfetto
from gapscope.views import place
from gapscope.views.gaps import with_edge_names
from tests.exports.test_perfetto import DATA, EPOCH, RECORDINGS, destination, source
from tests.exports.trace_processor import ask, needed

pytestmark = [needed, pytest.mark.xdist_group("trace_processor")]

WRONG = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
SLICES = """
select s.name, s.ts, s.dur, s.category, s.depth, coalesce(p.name, tp.name) process, coalesce(t.name, h.name) lane
from slice s left join process_track pt on pt.id = s.track_id left join process p using (upid)
left join thread_track tt on tt.id = s.track_id left join thread h using (utid) left join process tp on tp.upid = h.upid
left join track t on t.id = s.track_id
"""
FLOWS = """
select o.name a, o.ts b, i.name c, i.ts d
from flow join slice o on o.id = slice_out join slice i on i.id = slice_in
"""
ARGS = """
select s.name, s.ts, a.flat_key, coalesce(a.string_value, cast(a.int_value as text)) value
from slice s join args a using (arg_set_id)
where s.category not in ('kernel', 'call', 'mark', 'memcpy', 'memset', 'range', 'overhead', 'graph', 'event')
"""


def asked(analysis, out: Path, *queries, **options):
    write_perfetto(analysis, out, **options)
    wrong, *answers = ask(out.read_bytes(), WRONG, *queries)
    assert wrong.is_empty(), wrong
    return answers


def counted(rows):
    return sorted(rows, key=str)


@pytest.mark.parametrize("name", ["mailbox", "mixed tools", "nccl", "no gpu", "collectives"])
def test_slices_arrows_and_annotations_are_those_of_the_tables(name, tmp_path):
    analysis = gapscope.analyze([DATA / file for file in RECORDINGS[name]])
    slices, flows, args, processes = asked(
        analysis, tmp_path / "run.pftrace", SLICES, FLOWS, ARGS, "select name from process where name is not null"
    )
    items = place(analysis.trace, analysis.timebase, unclosed=True).items
    length = (pl.col("end_ns") - pl.col("start_ns")).fill_null(-1)
    wanted = items.select(pl.col("name").cast(pl.String), "start_ns", length, pl.col("kind").cast(pl.String))
    kinds = wanted["kind"].unique().to_list()
    recorded = slices.filter(pl.col("category").is_in(kinds) & pl.col("process").is_not_null())
    assert counted(recorded.select("name", "ts", "dur", "category").rows()) == counted(wanted.rows())
    gaps = analysis.handoffs.filter(pl.col("gap_ns") >= 0).select("handoff_id", "producer_finish_ns", "gap_ns")
    shown = slices.filter(pl.col("category") == "handoff")
    assert counted(shown.select("name", "ts", "dur").rows()) == counted(gaps.rows())
    tiles = slices.filter(pl.col("category") == pl.col("name"))
    assert set(tiles["depth"]) == {1}
    assert counted(tiles.select("name", "ts", "dur").rows()) == counted(
        analysis.tiles.select("cause", "start_ns", "duration_ns").rows()
    )
    ends = {
        (p, c)
        for p, c in analysis.handoffs.filter(pl.col("gap_ns") >= 0)
        .select("producer_finish_ns", "consumer_start_ns")
        .iter_rows()
    }
    onward = {(o, i): t for o, s, i, t in flows.rows() if o == "producer_finish"}
    assert onward
    starts = {s for o, s, _, _ in flows.rows() if o == "producer_finish"}
    reached = {t for _, _, i, t in flows.rows() if i == "consumer_start"}
    assert {p for p, _ in ends} <= starts
    assert {c for _, c in ends} <= reached
    told = {(n, key.removeprefix("debug.")): value for n, _, key, value in args.rows()}
    for row in analysis.handoffs.filter(pl.col("gap_ns") >= 0).iter_rows(named=True):
        for column in (
            "status",
            "gap_ns",
            "uncertainty_ns",
            "dominant_cause",
            "removable_ns",
            "submit_source",
            "next_cause",
        ):
            assert told.get((row["handoff_id"], column)) == (None if row[column] is None else str(row[column]))
    ranks = {f"rank {r}" for r in analysis.trace.processes.filter("primary")["rank"].drop_nulls()}
    assert {p.split(" (")[0] for p in processes["name"]} == ranks


def test_the_query_in_the_docs_gives_the_sums_of_the_tables(tmp_path):
    query = re.search(r"```text\n(select.*?)```", (DATA.parents[1] / "docs" / "perfetto.md").read_text(), re.DOTALL)[1]
    analysis = gapscope.analyze([DATA / file for file in RECORDINGS["nccl"]])
    (found,) = asked(analysis, tmp_path / "run.pftrace", query)
    named = with_edge_names(analysis.handoffs).select("handoff_id", "edge")
    sums = analysis.tiles.join(named, on="handoff_id").group_by("edge", "cause")
    wanted = sums.agg(tiles=pl.len(), duration_ns=pl.col("duration_ns").sum())
    assert len(set(wanted["edge"])) == 2
    assert counted(found.select(wanted.columns).rows()) == counted(wanted.rows())


def test_what_never_closed_and_what_has_no_place_are_read_without_an_error(tmp_path):
    r = source(clock="relative")
    r.mark("produce src=0 dst=1 seq=4 step=4", EPOCH + 4000, None)
    analysis = gapscope.analyze(gapscope.testing.trace(r.shift(-EPOCH), destination()))
    slices, flows = asked(analysis, tmp_path / "run.pftrace", SLICES, FLOWS)
    assert flows.is_empty()
    (endless,) = slices.filter(pl.col("dur") == -1).iter_rows(named=True)
    assert endless["name"] == "produce src=0 dst=1 channel=0 seq=4"
    assert endless["lane"] == "host:1 (never closed)"
    assert set(slices.filter(pl.col("category") == "kernel")["process"]) == {
        "rank 0 (pid 10), clock not aligned",
        "rank 1 (pid 10)",
    }


def test_wall_time_can_be_shown(tmp_path):
    analysis = gapscope.analyze(gapscope.testing.trace(source(), destination()))
    (clocks,) = asked(
        analysis,
        tmp_path / "run.pftrace.gz",
        "select ts, clock_value from clock_snapshot where clock_name = 'REALTIME'",
    )
    assert clocks.rows() == [(EPOCH + 1000, EPOCH + 1000)]
