"""Does the report name what the trainer waits for, and does it help to do what it says?

Each scenario runs a loader into a bottleneck that is known, against stoker's own S3 server in a
process of its own, then does what the report advises, and runs it again. Writes a table to stdout,
and `waiting.json`; ends with 1 if a limit was named wrongly, or advice did not halve the wait.

    .venv/bin/python -m bench.waiting
"""
