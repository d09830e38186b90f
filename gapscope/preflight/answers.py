"""Which answers each setting of a capture gives: the one list, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass

GPU_TIMES = ("producer_finish", "movement_start", "available", "consumer_start")
ALL_TIMES = ("producer_finish", "submit", "receive_post", *GPU_TIMES[1:])


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a capture tool, or of the environment.

    Attributes:
        key: Name of it for programs.
        tool: ``nsys``, ``torch`` or ``environment``.
        option: What to write into the command, or what must not be in the environment.
        lost: Answers that are missing or changed without it: times of a handoff, names of causes, or other results.
        because: One sentence for people.
        only_if: When it matters, if it does not always; empty: always.
        known_as: Name that ``nsys profile --help`` must list; empty: every version has it.
    """

    key: str
    tool: str
    option: str
    lost: tuple[str, ...]
    because: str
    only_if: str = ""
    known_as: str = ""


SETTINGS = (
    Setting(
        "trace_nvtx",
        "nsys",
        "-t nvtx",
        ("handoffs by marks", "steps and requests", "names of NCCL operations"),
        "The report holds no marks, so handoffs are known from the mark log alone, if there is one.",
    ),
    Setting(
        "trace_cuda",
        "nsys",
        "-t cuda",
        GPU_TIMES,
        "No GPU operation is recorded: times that the device decides are missing, and so are all causes on the device.",
    ),
    Setting(
        "graph_nodes",
        "nsys",
        "--cuda-graph-trace=node",
        ("producer_finish", "consumer_start", "consumer_busy", "stream_queueing"),
        "Of work replayed from a CUDA graph only the bounds of the whole graph are known.",
        "the job replays CUDA graphs (it costs time per node)",
        "cuda-graph-trace",
    ),
    Setting(
        "event_trace",
        "nsys",
        "--cuda-event-trace=true",
        ("event_release", "upstream_compute"),
        "Event waits of other streams cannot be tied to their record, so these causes lose their evidence.",
        "",
        "cuda-event-trace",
    ),
    Setting(
        "sample_none",
        "nsys",
        "-s none",
        ("late_submission", "submit_call", "late_launch"),
        "Sampling of the CPU slows the host down and makes large reports: host causes grow.",
    ),
    Setting(
        "cpuctxsw_none",
        "nsys",
        "--cpuctxsw=none",
        ("late_submission", "submit_call", "late_launch"),
        "Tracing of thread switches slows the host down, makes large reports, and gives no answer here.",
        "",
        "cpuctxsw",
    ),
    Setting(
        "backtrace_none",
        "nsys",
        "-b none",
        ("late_submission", "submit_call", "late_launch"),
        "Backtraces slow the host down and give no answer here.",
        "",
        "backtrace",
    ),
    Setting(
        "no_osrt",
        "nsys",
        "-t without osrt",
        ("late_submission", "submit_call", "late_launch"),
        "Tracing of the OS runtime slows system calls down, makes large reports, and gives no answer here.",
    ),
    Setting(
        "capture_range_end",
        "nsys",
        "--capture-range-end=stop",
        ("handoffs after the range", "the end of the job"),
        "nsys ends the job where the capture range ends: one rank stops while the others still wait for it.",
        "--capture-range is used",
        "capture-range-end",
    ),
    Setting(
        "fork",
        "nsys",
        "--trace-fork-before-exec=true",
        ALL_TIMES,
        "Nothing that a forked worker does is recorded, neither its marks nor its GPU work.",
        "ranks are forked processes (multiprocessing with fork); nsys warns that a job may hang with it",
        "trace-fork-before-exec",
    ),
    Setting(
        "nvtx_domains",
        "nsys",
        "no --nvtx-domain-include/-exclude that leaves out gapscope or NCCL",
        ("handoffs by marks", "steps and requests", "names of NCCL operations"),
        "A filter of NVTX domains throws the marks away before they are written.",
    ),
    Setting(
        "output_per_rank",
        "nsys",
        "-o trace-%q{RANK}",
        ("recordings of all ranks but one",),
        "Every rank starts its own nsys, and all of them write the same file.",
        "nsys runs inside the launcher (torchrun, mpirun, srun)",
    ),
    Setting(
        "activity_cpu",
        "torch",
        "activities=[ProfilerActivity.CPU, ...]",
        ("handoffs by marks", "submit", "receive_post", *GPU_TIMES),
        "Marks and host calls are CPU activity: without it there are neither.",
    ),
    Setting(
        "activity_cuda",
        "torch",
        "activities=[..., ProfilerActivity.CUDA]",
        GPU_TIMES,
        "No GPU operation is recorded: every time that the device decides is missing.",
        "the job uses a GPU",
    ),
    Setting(
        "sync_events",
        "torch",
        "experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True)",
        ("event_release", "upstream_compute", "consumer_busy"),
        "Event waits and synchronizations are not recorded: dependencies between streams are inferred or unknown.",
        "the job uses a GPU",
    ),
    Setting(
        "no_stack",
        "torch",
        "with_stack=False",
        ("late_submission", "submit_call", "late_launch"),
        "Recording Python stacks slows every call down; host causes grow by what the profiler itself takes.",
    ),
    Setting(
        "no_shapes",
        "torch",
        "record_shapes=False",
        ("late_submission", "submit_call", "late_launch"),
        "Recording shapes slows every operation down a little; marks carry the sizes, so nothing is lost without it.",
    ),
    Setting(
        "NVTX_DISABLE",
        "environment",
        "NVTX_DISABLE",
        ("handoffs by marks", "steps and requests"),
        "The nvtx package writes nothing while this variable is set: a report of nsys holds no marks.",
    ),
    Setting(
        "NCCL_NVTX_DISABLE",
        "environment",
        "NCCL_NVTX_DISABLE",
        ("names of NCCL operations", "communication without marks"),
        "NCCL writes no ranges for nsys, so its kernels cannot be told apart by operation.",
    ),
    Setting(
        "GAPSCOPE",
        "environment",
        "GAPSCOPE=0",
        ("handoffs by marks", "steps and requests"),
        "Marks are switched off; `gapscope record` switches them on for its job.",
    ),
    Setting(
        "GAPSCOPE_on",
        "environment",
        "GAPSCOPE=1",
        ("handoffs by marks", "steps and requests"),
        "Marks of gapscope_instrumentation are off without it, unless the job uses capture().",
    ),
    Setting(
        "GAPSCOPE_NVTX",
        "environment",
        "GAPSCOPE_NVTX=off",
        ("handoffs by marks in a report of nsys",),
        "Marks do not go to nsys.",
    ),
    Setting(
        "GAPSCOPE_LOG",
        "environment",
        "GAPSCOPE_LOG=off",
        ("fields of compact marks (step, microbatch, bytes)", "handoffs without a profiler"),
        "No mark log is written.",
    ),
    Setting(
        "CUDA_LAUNCH_BLOCKING",
        "environment",
        "CUDA_LAUNCH_BLOCKING=1",
        ALL_TIMES,
        "Every launch waits for its kernel: what is recorded is another program, without overlap of host and device.",
    ),
)

SETTING = {setting.key: setting for setting in SETTINGS}
