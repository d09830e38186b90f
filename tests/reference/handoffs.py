"""Derives the times of every marked handoff from raw recordings, with plain loops, straight from the design's words.

What is read here is what hand-written recordings hold: `gapscope::` brackets as text. The compact form, the mark log,
point marks, collectives, `device=cpu` and work launched by autograd's threads are refused or left out: no recording in
`runs.py` has them.

The rules, in the order of the code:

1. A bracket is a host range whose text is `gapscope::<kind> key=value ...`, with kind `produce`, `submit`, `receive`
   or `consume`. Its handoff is `(src, dst, channel, seq)`; the first two kinds are marks of rank `src`, the others of
   rank `dst`.
2. Where two tools saw a rank, the one that recorded the rank's GPU work is asked and the other is not.
3. An operation is launched inside a bracket if the API call with its process and correlation starts between the
   bracket's start and end, on the bracket's process and thread.
4. Where no such call is recorded at all, the operation is launched inside if it lies within a GPU span of the bracket's
   text, on the span's device and stream.
5. What is launched inside a `submit` or `receive` does not count for a `produce` or `consume` around it.
6. Where `receive` brackets of the same handoff are nested in its `consume`, only what is launched after the last of
   them counts for `consume`.
"""

from dataclasses import dataclass

from tests.reference.recording import load_recording

EVENTS = (
    "producer_finish_ns",
    "submit_ns",
    "receive_post_ns",
    "movement_start_ns",
    "available_ns",
    "consumer_start_ns",
)

PREFIX = "gapscope::"
UNIT_KINDS = ("step", "request")  # not part of a handoff
SOURCE_KINDS = ("produce", "submit")
DESTINATION_KINDS = ("receive", "consume")
TRANSFER_KINDS = ("submit", "receive")
TEXT_FIELDS = ("transport",)


@dataclass(frozen=True)
class Bracket:
    """One mark around host code."""

    kind: str
    key: tuple[int, int, int, int]
    slot: int
    step: int | None
    mb: int | None
    size_bytes: int | None
    text: str
    process: tuple[str, int]
    thread: int
    start_ns: int
    end_ns: int

    @property
    def rank(self):
        src, dst, _, _ = self.key
        return src if self.kind in SOURCE_KINDS else dst


def reference_handoffs(paths):
    """One dict a handoff, keyed by `(src, dst, channel, seq)`: six times (None where not observed), step, mb, bytes."""
    recordings = [load_recording(path) for path in paths]
    operations = [operation for recording in recordings for operation in recording.operations]
    spans = [span for recording in recordings for span in recording.spans]
    calls = _calls_by_correlation(recordings)
    brackets = [bracket for recording in recordings for bracket in read_brackets(recording)]
    brackets = _from_one_tool_a_rank(brackets, operations)

    handoffs = {}
    for key in sorted({bracket.key for bracket in brackets}):
        of_key = [bracket for bracket in brackets if bracket.key == key]
        produces = [bracket for bracket in of_key if bracket.kind == "produce"]
        submits = [bracket for bracket in of_key if bracket.kind == "submit"]
        receives = [bracket for bracket in of_key if bracket.kind == "receive"]
        consumes = [bracket for bracket in of_key if bracket.kind == "consume"]

        produced, submitted, received, consumed = [], [], [], []
        for bracket in produces:
            produced += _counting_for_stage(bracket, brackets, operations, calls, spans)
        for bracket in submits:
            submitted += launched_inside(bracket, operations, calls, spans)
        for bracket in receives:
            received += launched_inside(bracket, operations, calls, spans)
        for bracket in consumes:
            consumed += _counting_for_stage(bracket, brackets, operations, calls, spans)

        handoffs[key] = {
            "producer_finish_ns": max((operation.end_ns for operation in produced), default=None),
            "submit_ns": min((bracket.start_ns for bracket in submits), default=None),
            "receive_post_ns": min((bracket.start_ns for bracket in receives), default=None),
            "movement_start_ns": min((operation.start_ns for operation in submitted), default=None),
            "available_ns": max((operation.end_ns for operation in received), default=None),
            "consumer_start_ns": min((operation.start_ns for operation in consumed), default=None),
            "step": _agreed([bracket.step for bracket in of_key]),
            "mb": _agreed([bracket.mb for bracket in of_key]),
            "size_bytes": _total_size(of_key),
        }
    return handoffs


def read_brackets(recording):
    """Rule 1."""
    brackets = []
    for host_range in recording.ranges:
        if not host_range.text.startswith(PREFIX):
            continue
        kind, *words = host_range.text.removeprefix(PREFIX).split(" ")
        if kind in UNIT_KINDS:
            continue
        if kind not in SOURCE_KINDS + DESTINATION_KINDS:
            raise ValueError(f"a mark that the reference does not know: {host_range.text}")
        if host_range.end_ns is None:
            raise ValueError(f"a mark that was never closed: {host_range.text}")
        fields = {}
        for word in words:
            name, value = word.split("=")
            fields[name] = value if name in TEXT_FIELDS else int(value)
        brackets.append(
            Bracket(
                kind=kind,
                key=(fields["src"], fields["dst"], fields.get("channel", 0), fields["seq"]),
                slot=fields.get("slot", 0),
                step=fields.get("step"),
                mb=fields.get("mb"),
                size_bytes=fields.get("bytes"),
                text=host_range.text,
                process=host_range.process,
                thread=host_range.thread,
                start_ns=host_range.start_ns,
                end_ns=host_range.end_ns,
            )
        )
    return brackets


def launched_inside(bracket, operations, calls, spans):
    """The operations that were launched inside one bracket."""
    return [operation for operation in operations if _is_launched_inside(operation, bracket, calls, spans)]


def _is_launched_inside(operation, bracket, calls, spans):
    """Rules 3 and 4."""
    if operation.process != bracket.process:
        return False
    call = calls.get((operation.process, operation.correlation))
    if call is not None:
        return call.thread == bracket.thread and bracket.start_ns <= call.start_ns <= bracket.end_ns
    for span in spans:
        same_place = (span.process, span.device, span.stream) == (operation.process, operation.device, operation.stream)
        covers = span.start_ns <= operation.start_ns and operation.end_ns <= span.end_ns
        if same_place and covers and span.text == bracket.text:
            return True
    return False


def _counting_for_stage(stage, brackets, operations, calls, spans):
    """The operations of a `produce` or `consume`: rules 5 and 6."""
    nested_transfers = []
    for bracket in brackets:
        same_thread = (bracket.process, bracket.thread) == (stage.process, stage.thread)
        within = stage.start_ns <= bracket.start_ns and bracket.end_ns <= stage.end_ns
        if bracket.kind in TRANSFER_KINDS and same_thread and within:
            nested_transfers.append(bracket)
    own_receives = [bracket for bracket in nested_transfers if bracket.kind == "receive" and bracket.key == stage.key]

    counting = []
    for operation in launched_inside(stage, operations, calls, spans):
        if any(_is_launched_inside(operation, transfer, calls, spans) for transfer in nested_transfers):
            continue
        if stage.kind == "consume" and own_receives:
            call = calls.get((operation.process, operation.correlation))
            if call is None:
                raise ValueError(f"launched before or after a nested receive? {operation}")
            if call.start_ns <= max(receive.end_ns for receive in own_receives):
                continue
        counting.append(operation)
    return counting


def _calls_by_correlation(recordings):
    calls = {}
    for recording in recordings:
        for call in recording.calls:
            if (call.process, call.correlation) in calls:
                raise ValueError(f"two calls of one process have one correlation id: {call}")
            calls[call.process, call.correlation] = call
    return calls


def _from_one_tool_a_rank(brackets, operations):
    """Rule 2."""
    with_gpu_work = {operation.process for operation in operations}
    kept = []
    for rank in sorted({bracket.rank for bracket in brackets}):
        of_rank = [bracket for bracket in brackets if bracket.rank == rank]
        processes = {bracket.process for bracket in of_rank}
        if len(processes) > 1:
            processes = processes & with_gpu_work
        if len(processes) != 1:
            raise ValueError(f"which recording holds the GPU work of rank {rank}? {sorted(processes)}")
        kept += [bracket for bracket in of_rank if bracket.process in processes]
    return kept


def _agreed(values):
    known = {value for value in values if value is not None}
    if len(known) > 1:
        raise ValueError(f"marks of one handoff contradict each other: {sorted(known)}")
    return known.pop() if known else None


def _total_size(brackets):
    """The bytes of all tensors of a handoff; the marks of one tensor must agree."""
    sizes = []
    for slot in sorted({bracket.slot for bracket in brackets}):
        size = _agreed([bracket.size_bytes for bracket in brackets if bracket.slot == slot])
        if size is not None:
            sizes.append(size)
    return sum(sizes) if sizes else None
