"""A window that shows pictures, through pygame. Escape or its close button ends, space pauses."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image


def why_no_window() -> str | None:
    """None where a window can be opened, else the reason."""
    from importlib.util import find_spec

    if find_spec("pygame") is None:
        return "no pygame here (pip install 'pronk[toys]')"
    return None if has_screen() else "no screen here"


def has_screen() -> bool:
    """Whether there is something to open a window on."""
    chosen = os.environ.get("SDL_VIDEODRIVER")
    if chosen or not sys.platform.startswith("linux"):
        return chosen != "dummy"
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def draw_without_screen() -> None:
    """Let pygame do without a screen if there is none: it looks for one even when it only draws into memory."""
    if not has_screen():
        os.environ["SDL_VIDEODRIVER"] = "dummy"


class Window:
    """Open while its `with` block lasts."""

    def __init__(self, title: str, fps: float) -> None:
        self._title, self._fps = title, fps
        self._surface: Any = None

    def __enter__(self) -> Window:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        import pygame

        pygame.display.init()
        pygame.display.set_caption(self._title)
        self._pygame: Any = pygame
        self._clock = pygame.time.Clock()
        return self

    def __exit__(self, *_: object) -> None:
        self._pygame.display.quit()

    def show(self, picture: Image) -> bool:
        """Show it for one step's time; False when the user has closed the window."""
        if self._surface is None:
            self._surface = self._pygame.display.set_mode(picture.size)
        self._surface.blit(self._pygame.image.frombytes(picture.tobytes(), picture.size, "RGB"), (0, 0))
        self._pygame.display.flip()
        self._clock.tick(self._fps)
        return self._still_open()

    def _still_open(self) -> bool:
        paused = False
        while True:
            for event in self._pygame.event.get():
                if event.type == self._pygame.QUIT:
                    return False
                if event.type == self._pygame.KEYDOWN and event.key in (self._pygame.K_ESCAPE, self._pygame.K_q):
                    return False
                if event.type == self._pygame.KEYDOWN and event.key == self._pygame.K_SPACE:
                    paused = not paused
            if not paused:
                return True
            self._clock.tick(20)
