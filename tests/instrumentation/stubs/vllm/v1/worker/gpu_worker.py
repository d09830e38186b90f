from types import SimpleNamespace

from vllm.distributed.parallel_state import get_pp_group, get_tp_group


class IntermediateTensors:
    def __init__(self, tensors):
        self.tensors = tensors


class AsyncIntermediateTensors(IntermediateTensors):
    def __init__(self, tensors, comm_handles=None, comm_postprocess=None):
        super().__init__(tensors)
        self._comm_handles, self._comm_postprocess, self._comm_waited = comm_handles, comm_postprocess, False

    def wait_for_comm(self):
        if self._comm_waited:
            return
        for handle in self._comm_handles or ():
            handle.wait()
        for function in self._comm_postprocess or ():
            function()
        self._comm_waited = True

    def __getattribute__(self, name):
        if name == "tensors" and not object.__getattribute__(self, "_comm_waited"):
            object.__getattribute__(self, "wait_for_comm")()
        return object.__getattribute__(self, name)


class Worker:
    def __init__(self, run):
        self.model_runner = SimpleNamespace(execute_model=run)
        self._pp_send_work = []

    def execute_model(self, scheduler_output):
        for handle in self._pp_send_work:
            handle.wait()
        received = None
        if scheduler_output.total_num_scheduled_tokens > 0 and not get_pp_group().is_first_rank:
            tensors, handles, after = get_pp_group().irecv_tensor_dict(all_gather_group=get_tp_group())
            received = AsyncIntermediateTensors(tensors, comm_handles=handles, comm_postprocess=after)
        output = self.model_runner.execute_model(scheduler_output, received)
        if not isinstance(output, IntermediateTensors):
            return output
        handles = get_pp_group().isend_tensor_dict(output.tensors, all_gather_group=get_tp_group())
        self._pp_send_work = handles[1:]
        return None
