"""What the adapters of Megatron-LM, DeepSpeed, vLLM and SGLang have in common, on stubs of the frameworks."""

import importlib
import inspect
import sys
from types import SimpleNamespace

import pytest
from gapscope_instrumentation import AdapterError, attach, detach
from gapscope_instrumentation.adapters import find
from gapscope_instrumentation.adapters.base import Target
from gapscope_instrumentation.adapters.wires import where

from tests.instrumentation import engine_support
from tests.instrumentation.engine_support import ENGINES, STUBS, as_it_stands

torch = pytest.importorskip("torch")

recorder = engine_support.recorder


@pytest.mark.parametrize("name", ENGINES)
def test_attaching_twice_is_attaching_once_and_detaching_restores(recorder, name):
    adapter = find(name)
    before = as_it_stands(adapter)
    attach(name)
    attached = as_it_stands(adapter)
    attach(name)
    assert all(a is b for a, b in zip(attached, as_it_stands(adapter), strict=True))
    assert sum(a is not b for a, b in zip(before, attached, strict=True)) >= len(before) // 2
    detach(name)
    detach(name)
    assert all(a is b for a, b in zip(before, as_it_stands(adapter), strict=True))


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("change", ["gone", "other parameters"])
def test_it_refuses_by_name_and_changes_nothing(recorder, monkeypatch, name, change):
    adapter = find(name)
    as_it_stands(adapter)  # loads the framework
    for target in adapter.targets:
        if change == "other parameters" and not target.parameters:
            continue
        owner, last, _ = target.resolve()
        own = last in vars(owner)
        with monkeypatch.context() as patch:
            if change == "other parameters":
                patch.setattr(owner, last, lambda something_else: None)
            elif own:
                patch.delattr(owner, last)
            else:  # inherited from object: another owner's
                continue
            others = [t for t in adapter.targets if t != target]
            before = [inspect.getattr_static(*t.resolve()[:2]) for t in others]
            with pytest.raises(AdapterError, match=f"(?s){name}.*{last}"):
                attach(name)
            after = [inspect.getattr_static(*t.resolve()[:2]) for t in others]
            assert all(a is b for a, b in zip(before, after, strict=True))
    attach(name)


@pytest.mark.parametrize("name", ENGINES)
def test_a_framework_that_is_not_installed_is_named(recorder, monkeypatch, name):
    top = find(name).targets[0].module.partition(".")[0]
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(STUBS)])
    with pytest.raises(AdapterError, match=f"{name}.*No module named '{top}"):
        attach(name)


def test_a_table_can_be_a_target(recorder):
    Target("deepspeed.runtime.pipe.engine", "PipelineEngine._INSTRUCTION_MAP").resolve()
    with pytest.raises(AdapterError, match="_NO_SUCH_MAP is not there"):
        Target("deepspeed.runtime.pipe.engine", "PipelineEngine._NO_SUCH_MAP").resolve()


@pytest.mark.parametrize(
    ("backend", "on_cpu", "said"),
    [
        ("nccl", False, {"transport": "nccl"}),
        ("gloo", True, {"transport": "gloo", "device": "cpu"}),
        ("gloo", None, {"transport": "gloo", "device": "cpu"}),
        ("nccl", None, {"transport": "nccl"}),
        ("cpu:gloo,cuda:nccl", False, {"transport": "nccl"}),
        ("cpu:gloo,cuda:nccl", True, {"transport": "gloo", "device": "cpu"}),
        ("cpu:gloo,cuda:nccl", None, {}),
        ("undefined", None, {}),
    ],
)
def test_the_backend_tells_the_transport(monkeypatch, backend, on_cpu, said):
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace(get_backend=lambda group: backend))
    assert where(object(), [] if on_cpu is None else [SimpleNamespace(is_cpu=on_cpu)]) == said


PLUGINS = [("vllm", "vllm.v1.worker.gpu_worker"), ("sglang", "sglang.srt.managers.scheduler")]


@pytest.mark.parametrize(("name", "module"), PLUGINS)
@pytest.mark.parametrize("loaded_before", [False, True])
def test_a_plugin_attaches_once_the_module_is_loaded(recorder, monkeypatch, name, module, loaded_before):
    plugin = importlib.import_module(f"gapscope_instrumentation.adapters.{name}").plugin
    monkeypatch.setenv("GAPSCOPE", "1")
    finders = list(sys.meta_path)
    if loaded_before:
        importlib.import_module(module)
    plugin()
    plugin()
    if not loaded_before:
        assert module not in sys.modules
        assert len(sys.meta_path) == len(finders) + 1
    loaded = importlib.import_module(module)
    assert sys.meta_path == finders
    assert type(loaded.__spec__.loader).__module__ == "_frozen_importlib_external"
    replaced = next(t for t in find(name).targets if t.module == module)
    owner, last, _ = replaced.resolve()
    assert hasattr(inspect.getattr_static(owner, last), "__wrapped__")


@pytest.mark.parametrize(("name", "module"), PLUGINS)
@pytest.mark.parametrize("value", [None, "0", "off"])
def test_a_plugin_does_nothing_unless_asked(recorder, monkeypatch, name, module, value):
    monkeypatch.delenv("GAPSCOPE", raising=False)
    if value is not None:
        monkeypatch.setenv("GAPSCOPE", value)
    finders = list(sys.meta_path)
    importlib.import_module(f"gapscope_instrumentation.adapters.{name}").plugin()
    importlib.import_module(module)
    assert sys.meta_path == finders
    for target in find(name).targets:
        assert not hasattr(target.resolve()[2], "__wrapped__")


@pytest.mark.parametrize(("name", "module"), PLUGINS)
def test_a_plugin_that_does_not_fit_warns_and_lets_the_job_go_on(recorder, monkeypatch, name, module):
    monkeypatch.setenv("GAPSCOPE", "1")
    owner, last, _ = find(name).targets[1].resolve()
    monkeypatch.delattr(owner, last)
    plugin = importlib.import_module(f"gapscope_instrumentation.adapters.{name}").plugin
    importlib.import_module(module)
    with pytest.warns(RuntimeWarning, match=f"(?s){last}.*Nothing was attached"):
        plugin()
