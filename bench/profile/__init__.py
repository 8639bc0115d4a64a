"""Where the time of an image goes, room by room, and how many instructions each room takes.

Times are of the processor and are for people: they go into `docs/profile.md`. Instructions are
counted under valgrind on data that is always the same, so they hardly depend on the machine and
not at all on what else runs on it: they are compared with those of `instructions.json`, and what
differs is either meant, and accepted with the change that brings it, or found out.

    .venv/bin/python -m bench.profile
"""
