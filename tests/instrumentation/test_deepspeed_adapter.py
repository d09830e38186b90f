"""The adapter of DeepSpeed's pipeline engine, on a stub with its call structure."""

import importlib

import pytest
from gapscope_instrumentation import AdapterError, attach, marking

from tests.instrumentation import engine_support
from tests.instrumentation.engine_support import BYTES, key, number_of, payload, run_ranks, sent_payloads, wire

torch = pytest.importorskip("torch")

recorder = engine_support.recorder


class DeepSpeed:
    """A pipeline of stub DeepSpeed."""

    def __init__(self, recorder, stages, tensors=1):
        engine = importlib.import_module("deepspeed.runtime.pipe.engine")
        self.recorder = recorder
        recorder.watch_sends(number_of, lambda number: "bwd" if number > 1000 else "fwd")
        self.engines = {
            10 + s: engine.PipelineEngine(s, stages, self.computing(s, tensors), tensors) for s in range(stages)
        }

    def computing(self, stage, tensors):
        made = {"fwd": 0, "bwd": 0}

        def compute(kind, given):
            if given is not None and not (kind == "fwd" and stage == 0):
                self.recorder.uses(number_of(given[0]), kind)
            number = 1 + made[kind] + 100 * stage + 1000 * (kind == "bwd")
            made[kind] += 1
            self.recorder.makes(number, kind)
            return tuple(payload(number) for _ in range(tensors))

        return compute

    def train(self, microbatches):
        run_ranks({rank: lambda e=engine: e.train_batch(microbatches) for rank, engine in self.engines.items()})


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_deepspeed_training(recorder, stages):
    attach("deepspeed")
    DeepSpeed(recorder, stages).train(5)
    recorder.assert_all_agree(sent_payloads(stages, 5))


def test_deepspeed_says_bytes_per_tensor_direction_stages_step_and_microbatch(recorder):
    attach("deepspeed")
    pipeline = DeepSpeed(recorder, 2, tensors=2)
    pipeline.train(2)
    pipeline.train(2)
    forward = [h for h in recorder.of("submit") if h.dir == "fwd"]
    assert [(h.seq, h.slot, h.step, h.mb, h.bytes) for h in forward] == [
        (number, slot, number // 2, number % 2, BYTES) for number in range(4) for slot in range(2)
    ]
    backward = [h for h in recorder.of("submit") if h.dir == "bwd"]
    assert {(h.src, h.dst, h.channel, h.src_stage, h.dst_stage) for h in backward} == {(11, 10, 1, 1, 0)}
    assert {h.kind for h in recorder.of("submit")} == {"pp"}
    received = [h for h in recorder.of("receive") if h.dir == "fwd" and h.bytes is not None]
    assert [(h.seq, h.slot, h.bytes) for h in received] == [(h.seq, h.slot, h.bytes) for h in forward]
    around = [h for h in recorder.of("receive") if h.bytes is None]
    assert {key(h) for h in around} == {key(h) for h in recorder.of("submit")}
    for mark in ("produce", "consume"):
        assert {(h.step, h.mb) for h in recorder.of(mark)} == {(s, mb) for s in range(2) for mb in range(2)}


@pytest.mark.parametrize("where_it_fails", ["forward", "send"])
def test_deepspeed_brackets_end_when_the_framework_raises(recorder, where_it_fails):
    attach("deepspeed")
    engine = DeepSpeed(recorder, 2).engines[10]
    engine.fails = where_it_fails
    wire().here.rank = 10
    with pytest.raises(RuntimeError, match=f"^{where_it_fails} failed$"):
        engine.train_batch(1)
    assert recorder.here == []
    assert [name for name, *_ in recorder.log] == ["produce"]
    p2p = importlib.import_module("deepspeed.runtime.pipe.p2p")
    p2p.send(payload(1), 1)  # belongs to nothing any more
    assert len(recorder.log) == 1


def test_deepspeed_leaves_sends_alone_that_are_no_handoffs(recorder):
    attach("deepspeed")
    p2p = importlib.import_module("deepspeed.runtime.pipe.p2p")
    wire().here.rank = 10
    p2p.send(torch.zeros(1), 1)
    wire().here.rank = 11
    p2p.recv(torch.zeros(1), 0)
    assert recorder.log == []


def test_deepspeed_refuses_a_map_that_calls_something_else(recorder, monkeypatch):
    of = importlib.import_module("deepspeed.runtime.pipe.engine").PipelineEngine
    before = of._INSTRUCTION_MAP
    monkeypatch.setattr(of, "_exec_send_grads", lambda self, buffer_id: None)
    with pytest.raises(AdapterError, match="_INSTRUCTION_MAP does not call"):
        attach("deepspeed")
    assert of._INSTRUCTION_MAP is before


def test_deepspeed_counts_while_marks_are_off(recorder):
    attach("deepspeed")
    engines = DeepSpeed(recorder, 2).engines

    def batch(rank):
        wire().here.rank = rank
        engines[rank].eval_batch(2)

    sends, receives = [lambda: batch(10)] * 2, [lambda: batch(11)] * 2
    for send in sends:
        send()
    marking.set_emitters(())
    seen = len(recorder.log)
    receives[0]()
    assert len(recorder.log) == seen
    marking.set_emitters((recorder,))
    receives[1]()
    assert recorder.consumed == {number: recorder.sent[number] for number in (3, 4)}
    assert sorted(recorder.sent) == [1, 2, 3, 4]
