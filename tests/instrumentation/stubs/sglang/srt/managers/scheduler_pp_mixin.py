from collections import defaultdict, deque
from contextlib import nullcontext

import stub_wire as wire

from sglang.srt.distributed.parallel_state import GroupCoordinator  # noqa: F401 - the real one takes P2PWork from there


class PPProxyTensors:
    def __init__(self, tensors):
        self.tensors = tensors


class SchedulerPPMixin:
    def init_pp_loop_state(self, overlap):
        self.pp_comm_stream = "communication" if overlap else None
        self._pp_tensor_dict_inbox = defaultdict(deque)
        self.launch_event = None

    @property
    def pp_comm_stream_ctx(self):
        return nullcontext() if self.pp_comm_stream is None else wire.on_stream(self.pp_comm_stream)

    def _pp_send_dict_to_next_stage(self, tensor_dict, async_send=True, msg_type="default", ready_event=None):
        tensor_dict["__msg_type__"] = msg_type
        with self.pp_comm_stream_ctx:
            return self.pp_group.send_tensor_dict(
                tensor_dict=tensor_dict, all_gather_group=self.attn_tp_group, async_send=async_send
            )

    def _pp_send_proxy_to_next_stage(self, result):
        return self._pp_send_dict_to_next_stage(result.tensors, msg_type="proxy", ready_event=self.launch_event)

    def _pp_recv_typed_dict(self, expected_kind="default", all_gather_group=None):
        if self._pp_tensor_dict_inbox[expected_kind]:
            return self._pp_tensor_dict_inbox[expected_kind].popleft(), None
        while True:
            with self.pp_comm_stream_ctx:
                values = self.pp_group.recv_tensor_dict(all_gather_group=all_gather_group)
            kind = values.get("__msg_type__", "default")
            if kind == expected_kind:
                return values, None
            self._pp_tensor_dict_inbox[kind].append(values)

    def _pp_recv_proxy_tensors(self):
        if self.pp_group.is_first_rank:
            return None
        values, _ = self._pp_recv_typed_dict(expected_kind="proxy", all_gather_group=self.attn_tp_group)
        return PPProxyTensors(values)

    def _pp_recv_dict_from_prev_stage(self):
        return self._pp_recv_typed_dict(expected_kind="output", all_gather_group=self.attn_tp_group)

    def _pp_launch_batch(self, mb_id, cur_batch, pp_proxy_tensors, mb_metadata, last_rank_comm_queue):
        with wire.on_stream("forward"):
            return self.run_batch(cur_batch, pp_proxy_tensors), "event"
