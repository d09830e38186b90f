class Instruction:
    def __init__(self, buffer_id):
        self.kwargs = {"buffer_id": buffer_id}


class ForwardPass(Instruction): ...


class BackwardPass(Instruction): ...


class SendActivation(Instruction): ...


class RecvActivation(Instruction): ...


class SendGrad(Instruction): ...


class RecvGrad(Instruction): ...


class OptimizerStep:
    kwargs = {}  # noqa: RUF012


def training(stage, stages, microbatches):
    """1F1B: lists of instructions."""
    buffers = max(2, stages - stage)
    warmup = min(stages - stage - 1, microbatches)

    def forward(mb):
        at = mb % buffers
        yield [RecvActivation(at)] if stage else []
        yield [ForwardPass(at)]
        yield [SendActivation(at)] if stage < stages - 1 else []

    def backward(mb):
        at = mb % buffers
        yield [RecvGrad(at)] if stage < stages - 1 else []
        yield [BackwardPass(at)]
        yield [SendGrad(at)] if stage else []

    for mb in range(warmup):
        yield from forward(mb)
    for mb in range(microbatches - warmup):
        yield from forward(warmup + mb)
        yield from backward(mb)
    for mb in range(microbatches - warmup, microbatches):
        yield from backward(mb)
    yield [OptimizerStep()]


def inference(stage, stages, microbatches):
    """Forward only, two buffers, each result sent after the next one was received."""
    for step in range(microbatches + 1):
        if step and stage < stages - 1:
            yield [SendActivation((step - 1) % 2)]
        if step < microbatches:
            yield [RecvActivation(step % 2)] if stage else []
            yield [ForwardPass(step % 2)]
