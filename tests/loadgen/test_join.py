import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapscope.loadgen import join_requests, read_latencies
from gapscope.schema import UNITS, dtypes
from tests.loadgen.files import VLLM_FILE, latencies, ms


def units(*ids, start_ns=1000, length_ns=30_000_000, unit="request"):
    rows = [{"unit": unit, "id": i, "start_ns": start_ns, "end_ns": start_ns + length_ns, "steady": True} for i in ids]
    return pl.DataFrame(rows, schema=dtypes(UNITS))


def client(*ids, e2e=40):
    return latencies(request_id=list(ids), e2e_ns=ms(*[e2e] * len(ids)))


@pytest.mark.parametrize(
    "server",
    [
        "bench-1f-3",
        "cmpl-bench-1f-3",
        "chatcmpl-bench-1f-3",
        "chatcmpl-bench-1f-3-0a1b2c3d",
        "generate-tokens-bench-1f-3-0a1b2c3d",
        "cmpl-bench-1f-3-0",
        "cmpl-bench-1f-3-0-0a1b2c3d",
        "bench-1f-3_0",
    ],
)
def test_what_servers_make_of_an_id(server):
    joined = join_requests(client("bench-1f-2", "bench-1f-3", "bench-1f"), units(server))
    assert joined.requests["server_ids"].to_list() == [None, [server], None]
    assert (joined.matched, joined.only_client, joined.only_server) == (1, 2, ())
    assert joined.requests["server_ns"][1] == 30_000_000
    assert joined.requests["outside_ns"][1] == 10_000_000


@pytest.mark.parametrize(
    "server", ["bench-1f-33", "xbench-1f-3", "cmpl-cmpl-bench-1f-3", "bench-1f-3-0a1b2c3", "BENCH-1f-3"]
)
def test_what_is_another_id(server):
    joined = join_requests(client("bench-1f-3"), units(server))
    assert (joined.matched, joined.only_server) == (0, (server,))
    assert [f.code for f in joined.findings] == ["load_requests_unjoined"]


def test_the_least_change_wins():
    joined = join_requests(client("cmpl-a-1", "a-1", "a"), units("cmpl-a-1"))
    assert joined.requests["server_ids"].to_list() == [["cmpl-a-1"], None, None]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1), unique=True, min_size=1))
def test_equal_ids_are_joined_whatever_they_are(ids):
    joined = join_requests(client(*ids), units(*reversed(ids)))
    assert joined.requests["server_ids"].to_list() == [[i] for i in ids]
    assert joined.findings == ()


def test_several_units_of_one_request_are_its_whole_time():
    server = pl.concat([units("cmpl-a-0", start_ns=100, length_ns=50), units("cmpl-a-1", start_ns=120, length_ns=80)])
    row = join_requests(client("a"), server).requests.row(0, named=True)
    assert (row["server_ids"], row["server_start_ns"], row["server_end_ns"]) == (["cmpl-a-0", "cmpl-a-1"], 100, 200)
    open_end = server.with_columns(end_ns=pl.when(pl.col("id") == "cmpl-a-0").then("end_ns"))
    row = join_requests(client("a"), open_end).requests.row(0, named=True)
    assert (row["server_start_ns"], row["server_end_ns"], row["outside_ns"]) == (None, None, None)


def test_steps_are_no_requests():
    assert join_requests(client("7"), units("7", unit="step")).matched == 0


def test_doubled_ids_are_not_joined():
    joined = join_requests(client("a", "a", "b"), units("a", "b"))
    assert (joined.matched, joined.only_client, joined.only_server) == (1, 2, ("a",))
    assert {f.code: f.count for f in joined.findings} == {"load_ids_doubled": 2, "load_requests_unjoined": 1}


def test_a_server_that_takes_longer_than_its_client_is_said():
    joined = join_requests(client("a", "b", e2e=29), units("a", "b"))
    assert [(f.code, f.count) for f in joined.findings] == [("load_server_longer", 2)]


def test_ids_that_the_file_lacks_are_made_of_the_prefix():
    read = read_latencies(VLLM_FILE)  # sent with --request-id-prefix lab-
    server = units(*[f"cmpl-lab-{k}-0" for k in range(24)])
    assert join_requests(read, server, id_prefix="lab-").matched == 24
    alone = join_requests(read, server)
    assert (alone.matched, alone.only_client, len(alone.only_server)) == (0, 24, 24)
    assert [(f.code, f.count) for f in alone.findings] == [("load_ids_missing", 24)]


def test_rows_stay_in_order():
    ids = [f"r{k}" for k in range(500)]
    joined = join_requests(client(*ids), units(*ids[::-1]))
    assert joined.requests["index"].to_list() == list(range(500))
