import threading

import stub_wire as wire
import torch

groups = threading.local()


def get_pp_group():
    assert getattr(groups, "pp", None) is not None, "no pipeline group"
    return groups.pp


def get_tp_group():
    return groups.tp


class GroupCoordinator:
    def __init__(self, ranks, rank):
        self.ranks, self.world_size, self.rank_in_group = ranks, len(ranks), ranks.index(rank)
        self.device_group = wire.Group(ranks)
        self.device_communicator = None

    @property
    def is_first_rank(self):
        return self.rank_in_group == 0

    @property
    def is_last_rank(self):
        return self.rank_in_group == self.world_size - 1

    def _should_use_all_gather(self, key, numel, all_gather_group, all_gather_tensors):
        if all_gather_group is None:
            return False
        return (all_gather_tensors or {}).get(key, numel % all_gather_group.world_size == 0)

    def isend_tensor_dict(self, tensor_dict, dst=None, all_gather_group=None, all_gather_tensors=None):
        if dst is None:
            dst = (self.rank_in_group + 1) % self.world_size
        if tensor_dict.get("fails"):
            raise RuntimeError("the send failed")
        wire.send(self.ranks[self.rank_in_group], self.ranks[dst], dict(tensor_dict))
        return [wire.Work(), wire.Work()]

    def irecv_tensor_dict(self, src=None, all_gather_group=None, all_gather_tensors=None):
        if src is None:
            src = (self.rank_in_group - 1) % self.world_size
        values = wire.receive(self.ranks[src], self.ranks[self.rank_in_group])
        after = []
        for key, value in values.items():
            if isinstance(value, torch.Tensor) and self._should_use_all_gather(
                key, value.numel(), all_gather_group, all_gather_tensors
            ):
                values[key] = value.reshape(all_gather_group.world_size, -1)[0]
                after.append(lambda k=key, v=value: values.__setitem__(k, v))
        return values, [wire.Work()], after
