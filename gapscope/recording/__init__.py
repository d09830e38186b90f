"""Running a job with marks on and a capture around it."""

from gapscope.recording.environment import instrumented, job_environment
from gapscope.recording.folder import RecordingFolder
from gapscope.recording.plan import Plan, Tool, plan
from gapscope.recording.run import run_job

__all__ = ["Plan", "RecordingFolder", "Tool", "instrumented", "job_environment", "plan", "run_job"]
