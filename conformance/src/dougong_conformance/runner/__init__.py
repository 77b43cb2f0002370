"""Supervisor, executor, judge: three processes, and the verdict."""
