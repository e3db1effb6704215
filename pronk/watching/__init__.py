"""Shows a trained agent playing: `watch` plays, `film` and `window` show it."""

from pronk.watching.watch import Scene, film_final, watch

__all__ = ["Scene", "film_final", "watch"]
