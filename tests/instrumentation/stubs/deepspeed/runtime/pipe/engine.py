from types import MethodType, SimpleNamespace

import stub_wire as wire
import torch

from . import p2p, schedule


class PipelineEngine:
    def __init__(self, stage_id, num_stages, compute, tensors=1):
        self.stage_id, self.num_stages, self.compute, self.tensors = stage_id, num_stages, compute, tensors
        self.prev_stage, self.next_stage = stage_id - 1, stage_id + 1
        self.global_rank = 10 + stage_id
        self.grid = SimpleNamespace(stage_to_global=lambda stage_id: 10 + stage_id)
        self.module = SimpleNamespace(training=True)
        self.global_steps = 0
        self.inputs, self.outputs, self.gradients = {}, {}, {}
        self.first_send, self.first_receive = True, True
        self.fails = None

    def _send_tensor_meta(self, buffer, recv_stage):
        p2p.send(torch.zeros(4), recv_stage)

    def _recv_tensor_meta(self, send_stage):
        p2p.recv(torch.zeros(4), send_stage)

    def _exec_forward_pass(self, buffer_id):
        self._maybe_fail("forward")
        self.outputs[buffer_id] = self.compute("fwd", self.inputs.get(buffer_id))

    def _exec_backward_pass(self, buffer_id):
        self.gradients[buffer_id] = self.compute("bwd", self.gradients.get(buffer_id))

    def _exec_send_activations(self, buffer_id):
        self._maybe_fail("send")
        if self.first_send:
            self.first_send = False
            self._send_tensor_meta(self.outputs[buffer_id], self.next_stage)
        for tensor in self.outputs[buffer_id]:
            p2p.send(tensor, self.next_stage)

    def _exec_recv_activations(self, buffer_id):
        if self.first_receive:
            self.first_receive = False
            self._recv_tensor_meta(self.prev_stage)
        self.inputs[buffer_id] = self._received(self.prev_stage)

    def _exec_send_grads(self, buffer_id):
        for tensor in self.gradients[buffer_id]:
            p2p.send(tensor, self.prev_stage)

    def _exec_recv_grads(self, buffer_id):
        self.gradients[buffer_id] = self._received(self.next_stage)

    def _exec_optimizer_step(self, lr_kwargs=None):
        self.global_steps += 1

    def _received(self, of):
        tensors = []
        for _ in range(self.tensors):
            tensor = torch.empty(2, 3)
            p2p.recv(tensor, of)
            tensors.append(tensor.clone())
        return tuple(tensors)

    def _maybe_fail(self, where):
        if self.fails == where:
            raise RuntimeError(f"{where} failed")

    _INSTRUCTION_MAP = {  # noqa: RUF012
        schedule.OptimizerStep: _exec_optimizer_step,
        schedule.ForwardPass: _exec_forward_pass,
        schedule.BackwardPass: _exec_backward_pass,
        schedule.SendActivation: _exec_send_activations,
        schedule.RecvActivation: _exec_recv_activations,
        schedule.SendGrad: _exec_send_grads,
        schedule.RecvGrad: _exec_recv_grads,
    }

    def _exec_schedule(self, pipe_schedule):
        for commands in pipe_schedule:
            for command in commands:
                MethodType(self._INSTRUCTION_MAP[type(command)], self)(**command.kwargs)

    def train_batch(self, microbatches):
        assert wire.here.rank == self.global_rank
        self._exec_schedule(schedule.training(self.stage_id, self.num_stages, microbatches))

    def eval_batch(self, microbatches):
        self._exec_schedule(schedule.inference(self.stage_id, self.num_stages, microbatches))
