"""The adapters of vLLM and SGLang, on stubs with their call structure."""

import importlib
from types import SimpleNamespace

import pytest
from gapscope_instrumentation import attach, detach

from tests.instrumentation import engine_support
from tests.instrumentation.engine_support import BYTES, key, number_of, on_one_side_only, payload, run_ranks, wire

torch = pytest.importorskip("torch")

recorder = engine_support.recorder


class Vllm:
    """A pipeline of stub vLLM workers."""

    def __init__(self, recorder, ranks, tensor_parallel=None):
        self.state = importlib.import_module("vllm.distributed.parallel_state")
        self.worker = importlib.import_module("vllm.v1.worker.gpu_worker")
        self.recorder, self.ranks = recorder, ranks
        self.tp = None if tensor_parallel is None else self.state.GroupCoordinator(list(range(tensor_parallel)), 0)
        self.groups = {rank: self.state.GroupCoordinator(ranks, rank) for rank in ranks}
        self.workers = {rank: self.worker.Worker(self.running(rank)) for rank in ranks}
        recorder.watch_sends(number_of, lambda _: "fwd")

    def running(self, rank):
        done = [0]

        def run(scheduler_output, received):
            if not scheduler_output.total_num_scheduled_tokens:
                return "nothing"
            if received is not None:
                self.recorder.uses(number_of(received.tensors))
            number = 1 + done[0] + 100 * self.ranks.index(rank)
            done[0] += 1
            self.recorder.makes(number)
            tensors = {"hidden_states": payload(number), "residual": torch.ones(5), "note": "no tensor"}
            return "tokens" if rank == self.ranks[-1] else self.worker.IntermediateTensors(tensors)

        return run

    def steps(self, rank, tokens):
        wire().here.rank, self.state.groups.pp, self.state.groups.tp = rank, self.groups[rank], self.tp
        return [self.workers[rank].execute_model(SimpleNamespace(total_num_scheduled_tokens=t)) for t in tokens]


@pytest.mark.parametrize("size", [2, 3])
def test_vllm_steps(recorder, size):
    attach("vllm")
    ranks = [2 * number for number in range(size)]  # as with two ranks of tensor parallelism
    pipeline = Vllm(recorder, ranks)
    tokens = [7, 0, 1, 1]
    run_ranks({rank: lambda r=rank: pipeline.steps(r, tokens) for rank in ranks})
    recorder.assert_all_agree([1 + step + 100 * at for step in range(3) for at in range(size - 1)])
    for mark in ("produce", "submit", "receive", "consume"):
        assert {(h.seq, h.step) for h in recorder.of(mark)} == {(0, 0), (1, 1), (2, 2)}
        assert {(h.dir, h.kind, h.channel) for h in recorder.of(mark)} == {("fwd", "pp", 0)}
    assert {h.bytes for h in recorder.of("submit")} == {BYTES + 20}
    assert {h.bytes for h in recorder.of("consume")} == {BYTES + 20}


def test_vllm_order_of_the_marks_of_a_step(recorder):
    attach("vllm")
    pipeline = Vllm(recorder, [0, 1, 2])
    pipeline.steps(0, [1])
    assert pipeline.steps(1, [1]) == [None]
    assert pipeline.steps(2, [1]) == ["tokens"]
    seen = {rank: [(name, key(h)) for name, h, at, _ in recorder.log if at == rank] for rank in range(3)}
    first, second = (0, 1, 0, 0), (1, 2, 0, 0)
    assert seen[0] == [("produce", first), ("submit", first)]
    assert seen[1] == [
        ("produce", second), ("receive", first), ("receive", first), ("consume", first), ("submit", second),
    ]  # fmt: skip
    assert seen[2] == [("receive", second), ("receive", second), ("consume", second)]


def test_vllm_counts_the_bytes_of_this_ranks_slice(recorder):
    attach("vllm")
    pipeline = Vllm(recorder, [0, 2], tensor_parallel=2)
    pipeline.steps(0, [1])
    pipeline.steps(2, [1])
    assert [h.bytes for h in recorder.of("submit")] == [BYTES // 2 + 20]  # 5 elements are not divided by 2
    assert [h.bytes for h in recorder.of("receive")] == [None, BYTES // 2 + 20]  # the size comes over the wire


def test_vllm_other_coordinators_are_not_marked(recorder):
    attach("vllm")
    pipeline = Vllm(recorder, [0, 1])
    pipeline.steps(0, [])
    other = pipeline.state.GroupCoordinator([0, 1], 0)
    other.isend_tensor_dict({"hidden_states": payload(1)})
    pipeline.state.groups.pp = None
    other.isend_tensor_dict({"hidden_states": payload(1)})
    assert recorder.log == []


def test_vllm_says_the_copy_engine_where_one_moves_it(recorder):
    attach("vllm")
    pipeline = Vllm(recorder, [0, 1])
    moved_by = type("Transport", (), {"__module__": "vllm.distributed.copy_engine"})()
    pipeline.groups[0].device_communicator = SimpleNamespace(transport=moved_by)
    pipeline.steps(0, [1])
    assert recorder.of("produce")[0].transport == "copy_engine"
    assert recorder.of("submit")[0].transport is None  # these tensors are in host memory


def test_vllm_brackets_end_when_the_framework_raises(recorder):
    attach("vllm")
    pipeline = Vllm(recorder, [0, 1])

    def breaks(scheduler_output, received):
        raise RuntimeError("out of memory")

    pipeline.workers[0].model_runner.execute_model = breaks
    with pytest.raises(RuntimeError, match=r"^out of memory$"):
        pipeline.steps(0, [1])
    send = {"fails": True}
    pipeline.workers[0].model_runner.execute_model = lambda *_: pipeline.worker.IntermediateTensors(send)
    with pytest.raises(RuntimeError, match=r"^the send failed$"):
        pipeline.steps(0, [1])
    assert [name for name, *_ in recorder.log] == ["produce", "produce", "submit"]
    assert recorder.here == []


def test_vllm_counts_while_marks_are_off(recorder):
    attach("vllm")
    pipeline = Vllm(recorder, [0, 1])
    on_one_side_only(recorder, [lambda: pipeline.steps(0, [1])] * 4, [lambda: pipeline.steps(1, [1])] * 4)
    assert {h.step for h in recorder.of("consume")} == {2, 3}


class SGLang:
    """A pipeline of stub SGLang schedulers."""

    def __init__(self, recorder, ranks, overlap=False, tensor_parallel=None):
        state = importlib.import_module("sglang.srt.distributed.parallel_state")
        scheduler = importlib.import_module("sglang.srt.managers.scheduler")
        self.mixin = importlib.import_module("sglang.srt.managers.scheduler_pp_mixin")
        self.recorder, self.ranks = recorder, ranks
        tp = None if tensor_parallel is None else state.GroupCoordinator(list(range(tensor_parallel)), 0)
        self.schedulers = {
            rank: scheduler.Scheduler(state.GroupCoordinator(ranks, rank), self.running(rank), overlap, tp)
            for rank in ranks
        }
        recorder.watch_sends(number_of, lambda number: None)

    def running(self, rank):
        def run(batch, proxy):
            if proxy is not None:
                self.recorder.uses(number_of(proxy.tensors))
            number = 1 + batch + 100 * self.ranks.index(rank)
            self.recorder.makes(number)
            return self.mixin.PPProxyTensors({"hidden_states": payload(number), "residual": torch.ones(5)})

        return run

    def batch(self, rank, number, slots=2):
        wire().here.rank = rank
        scheduler = self.schedulers[rank]
        proxy = scheduler._pp_recv_proxy_tensors()
        result, scheduler.launch_event = scheduler._pp_launch_batch(number % slots, number, proxy, [], None)
        if rank != self.ranks[-1]:
            scheduler._pp_send_proxy_to_next_stage(result)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("overlap", [False, True])
def test_sglang_batches_with_and_without_a_communication_stream(recorder, size, overlap):
    attach("sglang")
    ranks = list(range(3, 3 + size))
    pipeline = SGLang(recorder, ranks, overlap)
    run_ranks({rank: lambda r=rank: [pipeline.batch(r, number) for number in range(4)] for rank in ranks})
    recorder.assert_all_agree([1 + number + 100 * at for number in range(4) for at in range(size - 1)])
    streams = {mark: {stream for name, _, _, stream in recorder.log if name == mark} for mark in ("receive", "submit")}
    assert streams["receive"] == streams["submit"] == {"communication" if overlap else "current"}
    assert {stream for name, _, _, stream in recorder.log if name in ("produce", "consume")} == {"forward"}
    for mark in ("produce", "submit", "consume"):
        assert {(h.seq, h.mb) for h in recorder.of(mark)} == {(0, 0), (1, 1), (2, 0), (3, 1)}
        assert {(h.dir, h.kind, h.channel) for h in recorder.of(mark)} == {("fwd", "pp", 0)}
    assert {h.bytes for h in recorder.of("submit")} == {h.bytes for h in recorder.of("consume")} == {BYTES + 20}


def test_sglang_counts_the_bytes_of_this_ranks_slice(recorder):
    attach("sglang")
    pipeline = SGLang(recorder, [0, 2], tensor_parallel=2)
    pipeline.batch(0, 0)
    pipeline.batch(2, 0)
    assert [h.bytes for h in recorder.of("submit")] == [BYTES // 2 + 20]
    assert [h.bytes for h in recorder.of("consume")] == [BYTES // 2 + 20]


def test_sglang_counts_each_type_for_itself(recorder):
    """Two outputs come before the proxy that is asked for; they are stashed and taken later."""
    attach("sglang")
    pipeline = SGLang(recorder, [0, 1])
    sender, receiver = pipeline.schedulers[0], pipeline.schedulers[1]
    for number in (901, 902):
        sender._pp_send_dict_to_next_stage({"hidden_states": payload(number)}, msg_type="output")
    pipeline.batch(0, 0)
    pipeline.batch(1, 0)
    assert recorder.sent == {901: (0, 1, 2, 0), 902: (0, 1, 2, 1), 1: (0, 1, 0, 0)}
    assert recorder.consumed == {1: (0, 1, 0, 0)}
    assert [(key(h), h.bytes, h.kind, h.dir) for h in recorder.of("available")] == [
        ((0, 1, 2, 0), BYTES, "pp_output", None),
        ((0, 1, 2, 1), BYTES, "pp_output", None),
    ]
    seen = len(recorder.log)
    assert [number_of(receiver._pp_recv_dict_from_prev_stage()[0]) for _ in range(2)] == [901, 902]
    assert len(recorder.log) == seen  # they had come already
    sender._pp_send_dict_to_next_stage({"hidden_states": payload(903)}, msg_type="output")
    receiver._pp_recv_dict_from_prev_stage()
    assert recorder.sent[903] == key(recorder.of("receive")[-1]) == (0, 1, 2, 2)
    pipeline.batch(0, 1)
    pipeline.batch(1, 1)
    assert recorder.consumed[2] == recorder.sent[2] == (0, 1, 0, 1)


def test_sglang_other_coordinators_are_not_marked(recorder):
    attach("sglang")
    pipeline = SGLang(recorder, [0, 1])
    pipeline.schedulers[0].pp_group.send_tensor_dict({"hidden_states": payload(1)})  # not by a scheduler
    assert recorder.log == []


def test_sglang_brackets_end_when_the_framework_raises(recorder):
    attach("sglang")
    pipeline = SGLang(recorder, [0, 1])
    scheduler = pipeline.schedulers[0]
    with pytest.raises(RuntimeError, match=r"^the send failed$"):
        scheduler._pp_send_dict_to_next_stage({"fails": True}, msg_type="proxy")

    def breaks(batch, proxy):
        raise ZeroDivisionError

    scheduler.run = breaks
    with pytest.raises(ZeroDivisionError):
        pipeline.batch(0, 0)
    assert [name for name, *_ in recorder.log] == ["submit", "produce"]
    assert recorder.here == []


def test_sglang_counts_while_marks_are_off(recorder):
    attach("sglang")
    pipeline = SGLang(recorder, [0, 1])
    batches = range(4)
    on_one_side_only(
        recorder,
        [lambda n=n: pipeline.batch(0, n) for n in batches],
        [lambda n=n: pipeline.batch(1, n) for n in batches],
    )


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_wrapper_that_someone_else_holds_marks_nothing_any_more(recorder, name):
    pipeline = {"vllm": lambda: Vllm(recorder, [0, 1]), "sglang": lambda: SGLang(recorder, [0, 1])}[name]()
    attach(name)
    of, attribute = {
        "vllm": lambda: (pipeline.worker.Worker, "execute_model"),
        "sglang": lambda: (type(pipeline.schedulers[0]), "run_batch"),
    }[name]()
    ours = getattr(of, attribute)
    detach(name)
    assert getattr(of, attribute) is not ours
    setattr(of, attribute, ours)
    if name == "vllm":
        pipeline.steps(0, [1])
    else:
        pipeline.batch(0, 0)
    assert recorder.log == []
