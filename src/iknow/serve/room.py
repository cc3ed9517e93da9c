"""Room: how many bytes of requests a service holds at once.

Each body is bounded by itself. A thousand of them at the same time would still fill the memory, so
what all requests under way have sent is bounded too; a part that does not fit ends its request.
"""

from __future__ import annotations

from iknow.serve.refusal import Refusal


class Room:
    """Bytes that may be held; all of it belongs to the thread of the event loop.

    Examples:
        >>> room = Room(10)
        >>> room.take(7)
        >>> room.give(7)
        >>> room.held
        0
    """

    def __init__(self, most: int) -> None:
        self._most, self.held = most, 0

    def take(self, n_bytes: int) -> None:
        """Make room for bytes that have come.

        Raises:
            Refusal: 429 if there is none left.
        """
        if self.held + n_bytes > self._most:
            raise Refusal(
                429,
                f"requests under way hold {self.held:,} bytes already, and {self._most:,} may be "
                "held: try again later",
                1,
            )
        self.held += n_bytes

    def give(self, n_bytes: int) -> None:
        """Return room, once a request is over."""
        self.held -= n_bytes
