"""What can go wrong, by whose turn it is to act. `str()` of each is a sentence that says it."""

from __future__ import annotations

from types import SimpleNamespace


class StokerError(Exception):
    """Base of all errors that stoker raises about data, stores, recipes and limits."""

    def __init__(self, message: str, **fields: object) -> None:
        super().__init__(message)
        self.__dict__.update(fields)


class Problem(SimpleNamespace):
    """One thing that is wrong in a recipe."""

    path: str
    """Where in the document, as `section.key`."""
    reason: str
    """What is wrong there."""
    hint: str | None
    """What to write instead, where we can tell."""


class BadSample(SimpleNamespace):
    """A sample that can't be used, and what became of it."""

    sample: tuple[int, int]
    """Dataset and row, both from 0."""
    outcome: str
    """`replaced` by another row; `neutralised`: it keeps its place, with nothing to learn; or
    `left-out` of its batch, which has no room for what it became since it was measured."""
    room: str
    """Where it was found: `dataset`, `fetch`, `image`, `vision`, `text`, …"""
    code: str
    """A stable short name, such as `truncated`."""
    reason: str
    """What is wrong, and with which image, if one is to blame."""
    hint: str | None
    origin: str
    """The source and the line in it, counted from 1: `s3://bucket/train.jsonl:17`."""


class RecipeError(StokerError):
    """For the author of the recipe: every problem in it, at once."""

    problems: list[Problem]


class DatasetError(StokerError):
    """For the owner of the data: the source is not what it should be, or too much of it is bad."""

    kind: str
    """`data`; `bad-samples`: too many of them; or `disk`: the index, the ledger or the
    local cache can't be written."""
    bad_samples: list[BadSample]
    """The first of them (100 at most), where there are too many; else empty."""
    uri: str
    """The source."""
    line: int | None
    """The line in it, counted from 1, where one line is meant."""
    reason: str
    hint: str | None
    """What to do, where we can tell; so in the others."""


class FetchError(StokerError):
    """For the operator of the store: bytes could not be read, after all retries."""

    kind: str
    """`not-found`, `denied`, `unconfigured` (no credentials), `forbidden` (by the recipe),
    `too-large`, `changed` (since it was indexed) or `transient` (given up after all retries)."""
    uri: str
    """The object."""
    range: tuple[int, int] | None
    """First byte and the one after the last; None is the whole object."""
    attempts: int
    """How often it was tried."""
    status: int | None
    """HTTP status of the last answer, if there was one."""
    reason: str
    hint: str | None


class SampleError(StokerError):
    """For the policy on bad samples: one sample is unusable, its neighbours are fine."""

    sample: tuple[int, int]
    """Dataset and row, both from 0."""
    room: str
    """Where it was found: `dataset`, `fetch`, `image`, `vision`, `text`, …"""
    code: str
    """A stable short name, such as `truncated`."""
    reason: str
    """What is wrong, and with which image, if one is to blame."""
    hint: str | None
    origin: str
    """The source and the line in it, counted from 1: `s3://bucket/train.jsonl:17`."""


class CursorError(StokerError):
    """For whoever resumes: the state does not belong to this recipe, or is damaged."""

    field: str
    """What differs."""
    expected: str
    """What this recipe has there."""
    found: str
    """What the state has there."""
    hint: str


class BudgetError(StokerError):
    """For whoever set the memory limit: a thing needs more than there is, or than is left.

    Nothing is left where the trainer holds on to the batches that it was given.
    """

    what: str
    """What needs it, such as `a batch`."""
    needed: int
    """Bytes that it needs."""
    limit: int
    """Bytes that it may have: a part of `engine.memory`."""
    hint: str
    """What to do: among others, the `engine.memory` that would be enough."""


class ClusterError(StokerError):
    """For the operator of the cluster: no data worker lives, or none survives a certain batch."""

    kind: str
    """`no-workers` or `deadly-batch`."""
    sequence: int | None
    """The batch, in the global sequence, where one is meant."""
    reason: str
    hint: str


class MachineError(StokerError):
    """For whoever runs the machine: it refuses a thread, a file or memory."""

    what: str
    """What could not be done."""
    reason: str
    """What the system said."""
    hint: str
    """Which limit it was, and what to do."""


class StoppedError(StokerError):
    """For nobody: the loader was closed."""


class BugError(StokerError):
    """For us: please report it."""
