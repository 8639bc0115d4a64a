"""What a loader has done: words by `str()`, numbers by attribute. Times in seconds, sizes in bytes.

For example `report.wait.ratio`, `report.rooms[0].busy_seconds`, `report.memory.leased_bytes`.
"""

from __future__ import annotations

from collections.abc import Iterator  # noqa: TC003 (typing is slow to import)
from os import PathLike  # noqa: TC003
from types import SimpleNamespace

from stoker._native import _report_page


class Report(SimpleNamespace):
    """A snapshot of what a loader has done, and who waited for whom."""

    wait: SimpleNamespace
    """How long the trainer was blocked.

    `first_batch_seconds` stands apart; all others are about the `batches` after it:
    `blocked_seconds` in `next()` (with what a thread of Python waits for the GIL there), of the
    `wall_seconds` from batch to batch; `ratio` is the one by the other. `window_ratio`,
    `p50_seconds`, `p95_seconds` and `p99_seconds` are of the latest 1024 alone, whose waits are
    `window_seconds` (a list, the oldest first). Ratios and percentiles are None before the second
    batch."""
    advice: SimpleNamespace | None
    """Why it was, of the latest 1024 batches (for a `RayLoader`, of the last minute); None before
    the ninth.

    `limit` is `trainer`, `hand-over`, `network` (a `RayLoader`'s), `cores`, `busy-machine`,
    `large-image`, `memory`, `throttling`, `requests`, `bandwidth` or `latency`; `words` say it with
    numbers, and what would help. `workers_busy` is a share of their time, `requests_in_flight` a
    mean; `bytes_per_second` came from the store. The trainer was blocked `bytes_blocked_seconds`
    while samples were brought in, `memory_blocked_seconds` while its batch waited for memory,
    `pixels_blocked_seconds` while it was filled, `hand_over_blocked_seconds` while it was finished
    and on its way.

    `store_could_give` is how many times as many bytes the store could give: by as many requests as
    may be in flight now, each as fast as they are; None where bodies take longer than first bytes,
    as they share a network. `pace_needed` is how many times as fast all must go for the wait to
    end; None for a trainer that does nothing itself."""
    stages: SimpleNamespace | None
    """What each part of the loader did in the latest 1024 batches (`batches`, `seconds`), and what
    it waited for; None before the second batch, and for a `RayLoader`. Shares are of that time,
    other numbers without a unit of time in their name are means over it.

    `fetch`: `limit_requests` that may be in flight now, `in_flight_requests`, `queued_requests`,
    `busy_share` (in flight of the limit), `held_back_reads` and `held_back_share` (they wait for
    memory), `full_share` (all batches that are begun have their samples: nothing to fetch),
    `brought_batches` whose samples wait to be filled and `brought_empty_share` (none do),
    `requests_per_second`, `bytes_per_second`, `request_seconds` and `first_byte_seconds` of one,
    `batch_seconds` until all samples of a batch are there.

    `workers`: `threads`, which worked for `busy_share` of their time (in `delayed_share` they had
    work and no core; Linux alone tells it), and waited for samples
    (`input_share`), for memory to fill (`memory_share`), while others had all that there was to do
    (`others_share`), and since all that may be made was finished (`trainer_share`); `queued_tasks`,
    `images_per_second`, `bytes_per_second` (of patches).

    `deliver`: `ready_batches` that are finished (the one that the trainer waits for may not be
    among them), `empty_share` (none is), `busy_share` (a finished one is on its way to a trainer
    that waits), `input_share` (the trainer waits for one in the making), `trainer_share` (the
    rest), `batches_per_second`, `samples_per_second`, `bytes_per_second` (of batches)."""
    rooms: list[SimpleNamespace]
    """What each room did: `room`, `busy_seconds`, `items`, `bytes`; and of late (the batches of
    `stages`): `window_busy` (in the mean so many threads, or requests), `window_items_per_second`,
    `window_bytes_per_second`.

    Busy is time on a worker, of all workers together; for `fetch` it is how long requests took, of
    all requests together. Bytes are those it made or read; `dataset` and `text` count none."""
    fetch: SimpleNamespace
    """`requests` to stores (the retries among them), `retries`, `peak_in_flight`, `limit` (how many
    may be in flight now), `queued_seconds` (of all requests together, until they might be sent),
    `first_byte_p50_seconds`, `first_byte_p95_seconds` and `first_byte_p99_seconds` (None before the
    first answer), `throttled` and `stalls` (answers), `hedges` (late requests that were sent
    twice), `hedges_won`, `hedges_denied`, `postponed` (retries that were held back),
    `credential_renewals` (times that credentials were had anew, and were others).

    Each retry has one cause: `retries_unreachable` (there was no connection), `retries_connection`
    (it broke), `retries_stalled`, `retries_busy` (429, 503), `retries_failed` (500 and the like),
    `retries_wrong` (another range, length or kind than was asked for), `retries_checksum`,
    `retries_credentials` (they ended) and `retries_redirected`.

    `split_parts` that large reads were split into; `joint_reads` that brought `joined` rows or
    images which lie side by side, and `thrown_away` bytes between them. With `fetch.checksum`,
    reads by the checksum that the store tells of their bytes: `checksums_right`, `checksums_wrong`
    (read again), and `checksums_lacking` where it tells none. What the local cache did
    (`fetch.cache`, all 0 without one): `cache_hits`, `cache_hit_bytes`, `cache_misses`,
    `cache_admitted`, `cache_admitted_bytes`, `cache_refused`, `cache_dropped`, `cache_damaged`,
    `cache_evicted`, `cache_failed`."""
    memory: SimpleNamespace
    """`compressed_bytes`, `peak_compressed_bytes`, `arena_bytes`, `peak_arena_bytes`,
    `leased_bytes` (held by batches that are being made, wait or are with the trainer)."""
    samples: int
    images: int
    tokens: int
    """Delivered, padding not counted."""
    padding: int
    """Tokens of padding and of neutral images in delivered batches."""
    packing: float | None
    """Share of `pack.max-tokens` that tokens fill; None with `pack.batch-size`."""
    neutral_images: int
    """Images delivered that batches were given for want of others (`pack.min-images-per-batch`)."""
    replaced: int
    """Bad samples that were replaced by another row; a spare that is bad too counts again."""
    neutralised: int
    """Bad samples that kept their place, learned nothing and show no image."""
    left_out: int
    """Bad samples that lost their place to none: they changed since their batch was packed, and
    have no room in it any more."""
    bad_samples: list[str]
    """What was wrong with the latest of them (100 at most), oldest first."""
    flaws: list[SimpleNamespace]
    """How many there were of each kind: `room`, `code`, `outcome` (as of a `BadSample`),
    `samples`."""
    workers: int
    """Worker threads."""
    worker_seconds: float
    """That they worked up to now, added up: the rooms' work, which counts when it is done, and what
    is between."""
    worker_delay_seconds: float
    """That they had work and no core, added up when a task is done; 0 where the system does not
    tell."""
    process_seconds: float
    """Processor time of the process (of a `RayLoader`, of those of its workers), for all it did;
    0 but on Linux."""
    wait_histogram: SimpleNamespace
    """Waits for single batches, the first one apart, since the beginning: `counts` by step, whose
    upper ends are `bounds_seconds` (one less: the last step has none), and `sum_seconds`."""
    first_byte_histogram: SimpleNamespace
    """The same of the times from a request to the headers of its good answer."""
    plots: SimpleNamespace
    """How all of it went along the run, in at most 256 points.

    `points` has lists, one number for each point: `steps` (`steps_each` but for the last one; the
    run's first step is in none), `wall_seconds`, `blocked_seconds`, `longest_seconds` (the longest
    wait), `samples`, `images`, `tokens`, `padding`, `worker_seconds` and of these
    `decode_seconds` and `resize_seconds`, `request_seconds`, `requests`, `bytes` (from the store).
    `first_byte_counts` are of requests by the time to their first byte, in buckets that begin at
    `first_byte_from_seconds` and of which there are `first_byte_per_doubling` to each doubling."""

    def as_dict(self) -> dict:
        """All numbers as plain dicts and lists."""
        return vars(self)["_numbers"]

    def stats(self, prefix: str = "stoker/") -> dict[str, float]:
        """All that is one number, flat, by names such as `stoker/rooms/vision/busy_seconds`.

        For `wandb.log`, or TensorBoard's `add_scalar` for each. What is not known yet is left out,
        and so is what is no single number: waits one by one, and bad samples.
        """
        numbers = {name: value for name, value in self.as_dict().items() if name != "plots"}
        return {prefix + name: value for name, value in _flat(numbers)}

    def to_html(self, *, title: str | None = None) -> str:
        """The report as a page with plots, which needs nothing from elsewhere.

        Args:
            title: What the run is called.
        """
        return _report_page(self.as_dict(), title)

    def save(self, path: str | PathLike[str], *, title: str | None = None) -> None:
        """Writes the page of `to_html` to a file.

        Raises:
            OSError: It can't be written.
        """
        from pathlib import Path

        Path(path).write_text(self.to_html(title=title), encoding="utf-8")

    def __str__(self) -> str:
        return vars(self)["_words"]

    __repr__ = __str__


def read(words: str, numbers: dict) -> Report:
    """Makes a report of the engine's words and numbers."""
    fields = {name: _attributes(value) for name, value in numbers.items()}
    return Report(**fields, _numbers=numbers, _words=words)


def _flat(numbers: dict) -> Iterator[tuple[str, float]]:
    for name, value in numbers.items():
        if name == "rooms":
            value = {room["room"]: room for room in value}
        if isinstance(value, dict):
            for below, number in _flat(value):
                yield f"{name}/{below}", number
        elif isinstance(value, (int, float)):
            yield name, float(value)


def _attributes(value: object) -> object:
    if isinstance(value, dict):
        return SimpleNamespace(**{name: _attributes(item) for name, item in value.items()})
    return [_attributes(item) for item in value] if isinstance(value, list) else value
