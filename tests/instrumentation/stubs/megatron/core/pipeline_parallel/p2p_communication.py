import stub_wire as wire
import torch


class P2PCommunicator:
    def __init__(self, pp_group, config):
        self.pp_group, self.config = pp_group, config
        own, size = pp_group.rank(), pp_group.size()
        self.next_rank = pp_group.ranks[(own + 1) % size]
        self.prev_rank = pp_group.ranks[(own - 1) % size]
        self.virtual_pipeline_model_parallel_size = config.virtual_pipeline_model_parallel_size

    @property
    def is_pp_first_stage(self):
        return self.pp_group.rank() == 0

    @property
    def is_pp_last_stage(self):
        return self.pp_group.rank() == self.pp_group.size() - 1

    def _communicate_shapes(self, tensor_send_next, tensor_send_prev, recv_prev, recv_next):
        self.config.calls.append("shapes")
        return None, None

    def _communicate(
        self, *, tensor_send_next, tensor_send_prev, recv_prev, recv_next, tensor_shape, wait_on_reqs=True
    ):
        if self.config.fails:
            raise RuntimeError("the link is down")
        if self.config.variable_seq_lengths:
            self._communicate_shapes(tensor_send_next, tensor_send_prev, recv_prev, recv_next)
        self.config.calls.append("p2p")
        own, works = wire.here.rank, {}
        received = {"recv_prev": None, "recv_next": None}
        for name, tensor, to, tag in (
            ("send_next", tensor_send_next, self.next_rank, "fwd"),
            ("send_prev", tensor_send_prev, self.prev_rank, "bwd"),
        ):
            if tensor is not None:
                wire.send(own, to, tensor.clone(), tag)
                works[name] = wire.Work()
        for name, wanted, of, tag in (
            ("recv_prev", recv_prev, self.prev_rank, "fwd"),
            ("recv_next", recv_next, self.next_rank, "bwd"),
        ):
            if wanted:
                buffer = received[name] = torch.empty(tensor_shape, dtype=self.config.pipeline_dtype)
                works[name] = wire.Work(lambda b=buffer, f=of, t=tag: b.copy_(wire.receive(f, own, t)))
        if wait_on_reqs:
            for work in works.values():
                work.wait()
            works = None
        return received["recv_prev"], received["recv_next"], works

    def recv_forward(self, tensor_shapes, is_first_stage):
        if is_first_stage:
            return None
        return self._communicate(
            tensor_send_next=None, tensor_send_prev=None, recv_prev=True, recv_next=False, tensor_shape=tensor_shapes
        )[0]

    def recv_backward(self, tensor_shapes, is_last_stage):
        if is_last_stage:
            return None
        return self._communicate(
            tensor_send_next=None, tensor_send_prev=None, recv_prev=False, recv_next=True, tensor_shape=tensor_shapes
        )[1]

    def send_forward(self, output_tensors, is_last_stage):
        if not is_last_stage:
            self._communicate(
                tensor_send_next=output_tensors,
                tensor_send_prev=None,
                recv_prev=False,
                recv_next=False,
                tensor_shape=None,
            )

    def send_backward(self, input_tensor_grads, is_first_stage):
        if not is_first_stage:
            self._communicate(
                tensor_send_next=None,
                tensor_send_prev=input_tensor_grads,
                recv_prev=False,
                recv_next=False,
                tensor_shape=None,
            )

    def send_forward_recv_backward(self, output_tensors, tensor_shapes, is_last_stage):
        if is_last_stage:
            return None
        return self._communicate(
            tensor_send_next=output_tensors,
            tensor_send_prev=None,
            recv_prev=False,
            recv_next=True,
            tensor_shape=tensor_shapes,
        )[1]

    def send_backward_recv_forward(self, input_tensor_grads, tensor_shapes, is_first_stage):
        if is_first_stage:
            return None
        return self._communicate(
            tensor_send_next=None,
            tensor_send_prev=input_tensor_grads,
            recv_prev=True,
            recv_next=False,
            tensor_shape=tensor_shapes,
        )[0]

    def send_forward_recv_forward(self, output_tensor, recv_prev, tensor_shape, overlap_p2p_comm=False):
        tensor, _, works = self._communicate(
            tensor_send_next=output_tensor,
            tensor_send_prev=None,
            recv_prev=recv_prev,
            recv_next=False,
            tensor_shape=tensor_shape,
            wait_on_reqs=not overlap_p2p_comm,
        )
        return (tensor, works) if overlap_p2p_comm else tensor

    def send_backward_recv_backward(self, input_tensor_grad, recv_next, tensor_shape, overlap_p2p_comm=False):
        _, tensor, works = self._communicate(
            tensor_send_next=None,
            tensor_send_prev=input_tensor_grad,
            recv_prev=False,
            recv_next=recv_next,
            tensor_shape=tensor_shape,
            wait_on_reqs=not overlap_p2p_comm,
        )
        return (tensor, works) if overlap_p2p_comm else tensor
