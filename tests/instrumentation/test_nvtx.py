"""The NVTX emitter against every kind of installed package, as stubs, and a real nsys where there is one."""

import os
import sqlite3
import subprocess
import sys
import types

import gapscope_instrumentation as gs
import pytest
from gapscope_instrumentation import contract, marking, recorder
from gapscope_instrumentation.emitters import nvtx as nvtx_module
from gapscope_instrumentation.emitters.nvtx import open_nvtx

ALWAYS = -1  # tools return a fixed value from a start: nothing may depend on it


class Domain:
    """A domain object as of 0.2.12 and later."""

    def __init__(self, name):
        self.name, self.calls = name, []

    def get_event_attributes(self, message=None):
        return types.SimpleNamespace(message=message)

    def start_range(self, attributes=None, *, message=None, payload=None):
        self.calls.append(("start", attributes.message if attributes else message, payload))
        return ALWAYS

    def end_range(self, token):
        self.calls.append(("end", token))

    def mark(self, attributes=None, *, message=None, payload=None):
        self.calls.append(("mark", attributes.message if attributes else message, payload))


class DummyDomain:
    """What newer packages hand back where the tool says that the domain is disabled."""

    def __init__(self, *_):
        pass


@pytest.fixture
def attached(monkeypatch):
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/tool.so")
    monkeypatch.setattr(recorder, "_told", set())

    def install(**attributes):
        package = types.ModuleType("nvtx")
        package.__dict__.update(attributes)
        monkeypatch.setitem(sys.modules, "nvtx", package)
        return package

    return install


def newer(attached):
    domains = []

    def make(name):
        domains.append(Domain(name))
        return domains[-1]

    attached(Domain=make, get_domain=make, enabled=lambda: True)
    emitter, how = open_nvtx()
    return emitter, how, domains[-1]


def older(attached):
    """0.2.11: calls of the package, domains without ranges."""
    calls = []
    attached(
        get_domain=lambda name: types.SimpleNamespace(name=name),
        start_range=lambda message, domain=None, payload=None: (
            calls.append(("start", message, payload, domain)) or ALWAYS
        ),
        end_range=lambda token: calls.append(("end", token)),
        mark=lambda message, domain=None, payload=None: calls.append(("mark", message, payload, domain)),
    )
    emitter, how = open_nvtx()
    return emitter, how, calls


def test_a_domain_object_gets_fixed_messages_and_the_key_as_payload(attached):
    emitter, how, domain = newer(attached)
    assert how.endswith("domain, compact")
    edge = gs.Edge(src=0, dst=1, kind="pp")
    for _ in range(2):
        handoff = edge.handoff(mb=1)
        emitter.end(emitter.begin(marking.SUBMIT, handoff))
        emitter.point(marking.AVAILABLE, handoff)
    keys = [contract.pack_pair(0, 1, 0, n) for n in (0, 1)]
    assert domain.name == contract.NVTX_DOMAIN
    assert domain.calls == [
        call
        for key in keys
        for call in (("start", "gapscope::submit", key), ("end", ALWAYS), ("mark", "gapscope::available", key))
    ]


def test_the_package_before_domains_had_ranges_gives_the_same(attached):
    emitter, how, calls = older(attached)
    assert how.endswith("package calls, compact")
    handoff = gs.Handoff(3, 4, 5, channel=2)
    emitter.end(emitter.begin(marking.PRODUCE, handoff))
    emitter.point(marking.CONSUMER_START, handoff)
    key = contract.pack_pair(3, 4, 2, 5)
    assert calls == [
        ("start", "gapscope::produce", key, "gapscope"),
        ("end", ALWAYS),
        ("mark", "gapscope::consumer_start", key, "gapscope"),
    ]


@pytest.mark.parametrize("make", [newer, older])
def test_text_is_written_where_it_is_asked_for(attached, monkeypatch, make):
    monkeypatch.setenv("GAPSCOPE_NVTX", "text")
    emitter, how, seen = make(attached)
    assert how.endswith("text")
    emitter.end(emitter.begin(marking.SUBMIT, gs.Handoff(0, 1, 5, mb=2, bytes=64)))
    calls = seen if isinstance(seen, list) else seen.calls
    assert [c[:3] for c in calls] == [
        ("start", "gapscope::submit src=0 dst=1 seq=5 mb=2 bytes=64", None),
        ("end", ALWAYS),
    ]


@pytest.mark.parametrize("make", [newer, older])
@pytest.mark.parametrize(
    "handoff", [gs.Handoff(0, 1, 5, slot=1), gs.Handoff(70_000, 1, 5), gs.Handoff(0, 1, 5, channel=16)]
)
def test_keys_that_the_compact_form_does_not_hold_are_written_in_text(attached, make, handoff):
    emitter, _, seen = make(attached)
    emitter.end(emitter.begin(marking.SUBMIT, handoff))
    emitter.point(marking.AVAILABLE, handoff)
    calls = seen if isinstance(seen, list) else seen.calls
    texts = [(c[1], c[2]) for c in calls if c[0] != "end"]
    assert texts == [(f"gapscope::{mark}{handoff.text}", None) for mark in ("submit", "available")]


@pytest.mark.parametrize("make", [newer, older])
def test_a_group_is_announced_with_its_number_now_and_then(attached, make):
    emitter, _, seen = make(attached)
    edge = gs.Edge(group="tp0", rank=3)
    for _ in range(nvtx_module._ANNOUNCED_AGAIN + 1):
        emitter.end(emitter.begin(marking.SUBMIT, edge.handoff()))
    calls = seen if isinstance(seen, list) else seen.calls
    said = [c[1] for c in calls if c[0] == "mark"]
    number = contract.unpack(gs.Handoff(group="tp0", seq=0).payload)[1]
    assert said == [f"gapscope::group group=tp0 number={number} rank=3"] * 2


@pytest.mark.parametrize("make", [newer, older])
def test_memory_of_messages_is_a_fixed_set(attached, make):
    emitter, _, seen = make(attached)
    edge = gs.Edge(src=0, dst=1)
    for n in range(1000):
        emitter.end(emitter.begin(n % 4, edge.handoff(mb=n)))
    calls = seen if isinstance(seen, list) else seen.calls
    assert {c[1] for c in calls if c[0] == "start"} == {
        "gapscope::" + m for m in ("produce", "submit", "receive", "consume")
    }


def test_a_disabled_domain_is_said_once_with_its_remedy_and_the_log_is_kept(attached, tmp_path):
    attached(Domain=DummyDomain, get_domain=DummyDomain, enabled=lambda: True)

    def twice():
        for _ in range(2):
            with gs.capture(tmp_path), gs.submit(gs.Handoff(0, 1, 0)):
                assert "log" in {e.name for e in marking.emitters()}
                assert "nvtx" not in {e.name for e in marking.emitters()}

    with pytest.warns(RuntimeWarning, match=r"domain 'gapscope' is disabled.*nvtx==0\.2\.11.*mark log") as said:
        twice()
    assert len(said) == 1
    assert list(tmp_path.glob("*.gslog"))


def test_what_cannot_be_used_is_named(attached, monkeypatch):
    attached()  # a package without domains
    assert open_nvtx() == (None, "the nvtx package is older than 0.2.11 and has no domains")
    attached(Domain=DummyDomain, enabled=lambda: False)
    assert open_nvtx() == (None, "switched off (NVTX_DISABLE)")
    shared = types.SimpleNamespace(message="the first")
    broken = type("Domain", (Domain,), {"get_event_attributes": lambda self, message=None: shared})
    attached(Domain=broken)
    emitter, why = open_nvtx()
    assert emitter is None
    assert "gives two messages one name" in why
    monkeypatch.setitem(sys.modules, "nvtx", None)
    assert open_nvtx() == (None, "the nvtx package is not installed (pip install nvtx)")
    monkeypatch.setenv("GAPSCOPE_NVTX", "off")
    assert open_nvtx() == (None, "switched off (GAPSCOPE_NVTX)")
    monkeypatch.delenv("GAPSCOPE_NVTX")
    monkeypatch.delenv("NVTX_INJECTION64_PATH")
    assert open_nvtx() == (None, "no tool listens")


JOB = """
import gapscope_instrumentation as gs
edge = gs.Edge(src=0, dst=1)
with gs.step(7):
    handoff = edge.handoff(mb=2, bytes=64)
with gs.produce(handoff):
    pass
gs.available(handoff)
print(gs.status()["nvtx"])
"""


def recorded(nsys, folder, environment):
    """Return the report of `JOB`, without its suffix. On a busy machine nsys at times ends before it starts the job."""
    for attempt in (1, 2):
        report = folder / f"report{attempt}"
        record = [nsys, "profile", "-t", "nvtx", "-s", "none", "--cpuctxsw=none", "-o", str(report)]
        record += [sys.executable, "-c", JOB]
        done = subprocess.run(record, env=environment, check=False, capture_output=True, text=True, timeout=300)
        if done.returncode == 0:
            return report
    raise AssertionError(done.stdout + done.stderr)


@pytest.mark.nsys
@pytest.mark.parametrize("form", ["compact", "text"])
def test_a_real_nsys_records_both_forms(nsys, tmp_path, form):
    older_package = os.environ.get("GAPSCOPE_TEST_NVTX")
    if not older_package:
        pytest.skip("GAPSCOPE_TEST_NVTX names no folder with an nvtx that this nsys takes")
    path = os.pathsep.join([older_package, *sys.path])
    env = {**os.environ, "GAPSCOPE": "1", "GAPSCOPE_NVTX": form, "GAPSCOPE_DIR": str(tmp_path), "PYTHONPATH": path}
    report = recorded(nsys, tmp_path, env)
    export = [nsys, "export", "--type", "sqlite", "-o", f"{report}.sqlite", f"{report}.nsys-rep"]
    subprocess.run(list(map(str, export)), env=env, check=True, capture_output=True, timeout=300)
    with sqlite3.connect(f"{report}.sqlite") as base:
        rows = base.execute(
            "SELECT coalesce(n.text, s.value), n.int64Value, n.eventType FROM NVTX_EVENTS n "
            "LEFT JOIN StringIds s ON s.id = n.textId WHERE n.eventType IN (34, 60) ORDER BY n.start"
        ).fetchall()
    base.close()
    (definition, *_), *marks = rows
    assert definition.startswith("gapscope::process ")
    fields = " src=0 dst=1 seq=0 step=7 mb=2 bytes=64"
    if form == "compact":
        key = contract.pack_pair(0, 1, 0, 0)
        assert marks == [("gapscope::step", 7, 60), ("gapscope::produce", key, 60), ("gapscope::available", key, 34)]
    else:
        expected = [("step", " step=7", 60), ("produce", fields, 60), ("available", fields, 34)]
        assert marks == [(f"gapscope::{mark}{text}", None, kind) for mark, text, kind in expected]
