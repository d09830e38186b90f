import stub_wire as wire


class GroupCoordinator:
    def __init__(self, ranks, rank):
        self.ranks, self.world_size, self.rank_in_group = ranks, len(ranks), ranks.index(rank)
        self.device_group = wire.Group(ranks)

    @property
    def is_first_rank(self):
        return self.rank_in_group == 0

    @property
    def is_last_rank(self):
        return self.rank_in_group == self.world_size - 1

    def send_tensor_dict(self, tensor_dict, dst=None, all_gather_group=None, async_send=False):
        if tensor_dict.get("fails"):
            raise RuntimeError("the send failed")
        following = self.ranks[(self.rank_in_group + 1) % self.world_size]
        wire.send(self.ranks[self.rank_in_group], following, dict(tensor_dict))
        return [wire.Work()]

    def recv_tensor_dict(self, src=None, all_gather_group=None):
        return wire.receive(self.ranks[(self.rank_in_group - 1) % self.world_size], self.ranks[self.rank_in_group])
