import stub_wire as wire


def send(tensor, dest_stage, async_op=False):
    wire.send(wire.here.rank, _rank(dest_stage), tensor.clone())


def recv(tensor, src_stage, async_op=False):
    tensor.copy_(wire.receive(_rank(src_stage), wire.here.rank))


def _rank(stage):
    return 10 + stage
