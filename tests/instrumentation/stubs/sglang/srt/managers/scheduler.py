from sglang.srt.managers.scheduler_pp_mixin import SchedulerPPMixin


class Scheduler(SchedulerPPMixin):
    def __init__(self, pp_group, run, overlap=False, attn_tp_group=None):
        self.pp_group, self.run, self.attn_tp_group = pp_group, run, attn_tp_group
        self.init_pp_loop_state(overlap)

    def run_batch(self, batch, pp_proxy_tensors=None):
        return self.run(batch, pp_proxy_tensors)
