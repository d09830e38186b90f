"""Marks in a job: keys on both sides; brackets in threads, coroutines, generators and compiled code."""

import asyncio
import gc
import threading
import warnings

import gapscope_instrumentation as gs
import pytest
from gapscope_instrumentation import marking


def keys(emitter, kind):
    return [text for mark, text in emitter.said() if mark == kind]


def test_both_sides_count_the_same_keys_without_talking(remembered):
    to_next, from_first = gs.Edge(src=0, dst=1), gs.Edge(src=0, dst=1)
    for _ in range(3):
        with gs.produce(to_next):
            pass
        with gs.submit(to_next):
            pass
    for _ in range(3):
        handoff = from_first.handoff()
        with gs.receive(handoff):
            pass
        with gs.consume(handoff):
            pass
    expected = [f"src=0 dst=1 seq={n}" for n in range(3)]
    for kind in ("produce", "submit", "receive", "consume"):
        assert keys(remembered, kind) == expected


def test_keys_agree_when_one_side_begins_to_record_later(remembered):
    one, two = gs.Edge(src=0, dst=1), gs.Edge(src=0, dst=1)
    marking.set_emitters(())
    for _ in range(5):  # both sides run without a capture; one hands over by edge, the other by handle
        with gs.submit(one):
            pass
        gs.available(one)
        two.handoff()
    marking.set_emitters((remembered,))
    with gs.submit(one):
        pass
    gs.available(one)
    with gs.receive(two.handoff()):
        pass
    assert remembered.said() == [("submit", "src=0 dst=1 seq=5"), ("receive", "src=0 dst=1 seq=5")]
    assert remembered.said("point") == [("available", "src=0 dst=1 seq=5")]


def test_fields_are_of_the_handoff_or_of_its_edge(remembered):
    edge = gs.Edge(src=2, dst=3, channel=1, kind="pp", transport="nccl")
    with gs.step(9, requests=["a", "b"]):
        handoff = edge.handoff(mb=4, bytes=64, dir="bwd", src_stage=5, dst_stage=4, tokens=17)
    with gs.submit(handoff):
        pass
    with gs.submit(handoff.message(1, bytes=32, name="residual")):
        pass
    said = "src=2 dst=3 seq=0 channel=1{} step=9 mb=4 bytes={} dir=bwd "
    said += "src_stage=5 dst_stage=4 kind=pp transport=nccl{} tokens=17"
    assert remembered.said() == [
        ("step", "step=9 requests=a,b"),
        ("submit", said.format("", 64, "")),
        ("submit", said.format(" slot=1", 32, " name=residual")),
    ]


def test_an_edge_takes_this_rank_for_the_end_that_is_left_out(monkeypatch, no_group):
    with pytest.raises(ValueError, match="src was left out, and nothing tells the rank"):
        gs.Edge(dst=1)
    monkeypatch.setenv("RANK", "7")
    assert (gs.Edge(dst=8).src, gs.Edge(src=6).dst) == (7, 7)
    with pytest.raises(ValueError, match="needs src= or dst="):
        gs.Edge()


def test_host_memory_and_groups_have_keys(remembered):
    load = gs.Edge(src=gs.host(0), dst=1, kind="kv")
    with gs.transfer(load):
        pass
    with gs.submit(gs.Edge(group="tp0", rank=3)):
        pass
    assert remembered.said() == [
        ("submit", "src=host:0 dst=1 seq=0 kind=kv"),
        ("receive", "src=host:0 dst=1 seq=0 kind=kv"),
        ("submit", "seq=0 group=tp0 rank=3"),
    ]
    assert not remembered.unclosed()


def test_decorators_take_the_next_handoff_at_each_call(remembered):
    edge, back = gs.Edge(src=0, dst=1), gs.Edge(src=1, dst=0)

    @gs.produce(edge)
    def plain(x):
        return x + 1

    @gs.stage(consumes=back, produces=edge)
    def stage(x):
        return 2 * x

    assert [plain(1), plain(2), stage(3)] == [2, 3, 6]
    assert remembered.said() == [
        ("produce", "src=0 dst=1 seq=0"),
        ("produce", "src=0 dst=1 seq=1"),
        ("consume", "src=1 dst=0 seq=0"),
        ("produce", "src=0 dst=1 seq=2"),
    ]
    assert not remembered.unclosed()


def test_a_decorator_made_while_off_marks_once_it_is_on(remembered):
    edge = gs.Edge(src=0, dst=1)
    marking.set_emitters(())

    @gs.produce(edge)
    def plain():
        return 1

    assert plain() == 1
    marking.set_emitters((remembered,))
    assert plain() == 1
    assert remembered.said() == [("produce", "src=0 dst=1 seq=1")]


def test_interleaved_tasks_close_their_own_brackets(remembered):
    edge = gs.Edge(src=0, dst=1)

    async def hand_over(gate, opened):
        handoff = edge.handoff()
        with gs.submit(handoff):
            opened.set()
            await gate.wait()
        return handoff.seq

    async def main():
        gates, opened = [asyncio.Event() for _ in range(3)], [asyncio.Event() for _ in range(3)]
        tasks = [asyncio.create_task(hand_over(g, o)) for g, o in zip(gates, opened, strict=True)]
        for o in opened:
            await o.wait()
        for n in (1, 0, 2):  # they end in another order than they began
            gates[n].set()
            await tasks[n]

    asyncio.run(main())
    assert [text for _, text in remembered.said()] == [f"src=0 dst=1 seq={n}" for n in (0, 1, 2)]
    assert [text for _, text in remembered.said("end")] == [f"src=0 dst=1 seq={n}" for n in (1, 0, 2)]


def test_decorated_coroutines_and_generators_are_bracketed_until_they_end(remembered):
    edge = gs.Edge(src=0, dst=1)

    @gs.produce(edge)
    async def coroutine():
        await asyncio.sleep(0)
        return [kind for *_, kind, _ in remembered.events]

    @gs.consume(edge)
    def generator():
        yield [kind for *_, kind, _ in remembered.events]

    assert asyncio.run(coroutine()) == ["begin"]
    assert list(generator()) == [["begin", "end", "begin"]]
    assert not remembered.unclosed()


def test_a_dropped_generator_closes_its_bracket_and_no_other(remembered):
    edge = gs.Edge(src=0, dst=1)

    def receiving():
        with gs.receive(edge.handoff()):
            yield

    dropped, kept = receiving(), receiving()
    next(dropped)
    next(kept)
    del dropped
    gc.collect()
    assert remembered.unclosed() == [("receive", "src=0 dst=1 seq=1")]
    kept.close()
    assert not remembered.unclosed()


def test_a_bracket_may_end_on_another_thread(remembered):
    handoff = gs.Edge(src=0, dst=1).handoff()
    bracket = gs.submit(handoff).start()
    worker = threading.Thread(target=bracket.end)
    worker.start()
    worker.join()
    bracket.end()  # a second end does nothing
    assert [e[2] for e in remembered.events] == ["begin", "end"]


def test_threads_that_share_an_edge_never_share_a_key(remembered):
    edge = gs.Edge(src=0, dst=1)

    def work():
        for _ in range(200):
            with gs.submit(edge):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [text for _, text in remembered.said()]
    assert sorted(found) == sorted(f"src=0 dst=1 seq={n}" for n in range(800))


class Silent:
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "two words\nand more"}, " name=two_words_and_more"),
        ({"name": ""}, " name=_"),
        ({"a=b c": "d=e"}, " a_b_c=d=e"),
        ({"kind": None, "mine": None}, ""),
        ({"mb": 10**30}, f" mb={10**30}"),
        ({"bytes": b"x"}, " bytes=b'x'"),
        ({"kind": [1, 2]}, " kind=[1,_2]"),
        ({"mine": Silent()}, " mine=Silent"),
    ],
)
def test_odd_fields_are_written_as_one_word_and_cost_nothing_else(tmp_path, read_log, fields, said):
    with gs.capture(tmp_path):
        for seq in (0, 1):
            with gs.submit(gs.Handoff(0, 1, seq, **(fields if seq == 0 else {}))):
                pass
        assert {"log"} <= {emitter.name for emitter in marking.emitters()}
    assert gs.Handoff(0, 1, 0, **fields).text == " src=0 dst=1 seq=0" + said
    (path,) = tmp_path.glob("*.gslog")
    marks = [r.get("text") or r["seq"] for r in read_log(path) if r["what"] in ("mark", "text")]
    assert marks[1:] == [1]
    assert marks[0] in (0, "gapscope::submit src=0 dst=1 seq=0" + said)


@pytest.mark.parametrize(("key", "said"), [(("0", 1, 5), " src=0 dst=1 seq=5"), (([0], 1, 5), " src=[0] dst=1 seq=5")])
def test_an_odd_key_is_written_as_text_and_the_other_marks_as_ever(tmp_path, read_log, key, said):
    with gs.capture(tmp_path):
        for handoff in (gs.Handoff(0, 1, 4), gs.Handoff(*key), gs.Handoff(0, 1, 6)):
            with gs.submit(handoff):
                pass
    (path,) = tmp_path.glob("*.gslog")
    found = [r.get("text") or r["seq"] for r in read_log(path) if r["what"] in ("mark", "text")]
    assert found == [4, "gapscope::submit" + said, 6]
    with pytest.raises(ValueError, match="whole numbers"):
        _ = gs.Handoff(*key).payload


def test_an_emitter_that_fails_writes_what_it_has_and_status_says_why(tmp_path, read_log, monkeypatch):
    with gs.capture(tmp_path):
        (log,) = [e for e in marking.emitters() if e.name == "log"]
        gs.available(gs.Handoff(0, 1, 4))
        monkeypatch.setattr(log, "begin", lambda mark, handoff: 1 // 0)
        with pytest.warns(RuntimeWarning, match="no longer go to log"):
            gs.submit(gs.Handoff(0, 1, 5)).start()
        assert gs.status()["log"] == "given up: ZeroDivisionError: integer division or modulo by zero"
        (path,) = tmp_path.glob("*.gslog")
        assert [r["seq"] for r in read_log(path) if r["what"] == "mark"] == [4]


def test_where_warnings_are_errors_a_failing_mark_still_does_not_end_the_job(tmp_path, monkeypatch, capsys):
    with gs.capture(tmp_path), warnings.catch_warnings():
        warnings.simplefilter("error")
        (log,) = [e for e in marking.emitters() if e.name == "log"]
        monkeypatch.setattr(log, "begin", lambda mark, handoff: 1 // 0)
        gs.submit(gs.Handoff(0, 1, 5)).start()
    assert "gapscope: marks no longer go to log" in capsys.readouterr().err


def test_ids_of_requests_may_be_numbers_and_fields_have_any_name(remembered):
    with gs.step(1, requests=[7, 8]), gs.request("a", id="b", seq=3, tenant="x"):
        pass
    assert remembered.said()[0][1] == "step=1 requests=7,8"
    assert "id=a" in remembered.said()[1][1]
    assert "tenant=x" in remembered.said()[1][1]


def test_an_exception_of_the_job_passes_and_the_bracket_closes(remembered):
    with pytest.raises(KeyError, match="mine"), gs.submit(gs.Edge(src=0, dst=1)):
        raise KeyError("mine")
    assert not remembered.unclosed()


def test_an_emitter_that_fails_is_taken_out_and_the_job_goes_on(remembered):
    class Failing:
        name = "failing"

        def begin(self, mark, handoff):
            raise OSError("the tool is gone")

        end = point = close = begin

    marking.set_emitters((Failing(), remembered))
    edge = gs.Edge(src=0, dst=1)
    with (
        pytest.warns(RuntimeWarning, match=r"marks no longer go to failing \(OSError: the tool is gone\)"),
        gs.submit(edge),
    ):
        pass
    with gs.submit(edge):
        pass
    assert [text for _, text in remembered.said("end")] == ["src=0 dst=1 seq=0", "src=0 dst=1 seq=1"]
    assert marking.emitters() == (remembered,)


def test_switching_off_within_a_bracket_still_closes_it(remembered):
    with gs.submit(gs.Edge(src=0, dst=1)):
        marking.set_emitters(())
    assert not remembered.unclosed()


def test_step_number_reaches_handoffs_of_its_own_context_alone(remembered):
    edge = gs.Edge(src=0, dst=1)
    with gs.step(1):
        with gs.step(2):
            inner = edge.handoff()
        outer = edge.handoff()
    after = edge.handoff()
    assert (inner.step, outer.step, after.step) == (2, 1, None)


def test_own_cost_is_timed_for_some_brackets(remembered):
    edge = gs.Edge(src=0, dst=1)
    many = 64 * marking.SAMPLED_AT_FIRST + 2 * marking.SAMPLED_EVERY
    for _ in range(many):
        with gs.submit(edge):
            pass
    assert len(marking.own_costs) == 66
    assert all(opening_ns > 0 and closing_ns > 0 for opening_ns, closing_ns in marking.own_costs)
    assert not remembered.unclosed()
    assert keys(remembered, "submit") == [f"src=0 dst=1 seq={n}" for n in range(many)]


@pytest.mark.parametrize("on", [False, True])
def test_compiled_code_has_one_graph_without_break_and_leaves_no_mark(remembered, on):
    torch = pytest.importorskip("torch")
    from torch._dynamo.testing import CompileCounter

    edge = gs.Edge(src=0, dst=1)
    if not on:
        marking.set_emitters(())

    @gs.stage(produces=edge)
    def inner(x):
        return x - 1

    def stage(x):
        handoff = edge.handoff(mb=1)
        with gs.step(3), gs.produce(handoff):
            x = x * 2
        with gs.submit(edge):
            x = x + 1
        gs.available(edge)
        gs.available(handoff)
        with gs.request("a"), gs.receive(gs.Handoff(0, 1, 5)):
            return inner(x)

    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(stage, fullgraph=True, backend=counter)
    x = torch.arange(4.0)
    for _ in range(3):
        with gs.consume(edge):
            assert torch.equal(compiled(x), x * 2)
    assert (counter.frame_count, counter.op_count) == (1, 3)
    assert remembered.said() == [("consume", f"src=0 dst=1 seq={n}") for n in range(3 if on else 0)]
