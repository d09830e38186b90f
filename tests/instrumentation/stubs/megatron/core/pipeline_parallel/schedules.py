"""The two pipelined schedules; a stage's computation is `compute(kind, mb, chunk, tensor)` of the test."""

from megatron.core.pipeline_parallel.p2p_communication import P2PCommunicator

SHAPE = (2, 3)


def forward_step(
    forward_step_func,
    data_iterator,
    model,
    num_microbatches,
    input_tensor,
    forward_data_store,
    config,
    cp_group_size,
    collect_non_loss_data=False,
    checkpoint_activations_microbatch=None,
    is_first_microbatch=False,
    current_microbatch=None,
    vp_stage=None,
    is_last_stage=True,
):
    unwrap = not isinstance(input_tensor, list)
    tensor = input_tensor if unwrap else input_tensor[0]
    output = forward_step_func("fwd", current_microbatch, vp_stage or 0, tensor)
    return (output if unwrap else [output]), 1


def backward_step(input_tensor, output_tensor, output_tensor_grad, config):
    compute, mb, chunk = config.backward.pop(id(output_tensor))
    gradient = compute("bwd", mb, chunk, output_tensor_grad)
    return None if input_tensor is None else gradient


def _forward(compute, p2p, config, tensor, mb, chunk, last):
    output, _ = forward_step(
        compute, None, None, 0, tensor, [], config, 1, current_microbatch=mb, vp_stage=chunk, is_last_stage=last
    )
    config.backward[id(output)] = (compute, mb, chunk or 0)
    return output


def without_interleaving(compute, config, pp_group, microbatches, p2p_communicator=None):
    p2p = p2p_communicator or P2PCommunicator(pp_group=pp_group, config=config)
    first, last = p2p.is_pp_first_stage, p2p.is_pp_last_stage
    warmup = min(pp_group.size() - pp_group.rank() - 1, microbatches)
    kept = []
    for mb in range(warmup):
        tensor = p2p.recv_forward(SHAPE, first)
        output = _forward(compute, p2p, config, tensor, mb, None, last)
        p2p.send_forward(output, last)
        kept.append((tensor, output))
        config.free(output)
    steady = microbatches - warmup
    tensor = p2p.recv_forward(SHAPE, first) if steady else None
    for number in range(steady):
        output = _forward(compute, p2p, config, tensor, warmup + number, None, last)
        gradient = p2p.send_forward_recv_backward(output, SHAPE, last)
        kept.append((tensor, output))
        config.free(output)
        before = kept.pop(0)
        back = backward_step(*before, gradient, config)
        if number == steady - 1:
            p2p.send_backward(back, first)
        else:
            tensor = p2p.send_backward_recv_forward(back, SHAPE, first)
    for before in kept:
        gradient = p2p.recv_backward(SHAPE, last)
        p2p.send_backward(backward_step(*before, gradient, config), first)


def with_interleaving(compute, config, pp_group, microbatches, chunks, overlap=False):
    """All forwards, then all backwards: what Megatron does with as many microbatches as ranks."""
    p2p = P2PCommunicator(pp_group=pp_group, config=config)
    size, own = pp_group.size(), pp_group.rank()
    assert microbatches == size
    order = [(mb, chunk) for chunk in range(chunks) for mb in range(microbatches)]
    kept = {}
    for kind, first, last, table in (
        ("fwd", 0, size - 1, order),
        ("bwd", size - 1, 0, [(mb, chunks - 1 - chunk) for mb, chunk in order]),
    ):
        forward = kind == "fwd"
        leaves, enters = (chunks - 1, 0) if forward else (0, chunks - 1)  # chunk of the last and of the first stage
        exchange = p2p.send_forward_recv_forward if forward else p2p.send_backward_recv_backward
        receive_first = p2p.recv_forward if forward else p2p.recv_backward
        tensor = receive_first(SHAPE, own == first)
        waiting = [] if own == first else [(tensor, None)]
        for k, (mb, chunk) in enumerate(table):
            tensor = None
            if not (own == first and chunk == enters):
                tensor, work = waiting.pop(0)
                if work is not None:
                    work.wait()
            if forward:
                output = _forward(compute, p2p, config, tensor, mb, chunk, own == last and chunk == leaves)
                kept[mb, chunk] = (tensor, output)
            else:
                output = backward_step(*kept.pop((mb, chunk)), tensor, config)
            if own == last and chunk == leaves:
                output = None
            if own == first:  # what comes round comes from the last rank, which is behind
                behind = k - (size - 1)
                wanted = behind >= 0 and table[behind][1] != leaves
            else:
                wanted = k + 1 < len(table)
            if overlap:
                tensor, works = exchange(output, wanted, SHAPE, overlap_p2p_comm=True)
                if wanted:
                    waiting.append((tensor, works["recv_prev" if forward else "recv_next"]))
            else:
                tensor = exchange(output, wanted, SHAPE)
                if wanted:
                    waiting.append((tensor, None))
