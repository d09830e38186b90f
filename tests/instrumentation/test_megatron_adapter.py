"""The adapter of Megatron-LM, on a stub with its call structure."""

import importlib
from types import SimpleNamespace

import pytest
from gapscope_instrumentation import attach

from tests.instrumentation import engine_support
from tests.instrumentation.engine_support import (
    BYTES,
    SHAPE,
    key,
    marks_of,
    number_of,
    on_one_side_only,
    payload,
    run_ranks,
    sent_payloads,
    wire,
)

torch = pytest.importorskip("torch")

recorder = engine_support.recorder


class Megatron:
    """A pipeline of stub Megatron: payloads are numbered, and the stages say under which key they see them."""

    def __init__(self, recorder, size, **config):
        self.recorder, self.size, self.group = recorder, size, wire().Group(list(range(4, 4 + size)))
        self.config = {
            "virtual_pipeline_model_parallel_size": None, "pipeline_dtype": torch.float32, "fails": False,
            "mtp_standalone": False, "variable_seq_lengths": False,
        } | config  # fmt: skip
        self.made = set()
        recorder.watch_sends(number_of, lambda number: "bwd" if number > 1000 else "fwd")

    def configuration(self):
        return SimpleNamespace(
            **self.config,
            calls=self.recorder.log,
            backward={},
            free=lambda tensor: setattr(tensor, "data", torch.empty(1)),  # as deallocate_output_tensor does
        )

    def compute(self, kind, mb, chunk, tensor):
        if tensor is not None:
            self.recorder.uses(number_of(tensor), kind)
        number = 1 + mb + 10 * chunk + 100 * self.group.rank() + 1000 * (kind == "bwd")
        self.recorder.makes(number, kind)
        return payload(number)

    def run(self, schedule, **options):
        schedules = importlib.import_module("megatron.core.pipeline_parallel.schedules")

        def stage():
            getattr(schedules, schedule)(self.compute, self.configuration(), self.group, **options)

        run_ranks(dict.fromkeys(self.group.ranks, stage))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_megatron_one_forward_one_backward(recorder, size):
    attach("megatron")
    pipeline = Megatron(recorder, size)
    pipeline.run("without_interleaving", microbatches=5)
    recorder.assert_all_agree(sent_payloads(size, 5))
    assert recorder.here == []


def test_megatron_says_bytes_direction_stages_and_microbatch(recorder):
    attach("megatron")
    Megatron(recorder, 2).run("without_interleaving", microbatches=3)
    for mark in ("submit", "receive"):
        assert {handoff.bytes for handoff in recorder.of(mark)} == {BYTES}
        assert {(h.dir, h.src, h.dst, h.channel, h.src_stage, h.dst_stage) for h in recorder.of(mark)} == {
            ("fwd", 4, 5, 0, 0, 1),
            ("bwd", 5, 4, 1, 1, 0),
        }
    assert {handoff.kind for _, handoff, *_ in marks_of(recorder)} == {"pp"}
    for mark in ("produce", "submit", "consume"):
        assert all(handoff.mb == handoff.seq for handoff in recorder.of(mark))
    assert {handoff.device for handoff in recorder.of("submit")} == {"cpu"}


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("chunks", [2, 3])
@pytest.mark.parametrize("overlap", [False, True])
def test_megatron_interleaved(recorder, size, chunks, overlap):
    attach("megatron")
    pipeline = Megatron(recorder, size, virtual_pipeline_model_parallel_size=chunks)
    pipeline.run("with_interleaving", microbatches=size, chunks=chunks, overlap=overlap)
    recorder.assert_all_agree(sent_payloads(size, size, chunks))
    assert {handoff.src_stage for _, handoff, *_ in marks_of(recorder)} == {None}


def test_megatron_marks_a_wait_that_comes_later(recorder):
    attach("megatron")
    pipeline = Megatron(recorder, 2, virtual_pipeline_model_parallel_size=2)
    pipeline.run("with_interleaving", microbatches=2, chunks=2, overlap=True)
    posted = [key(handoff) for handoff in recorder.of("receive")]
    first = {(4, 5, 0, 0), (5, 4, 1, 0)}  # received before the loop, where the call itself waits
    assert {k for k in posted if posted.count(k) == 2} == set(recorder.sent.values()) - first


def test_megatron_tells_the_exchange_of_shapes_from_the_movement(recorder):
    attach("megatron")
    Megatron(recorder, 2, variable_seq_lengths=True).run("without_interleaving", microbatches=1)
    assert {key(h) for h in recorder.of("movement_start")} == set(recorder.sent.values())
    for at, entry in enumerate(recorder.log):
        if entry[0] == "movement_start":
            before = [
                e for e in recorder.log[:at] if e == "shapes" or (e[0] == "submit" and key(e[1]) == key(entry[1]))
            ]
            assert before[-1] == "shapes"
            assert len(before) >= 2
    assert {handoff.bytes for handoff in recorder.of("receive")} == {None}  # the sender tells the shape


def test_megatron_brackets_end_when_the_framework_raises(recorder):
    attach("megatron")
    pipeline = Megatron(recorder, 2, fails=True)
    with pytest.raises(RuntimeError, match=r"^the link is down$"):
        run_ranks({4: lambda: send_one(pipeline, recorder)})
    assert [name for name, *_ in recorder.log] == ["submit"]
    assert recorder.left_open == []
    schedules = importlib.import_module("megatron.core.pipeline_parallel.schedules")

    def breaks(*_):
        raise ZeroDivisionError

    p2p = importlib.import_module("megatron.core.pipeline_parallel.p2p_communication")
    wire().here.rank = 4
    p2p.P2PCommunicator(pipeline.group, pipeline.configuration()).recv_forward(SHAPE, True)
    with pytest.raises(ZeroDivisionError):
        schedules.forward_step(breaks, None, None, 1, None, [], None, 1, current_microbatch=0, is_last_stage=False)
    assert recorder.log[-1][0] == "produce"
    assert recorder.here == []


def send_one(pipeline, recorder):
    p2p = importlib.import_module("megatron.core.pipeline_parallel.p2p_communication")
    try:
        p2p.P2PCommunicator(pipeline.group, pipeline.configuration()).send_forward(payload(1), False)
    finally:
        recorder.left_open = list(recorder.here)


@pytest.mark.parametrize("also_attached", [False, True])
def test_megatron_communicator_marks_through_the_public_parameter(recorder, also_attached):
    from gapscope_instrumentation.adapters import megatron

    if also_attached:
        attach("megatron")
    pipeline = Megatron(recorder, 2)
    schedules = importlib.import_module("megatron.core.pipeline_parallel.schedules")

    def stage():
        config = pipeline.configuration()
        communicator = megatron.communicator(pipeline.group, config)
        schedules.without_interleaving(pipeline.compute, config, pipeline.group, 3, p2p_communicator=communicator)

    run_ranks(dict.fromkeys(pipeline.group.ranks, stage))
    assert set(recorder.sent) == set(sent_payloads(2, 3))
    submits = [key(handoff) for handoff in recorder.of("submit")]
    assert sorted(submits) == sorted(set(recorder.sent.values()))  # each once, attached or not
    if also_attached:
        recorder.assert_all_agree(sent_payloads(2, 3))
    else:
        assert recorder.of("produce") == []


def test_megatron_counts_while_marks_are_off(recorder):
    attach("megatron")
    pipeline = Megatron(recorder, 2)
    p2p = importlib.import_module("megatron.core.pipeline_parallel.p2p_communication")
    schedules = importlib.import_module("megatron.core.pipeline_parallel.schedules")

    def step(mb, rank):
        wire().here.rank = rank
        communicator = p2p.P2PCommunicator(pipeline.group, pipeline.configuration())
        tensor = communicator.recv_forward(SHAPE, rank == 4)
        output, _ = schedules.forward_step(
            pipeline.compute, None, None, 4, tensor, [], None, 1, current_microbatch=mb, is_last_stage=rank == 5
        )
        communicator.send_forward(output, rank == 5)

    on_one_side_only(
        recorder, [lambda mb=mb: step(mb, 4) for mb in range(4)], [lambda mb=mb: step(mb, 5) for mb in range(4)]
    )
