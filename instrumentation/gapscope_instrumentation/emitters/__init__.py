"""Where marks go: each emitter writes to one kind of recording.

To add one, write a file with an `Emitter` and let `gapscope_instrumentation.recorder` open it.
"""
