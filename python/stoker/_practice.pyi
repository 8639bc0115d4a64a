"""What the demo, benches and tests practise on: a store on this machine, and made-up data.

They are compiled and live in `stoker._native`; this file only describes them, for type checkers and
readers.
"""

from collections.abc import Mapping
from typing import Any, Self, final

@final
class S3Server:
    """An S3 server over objects in memory, on a free port of this machine: the demo's store.

    Args:
        profile: How long requests take: `none`, `hot`, `standard`, `cold` or `express`.
        seed: Chooses the latencies.
        faults: What goes wrong, as `stoker s3 --faults` reads it from a file.
        first_byte_seconds: How long each answer is held back, in place of the profile's draws.
        bytes_per_second: What all answers together may take of the network.

    Raises:
        ValueError: There is no such profile or time, or the faults can't be made.
        OSError: No port can be listened on.
    """

    def __new__(
        cls,
        *,
        profile: str = "standard",
        seed: int = 0,
        faults: Mapping[str, Any] | None = None,
        first_byte_seconds: float | None = None,
        bytes_per_second: int | None = None,
    ) -> Self: ...
    @property
    def endpoint(self) -> str:
        """Its address, such as `http://127.0.0.1:41234`."""

    @property
    def access_key_id(self) -> str:
        """Half of the key pair that requests are signed with."""

    @property
    def secret_access_key(self) -> str:
        """The other half."""

    def put(self, bucket: str, key: str, content: bytes) -> None:
        """Stores an object; its bucket is made if it is new.

        Raises:
            ValueError: The server was closed.
        """

    def set_faults(self, faults: Mapping[str, Any] | None) -> None:
        """Has other things go wrong from now on, or nothing; counts begin anew.

        Raises:
            ValueError: They can't be made, or the server was closed.
        """

    def injected(self) -> dict[str, int]:
        """How often each fault happened, by its name, since these faults were set."""

    def stats(self) -> tuple[int, int, int]:
        """Requests, bytes of objects sent and most reads at the same time, so far.

        Raises:
            ValueError: The server was closed.
        """

    def close(self) -> None:
        """Stops it at once; open connections are cut."""

@final
class DemoDataset:
    """The demo's made-up data set: a JSONL of chat samples (object 0), then their images.

    Args:
        seed: Chooses all of it.
        samples: Number of chat samples.
        pixels: Fewest and most pixels of an image; small ones come more often.

    Raises:
        ValueError: Images can't have so many pixels.
    """

    def __new__(
        cls, *, seed: int, samples: int, pixels: tuple[int, int] = (200_000, 2_000_000)
    ) -> Self: ...
    @property
    def key(self) -> str:
        """Key of the JSONL."""

    def __len__(self) -> int:
        """Number of objects."""

    def object(self, number: int) -> tuple[str, bytes]:
        """Key and bytes of an object: a pure function of the seed and its number.

        Raises:
            IndexError: There is no such object.
        """

    def pixels(self, number: int) -> int:
        """Pixels of an object; 0 for the JSONL.

        Raises:
            IndexError: There is no such object.
        """
