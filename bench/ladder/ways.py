"""What the rungs are, in words; imports none of what they use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Way:
    """One way to load."""

    number: str
    name: str
    module: str
    """Where its `Loader` is, under `bench.ladder.rungs`."""
    means: str
    """What it is."""
    cause: str
    """What the trainer still waits for."""
    copies: int
    """How often finished pixels are copied on their way to the trainer, by construction."""
    place: str = ""
    """Neighbours of the same place share a process and its Ray; without one, a way has its own."""
    on_ray: bool = False


WAYS = (
    Way(
        "0",
        "Python, one at a time",
        "one_at_a_time",
        "one GET, one decode, one resize after the other, in the trainer's own process, when the "
        "trainer asks for a batch",
        "latency: most of the time one request is on its way and both cores are idle, and nothing "
        "is made while the trainer trains",
        copies=1,  # into the batch
    ),
    Way(
        "1a",
        "threads",
        "threads",
        "a thread for each sample of the batch, in the trainer's process",
        "the slowest request of each batch, then the cores: decoding and resizing run at the same "
        "time, signing, parsing, template and glue take turns, as they hold the GIL; nothing is "
        "made while the trainer trains",
        copies=1,  # into the batch
    ),
    Way(
        "1b",
        "DataLoader workers",
        "data_loader",
        "a process for each core, as torch's DataLoader has them, makes whole batches, two ahead, "
        "one image after the other",
        "latency again: each worker waits for the store as rung 0 does, so a core idles as often; "
        "batches come through shared memory that is new each time",
        copies=2,  # into the batch, to shared memory
    ),
    Way(
        "1c",
        "asyncio and a process pool",
        "process_pool",
        "asyncio brings all images of the batch at once, a process for each core prepares them",
        "the slowest request of each batch, then the hand-over: bytes are pickled to a process, "
        "tensors come back through new shared memory, and the trainer's process puts them "
        "together; nothing is made while the trainer trains",
        copies=2,  # to shared memory, into the batch
    ),
    Way(
        "1d",
        "asyncio in Ray actors",
        "ray_actors",
        "an actor for each core brings all images of a batch at once and makes all of it, when the "
        "trainer has none left",
        "the pickling: Ray copies torch tensors three times on the actor's side and twice on the "
        "trainer's; nothing is made while the trainer trains",
        copies=6,  # into the batch, to a file object, to the pickle, to the store, out, to a tensor
        place="ray",
        on_ray=True,
    ),
    Way(
        "2",
        "1d and prefetch",
        "ray_prefetch",
        "the same actors are asked for the next batches while the trainer trains, two for each",
        "the copies: they take cores from the decoding, and the trainer unpickles each batch "
        "before it can train",
        copies=6,
        place="ray",
        on_ray=True,
    ),
    Way(
        "3",
        "2 and zero-copy",
        "ray_zero_copy",
        "the batches are NumPy arrays, which Ray writes to shared memory once and the trainer "
        "reads in place",
        "the work itself, which fills the cores: each of the processor's operations goes over all "
        "pixels again, in memory that is new each time, and so does putting a batch together",
        copies=2,  # into the batch, to the store
        place="ray",
        on_ray=True,
    ),
    Way(
        "4",
        "stoker",
        "stoker_here",
        "the engine as it comes, in the trainer's process",
        "next to nothing: it takes a fraction of the CPU time, as finished pixels are written "
        "once, to where the trainer reads them, in memory that is used again",
        copies=0,
    ),
    Way(
        "5",
        "stoker on Ray",
        "stoker_ray",
        "the same engine in Ray actors, as it is spread over machines; batches are read in place",
        "next to nothing: it adds one copy, to Ray's store, and Ray's own processes",
        copies=1,  # to the store
        on_ray=True,
    ),
)
