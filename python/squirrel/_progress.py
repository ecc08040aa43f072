"""One line of progress: a bar that is redrawn on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

_BAR_WIDTH = 30
_TERMINAL_SECONDS = 0.1
_PLAIN_SECONDS = 10.0


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


class Progress:
    """Shows how far a pack is.

    Args:
        enabled: None shows a bar on a terminal and nothing else; True shows plain lines where
            the stream is no terminal; False shows nothing.
        total: number of inputs or samples, or None when it is not known.
        unit: what is counted.
    """

    def __init__(
        self,
        enabled: bool | None,
        total: int | None,
        unit: str = "samples",
        stream: TextIO | None = None,
    ) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.terminal = bool(self.stream is not None and self.stream.isatty())
        self.enabled = self.terminal if enabled is None else enabled and self.stream is not None
        self.total = total
        self.unit = unit
        self.begun = self.told = time.monotonic()
        self.drawn = False

    def update(self, done: int, file_bytes: int = 0, force: bool = False) -> None:
        """Called as often as one likes."""
        if not self.enabled:
            return
        now = time.monotonic()
        pause = _TERMINAL_SECONDS if self.terminal else _PLAIN_SECONDS
        if not force and now - self.told < pause:
            return
        self.told = now
        seconds = max(now - self.begun, 1e-9)
        text = f"{done:,} {self.unit}, {done / seconds:,.0f}/s"
        if file_bytes:
            text += f", {_size(file_bytes)}"
        if self.total:
            share = min(done / self.total, 1.0)
            filled = int(share * _BAR_WIDTH)
            text = f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {share:4.0%} {text}"
        if self.terminal:
            self.stream.write(f"\r\x1b[K{text}")
            self.drawn = True
        else:
            self.stream.write(f"squirrel.pack: {text}\n")
        self.stream.flush()

    def __call__(self, done: int, file_bytes: int) -> None:
        self.update(done, file_bytes)

    def end(self, done: int, file_bytes: int) -> None:
        """The last state stays on the screen."""
        self.update(done, file_bytes, force=True)
        if self.drawn:
            self.stream.write("\n")
            self.stream.flush()
