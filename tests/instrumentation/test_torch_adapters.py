"""The adapters of torch: what they change and restore, what they refuse, and what they count while marks are off."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import gapscope_instrumentation as gs
import pytest
import torch
import torch.distributed as dist
from gapscope_instrumentation import marking
from gapscope_instrumentation.adapters import find, nesting, torch_keys
from gapscope_instrumentation.contract import MARKS
from torch.distributed import distributed_c10d as c10d
from torch.distributed.pipelining import PipelineStage, schedules, stage
from torch.testing._internal.distributed.fake_pg import FakeStore

ADAPTERS = ["torch_pipelining", "c10d"]
ROOT = Path(gs.__file__).parents[1]


class Collected:
    """An emitter that keeps what it gets."""

    name = "collected"

    def __init__(self):
        self.marks = []  # (mark, handoff) in the order in which they were opened
        self.open = []

    def begin(self, mark, handoff):
        entry = (MARKS[mark], handoff)
        self.marks.append(entry)
        self.open.append(entry)
        return entry

    def end(self, token):
        self.open.remove(token)

    def point(self, mark, handoff):
        self.marks.append((MARKS[mark], handoff))

    def close(self):
        pass

    def fields(self, mark, *names):
        """Return the named fields of all marks of one kind."""
        return [tuple(getattr(handoff, name) for name in names) for kind, handoff in self.marks if kind == mark]


@pytest.fixture
def collected():
    """Marks of the test, from here on."""
    emitter = Collected()
    before = marking.emitters()
    marking.set_emitters((emitter,))
    yield emitter
    marking.set_emitters(before)
    assert emitter.open == []


@pytest.fixture(params=ADAPTERS)
def name(request):
    yield request.param
    gs.detach(request.param)


@pytest.fixture
def attached():
    """Attach adapters for the length of a test."""
    yield lambda *names: [gs.attach(name) for name in names]
    for name in ADAPTERS:
        gs.detach(name)


@pytest.fixture
def alone():
    """A process group of this process alone."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield
    dist.destroy_process_group()


@pytest.fixture
def one_of_two():
    """This process as rank 0 of 2; the other is a fake, and nothing moves."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    dist.destroy_process_group()


@pytest.fixture(autouse=True)
def no_mark_fails(monkeypatch):
    """Let no mark fail unnoticed."""
    told = set()
    monkeypatch.setattr(nesting, "_told", told)
    yield told
    assert told == set()


def changed_by_adapters():
    """Return everything that an adapter may change, as it is now."""
    found = {}
    for module in (stage, schedules, c10d, dist):
        found |= {(module.__name__, name): value for name, value in vars(module).items()}
        for owner in [value for value in vars(module).values() if issubclass(type(value), type)]:
            found |= {(owner.__qualname__, name): value for name, value in vars(owner).items()}
    return found


def differences(before, now):
    assert before.keys() == now.keys()
    return {key for key in before if before[key] is not now[key]}


def test_detach_restores_every_target(name):
    before = changed_by_adapters()
    gs.attach(name)
    once = changed_by_adapters()
    replaced = differences(before, once)
    assert len(replaced) >= len(find(name).targets) - 1  # one target is only called
    gs.attach(name)
    assert differences(once, changed_by_adapters()) == set()
    gs.detach(name)
    assert differences(before, changed_by_adapters()) == set()
    gs.detach(name)
    assert differences(before, changed_by_adapters()) == set()


def owner_of(target):
    owner, last, _ = target.resolve()
    return owner, last


def every_target():
    for adapter in ADAPTERS:
        for target in find(adapter).targets:
            yield pytest.param(adapter, target, id=f"{adapter}-{target.path}")


@pytest.mark.parametrize(("adapter", "target"), list(every_target()))
def test_a_target_with_other_parameters_is_refused_by_name(adapter, target, monkeypatch):
    owner, last = owner_of(target)

    def other(nothing_that_we_know):
        """other(nothing_that_we_know)."""

    monkeypatch.setattr(owner, last, other)
    before = changed_by_adapters()
    with pytest.raises(gs.AdapterError) as refused:
        gs.attach(adapter)
    assert target.path in str(refused.value)
    assert "checked against torch 2.11.0, 2.13.0 and 2.14.1" in str(refused.value)
    assert differences(before, changed_by_adapters()) == set()


# Of a step, the abstract one of the base would still be there.
NEEDED = [param for param in every_target() if not param.id.endswith(".step")]


@pytest.mark.parametrize(("adapter", "target"), NEEDED)
def test_a_target_that_is_not_there_is_refused_by_name(adapter, target, monkeypatch):
    monkeypatch.delattr(*owner_of(target))
    before = changed_by_adapters()
    with pytest.raises(gs.AdapterError, match=target.path.rpartition(".")[2]):
        gs.attach(adapter)
    assert differences(before, changed_by_adapters()) == set()


def test_what_someone_else_wrapped_meanwhile_stays_and_is_silent(attached, alone, collected, monkeypatch):
    attached("torch_pipelining")
    ours = schedules._wait_batch_p2p
    monkeypatch.setattr(schedules, "_wait_batch_p2p", functools.partial(ours))
    theirs = schedules._wait_batch_p2p
    gs.detach("torch_pipelining")
    assert schedules._wait_batch_p2p is theirs
    run_local(steps=1)
    assert collected.marks == []


WIDTH, ROWS, MICROBATCHES = 4, 2, 3
STAGES = 2
BYTES = ROWS * WIDTH * 4  # float32


def local_schedule(kind=PipelineStage, modules=None):
    """Return a schedule whose two stages are both here, so that one hands on to the other."""
    modules = modules or [torch.nn.Linear(WIDTH, WIDTH) for _ in range(STAGES)]
    stages = [kind(module, index, STAGES, torch.device("cpu")) for index, module in enumerate(modules)]
    return schedules.ScheduleInterleaved1F1B(stages, MICROBATCHES, loss_fn=torch.nn.MSELoss())


def run_local(schedule=None, steps=1):
    schedule = schedule or local_schedule()
    rows = ROWS * MICROBATCHES
    for _ in range(steps):
        schedule.step(torch.randn(rows, WIDTH), target=torch.randn(rows, WIDTH))


KEY = ("src", "dst", "channel", "seq", "step", "mb", "dir", "src_stage", "dst_stage", "transport", "kind", "device")


def local_handoffs(steps, numbers=None):
    """Return the keys of all handoffs of `run_local`, from the definition of the key."""
    return {
        (0, 0, channel, (step * MICROBATCHES + mb) * STAGES + src, (numbers or range(99))[step], mb, way, src, 1 - src,
         "local", "pp", "cpu")
        for step in steps
        for mb in range(MICROBATCHES)
        for channel, way, src in ((0, "fwd", 0), (1, "bwd", 1))
    }  # fmt: skip


def test_stages_of_one_rank_hand_on_locally(attached, alone, collected):
    attached("torch_pipelining")
    run_local(steps=2)
    for mark in ("produce", "consume"):
        found = collected.fields(mark, *KEY)
        assert len(found) == len(set(found))
        assert set(found) == local_handoffs(steps=(0, 1))
    assert set(collected.fields("consume", "bytes")) == {(BYTES,)}
    assert collected.fields("submit", "seq") == collected.fields("receive", "seq") == []
    assert collected.fields("step", "step", "rank") == [(0, 0), (1, 0)]


def test_steps_are_counted_while_marks_are_off(attached, alone, collected):
    attached("torch_pipelining")
    schedule = local_schedule()
    marking.set_emitters(())
    run_local(schedule, steps=2)
    assert collected.marks == []
    marking.set_emitters((collected,))
    run_local(schedule, steps=1)
    assert set(collected.fields("produce", *KEY)) == local_handoffs(steps=(2,))


def test_two_schedules_of_one_group_share_its_count(attached, alone, collected):
    attached("torch_pipelining")
    run_local(local_schedule())
    run_local(local_schedule())
    assert set(collected.fields("consume", *KEY)) == local_handoffs(steps=(0, 1))


def test_a_step_of_the_job_is_not_marked_again_and_numbers_the_handoffs(attached, alone, collected):
    attached("torch_pipelining")
    with gs.step(70):
        run_local(steps=2)
    assert collected.fields("step", "step") == [(70,)]
    assert set(collected.fields("produce", *KEY)) == local_handoffs(steps=(0, 1), numbers=[70, 70])


def test_a_step_whose_own_cost_is_measured_ends_like_any_other(collected):
    for number in range(2 * marking.SAMPLED_EVERY):
        with gs.step(number):
            assert marking.current_step.get() == number
        assert marking.current_step.get() is None


class Overriding(PipelineStage):
    """A stage of a user that has its own functions and calls those of its base."""

    called: ClassVar[list[str]] = []

    def forward_one_chunk(self, fwd_chunk_id, args, kwargs=None, save_forward_output=True):
        self.called.append("forward")
        return super().forward_one_chunk(fwd_chunk_id, args, kwargs, save_forward_output)

    def backward_one_chunk(self, *args, **kwargs):
        self.called.append("backward")
        return super().backward_one_chunk(*args, **kwargs)


class Stepping(schedules.ScheduleInterleaved1F1B):
    """A schedule of a user, likewise."""

    def step(self, *args, **kwargs):
        return super().step(*args, **kwargs)


def test_overrides_are_marked_once(attached, alone, collected):
    attached("torch_pipelining")
    modules = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(STAGES)]
    stages = [Overriding(module, index, STAGES, torch.device("cpu")) for index, module in enumerate(modules)]
    Overriding.called.clear()
    run_local(Stepping(stages, MICROBATCHES, loss_fn=torch.nn.MSELoss()))
    assert Overriding.called.count("forward") == Overriding.called.count("backward") == STAGES * MICROBATCHES
    assert sorted(collected.fields("produce", *KEY)) == sorted(local_handoffs(steps=(0,)))
    assert collected.fields("step", "step") == [(0,)]


class Failing(torch.nn.Module):
    def forward(self, given):
        raise ZeroDivisionError("on purpose")


def test_exceptions_of_the_framework_come_through_and_close_the_brackets(attached, alone, collected):
    def failure():
        modules = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)]
        schedule = local_schedule(modules=modules)
        run_local(schedule)
        schedule._stages[1].submod = Failing()
        with pytest.raises(RuntimeError) as failed:
            run_local(schedule)
        return failed.value

    plain = failure()
    attached("torch_pipelining")
    marked = failure()
    assert (type(marked), str(marked).split()[:8]) == (type(plain), str(plain).split()[:8])
    assert isinstance(marked.__cause__, ZeroDivisionError)
    assert collected.marks
    assert collected.open == []
    assert marking.current_step.get() is None


def test_a_failing_mark_is_a_warning_and_the_step_goes_on(attached, alone, collected, monkeypatch, no_mark_fails):
    attached("torch_pipelining")
    schedule = local_schedule()
    monkeypatch.setattr(torch_keys, "global_rank", lambda stage, index: 1 // 0)
    with pytest.warns(RuntimeWarning, match="torch_pipelining could not mark a handoff .ZeroDivisionError"):
        run_local(schedule)
    no_mark_fails.clear()


def test_p2pop_takes_isend_and_irecv(attached, one_of_two):
    attached("c10d")
    given = torch.zeros(3)
    assert dist.P2POp(dist.isend, given, 1).op is dist.isend
    assert dist.P2POp(dist.irecv, given, 1).op is dist.irecv
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, given, 1), dist.P2POp(dist.irecv, given, 1)])
    for work in works:
        work.wait()


PAIR = ("src", "dst", "channel", "seq", "bytes", "device", "transport")


def test_transfers_are_counted_per_pair_group_and_tag(attached, one_of_two, collected):
    attached("c10d")
    given = torch.zeros(3)
    pair = dist.new_group([0, 1])
    dist.isend(given, 1)
    marking.set_emitters(())
    dist.isend(given, 1)  # nobody sees it; it counts
    marking.set_emitters((collected,))
    dist.send(given, 1)
    dist.isend(given, 1, group=pair)
    dist.isend(given, 1, tag=2)
    dist.irecv(given, 1).wait()
    every = [dist.P2POp(dist.isend, given, 1), dist.P2POp(dist.irecv, given, 1)]
    dist.batch_isend_irecv(every)
    sends = collected.fields("submit", *PAIR)
    assert sends == [
        (0, 1, 8, 0, 12, "cpu", "fake"),
        (0, 1, 8, 2, 12, "cpu", "fake"),
        (0, 1, 9, 0, 12, "cpu", "fake"),
        (0, 1, 8 + 2 * 1024, 0, 12, "cpu", "fake"),
        (0, 1, 8, 3, 12, "cpu", "fake"),
    ]
    posted, waited, in_batch = collected.fields("receive", *PAIR)
    assert posted == waited == (1, 0, 8, 0, 12, "cpu", "fake")
    assert in_batch == (1, 0, 8, 1, 12, "cpu", "fake")


def test_collectives_are_counted_per_group(attached, one_of_two, collected):
    attached("c10d")
    given = torch.zeros(3)
    pair = dist.new_group([0, 1])
    before = len(collected.marks)  # making a group may call collectives of its own
    first = 1 + max((seq for group, seq in collected.fields("submit", "group", "seq") if group == "0"), default=-1)
    dist.all_reduce(given)
    marking.set_emitters(())
    dist.barrier()
    marking.set_emitters((collected,))
    dist.all_gather([given.clone(), given.clone()], given)
    work = dist.all_reduce(given, group=pair, async_op=True)
    work.wait()
    dist.all_gather_single(torch.zeros(6), given, group=pair)
    del collected.marks[:before]
    of = ("group", "seq", "rank", "bytes", "src", "transport")
    assert collected.fields("submit", *of) == [
        ("0", first, 0, 12, None, "fake"),
        ("0", first + 2, 0, 12, None, "fake"),
        (pair.group_name, 0, 0, 12, None, "fake"),
        (pair.group_name, 1, 0, 12, None, "fake"),
    ]
    # Around the call, and around its wait.
    assert collected.fields("receive", "group", "seq") == [
        (group, seq) for group, seq in collected.fields("submit", "group", "seq") for _ in range(2)
    ]


def test_a_transfer_that_another_adapter_marks_is_counted_and_not_marked(attached, one_of_two, collected):
    attached("c10d")
    given = torch.zeros(3)
    with nesting.Around([], transfer=True):
        dist.isend(given, 1)
        dist.batch_isend_irecv([dist.P2POp(dist.isend, given, 1)])
        dist.all_reduce(given)
    assert collected.marks == []
    dist.isend(given, 1)
    dist.all_reduce(given)
    assert collected.fields("submit", "src", "seq") == [(0, 2), (None, 1)]


def test_exceptions_of_a_transfer_come_through(attached, alone, collected):
    def failures():
        found = []
        for call in (
            lambda: dist.group.WORLD.send("no tensors", 0, 0),
            lambda: dist.group.WORLD.recv([torch.zeros(1)], "nobody", 0),
            lambda: dist.isend(torch.zeros(1), 0, tag="none"),
            lambda: dist.broadcast(torch.zeros(1), src=7),
            lambda: dist.all_reduce("no tensor"),
            lambda: dist.batch_isend_irecv([]),
        ):
            with pytest.raises(Exception) as failed:  # which one is the question
                call()
            found.append((type(failed.value), str(failed.value).partition("Invoked with")[0]))
        return found

    plain = failures()
    attached("c10d")
    assert failures() == plain
    assert collected.open == []


# In processes of their own


def run_python(*arguments, **environment):
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GAPSCOPE")}
    path = os.pathsep.join([str(ROOT), clean.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={**clean, "PYTHONPATH": path, "GAPSCOPE_LOG": "off", **environment},
    )


LATE = """
import sys, json
import gapscope_instrumentation as gs
from gapscope_instrumentation.adapters import on_import
before = ("torch" in sys.modules, dict(on_import.states), [type(f).__name__ for f in sys.meta_path][:1])
import torch.distributed.pipelining as pipelining
from torch.distributed.pipelining import schedules
states = {name: state for name, state in gs.status().items() if name.startswith("adapter ")}
print(json.dumps([*before, states, hasattr(schedules._batch_p2p, "__wrapped__"),
                  type(schedules.__loader__).__name__, [type(f).__name__ for f in sys.meta_path][:1]]))
"""


def test_an_adapter_of_the_environment_waits_for_its_framework():
    done = run_python("-c", LATE, GAPSCOPE="1", GAPSCOPE_ATTACH="torch_pipelining, c10d")
    assert (done.returncode, done.stderr) == (0, "")
    loaded, waiting, watching, states, wrapped, loader, after = json.loads(done.stdout)
    assert not loaded
    assert waiting["torch_pipelining"] == (
        "waits for torch.distributed.pipelining.schedules, torch.distributed.pipelining.stage"
    )
    assert watching == ["_Finder"]
    assert states == {"adapter torch_pipelining": "attached", "adapter c10d": "attached"}
    assert wrapped
    assert loader == "SourceFileLoader"
    assert after != ["_Finder"]


def test_an_adapter_that_cannot_be_attached_is_a_warning_with_the_reason():
    job = "import gapscope_instrumentation; print('the job goes on')"
    done = run_python("-c", job, GAPSCOPE="1", GAPSCOPE_ATTACH="torch_pipelinig")
    assert (done.returncode, done.stdout) == (0, "the job goes on\n")
    assert "'torch_pipelinig' is not attached: there is no adapter 'torch_pipelinig'; known are" in done.stderr


CHANGED = """
import gapscope_instrumentation
import torch.distributed.pipelining.stage as stage
print("the job goes on")
"""


def test_a_framework_that_does_not_fit_is_a_warning_too(tmp_path):
    package = tmp_path / "torch" / "distributed" / "pipelining"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").write_text("")
    (package / "schedules.py").write_text("")
    (package / "stage.py").write_text("from . import schedules\nclass _PipelineStageBase: pass\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = run_python("-c", CHANGED, GAPSCOPE="1", GAPSCOPE_ATTACH="torch_pipelining", PYTHONPATH=path)
    assert (done.returncode, done.stdout) == (0, "the job goes on\n")
    assert "torch.distributed.pipelining.stage._PipelineStageBase.get_fwd_send_ops is not there" in done.stderr


JOB = """
import json, os, subprocess, sys
import neighbour
own = {"argv": sys.argv[1:], "name": __name__, "on": "gapscope_instrumentation" in sys.modules, "say": neighbour.WORD}
if "--child" not in sys.argv:
    child = subprocess.run([sys.executable, __file__, "--child"], check=True, capture_output=True, text=True)
    own["child"] = json.loads(child.stdout)
else:
    import gapscope_instrumentation
    own["marks"] = gapscope_instrumentation.status()["marks"]
    own["site"] = getattr(sys.modules.get("sitecustomize"), "OF_THE_JOB", None)
print(json.dumps(own))
"""


@pytest.mark.parametrize("as_module", [False, True])
def test_the_runner_switches_on_the_job_and_its_children(tmp_path, as_module):
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "neighbour.py").write_text("WORD = 'here'")
    (tmp_path / "sitecustomize.py").write_text("OF_THE_JOB = True")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    job = ["-m", "job"] if as_module else [tmp_path / "job.py"]
    done = run_python("-m", "gapscope_instrumentation", *job, "--epochs", "1", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "argv": ["--epochs", "1"],
        "name": "__main__",
        "on": True,
        "say": "here",
        "child": {"argv": ["--child"], "name": "__main__", "on": True, "say": "here", "marks": "on", "site": True},
    }
