"""Running a job with marks on and a capture around it."""

from gapscope.recording.environment import instrumented, job_environment
from gapscope.recording.folder import RecordingFolder
from gapscope.recording.plan import Plan, Tool, plan
from gapscope.recording.run import must_exist, run_job

__all__ = ["Plan", "RecordingFolder", "Tool", "instrumented", "job_environment", "must_exist", "plan", "run_job"]
