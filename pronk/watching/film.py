"""Pictures of play: several environments in a grid, each with its score above it, written as GIF or MP4.

GIF needs nothing but Pillow. MP4 needs PyAV, which brings its own encoder: `pip install pronk[video]`.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from pronk.runs.atomic import aside_of
from pronk.runs.reading import decimals
from pronk.types import Array, UserError

if TYPE_CHECKING:
    from PIL.Image import Image

ENDINGS = (".mp4", ".gif")
SMALLEST = 240  # pixels across, to which a small picture is enlarged
LARGEST = 1280  # of a whole grid
CAPTION = 20  # pixels above a picture
GAP = 2  # between two
GIF_FPS = 25  # more is too fast for many viewers
PALETTE_PICTURES = 25  # from which a GIF takes its colours
HOLD = 1.0  # seconds that the last picture stays
INK, PAPER, QUIET = (255, 255, 255), (32, 36, 44), (120, 126, 136)


@dataclass
class View:
    """One of the environments that are shown."""

    episode: int
    picture: Any = None  # [H, W, 3], a text, or None
    step: int = 0
    score: float = 0.0
    over: bool = False
    """Its last episode has ended; its picture stays."""
    task: str = ""
    """Its name, if there are several."""

    @property
    def caption(self) -> str:
        """The text above the picture."""
        task = f"{self.task}   " if self.task else ""
        return f"{task}episode {self.episode}   step {self.step:,}   score {score_text(self.score)}"


def score_text(value: float) -> str:
    """Format a score: integers without decimals, others with two, or more if that shows fewer than two digits."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.{max(2, decimals(abs(value)))}f}"


def is_picture(value: Any) -> bool:
    """[H, W], [H, W, 1], [H, W, 3] or [H, W, 4]."""
    return isinstance(value, np.ndarray) and (value.ndim == 2 or (value.ndim == 3 and value.shape[2] in (1, 3, 4)))


def compose(views: list[View], width: int | None = None) -> Image:
    """Draw all views side by side, in about as many rows as columns."""
    from PIL import Image, ImageDraw

    columns = math.ceil(math.sqrt(len(views)))
    rows = math.ceil(len(views) / columns)
    height_of_one, width_of_one = tile_size(views[0].picture, columns, width)
    across, down = width_of_one + GAP, height_of_one + CAPTION
    sheet = Image.new("RGB", even(columns * across - GAP, rows * down), PAPER)
    brush = ImageDraw.Draw(sheet)
    for index, view in enumerate(views):
        x, y = index % columns * across, index // columns * down
        tile = Image.fromarray(as_rgb(view.picture))
        enlarge = tile.width < width_of_one
        how = Image.Resampling.NEAREST if enlarge else Image.Resampling.BILINEAR
        tile = tile.resize((width_of_one, height_of_one), how, reducing_gap=None if enlarge else 2.0)
        if view.over and len(views) > 1:
            tile = Image.blend(tile, Image.new("RGB", tile.size, PAPER), 0.55)
        sheet.paste(tile, (x, y + CAPTION))
        size = min(13, max(8, width_of_one // 17))
        ink = QUIET if view.over and len(views) > 1 else INK
        brush.text((x + 6, y + (CAPTION - size) // 2 - 1), view.caption, fill=ink, font=font(size))
    return sheet


@functools.lru_cache
def font(size: int) -> Any:
    """Pillow's own, which needs no file."""
    from PIL import ImageFont

    return ImageFont.load_default(size)


def tile_size(picture: Array, columns: int, width: int | None) -> tuple[int, int]:
    """Height and width of a tile: small pictures grow by a whole factor, a wide grid shrinks."""
    height_of_one, width_of_one = picture.shape[:2]
    if width is None:
        factor: float = max(1, round(SMALLEST / width_of_one))
        if columns * width_of_one * factor > LARGEST:
            factor = LARGEST / (columns * width_of_one)
    else:
        factor = width / (columns * width_of_one)
    return max(1, round(height_of_one * factor)), max(1, round(width_of_one * factor))


def even(width: int, height: int) -> tuple[int, int]:
    """Video encoders want even sizes."""
    return width + width % 2, height + height % 2


def as_rgb(picture: Array) -> Array:
    """[H, W, 3] bytes."""
    picture = np.asarray(picture)
    if picture.dtype != np.uint8:
        picture = np.clip(picture * (255 if np.issubdtype(picture.dtype, np.floating) else 1), 0, 255).astype(np.uint8)
    if picture.ndim == 2:
        picture = picture[..., None]
    return np.ascontiguousarray(np.broadcast_to(picture[..., :3], (*picture.shape[:2], 3)))


class Film(Protocol):
    """A film, written picture by picture. The file appears when the `with` block is left without an error."""

    def __enter__(self) -> Film: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None: ...
    def write(self, picture: Image) -> None:
        """The next picture."""
        ...


def open_film(path: Path, fps: float) -> Film:
    """Open a film in the format of the file's suffix."""
    check_film(path)
    return (Gif if path.suffix.lower() == ".gif" else Mp4)(path, fps)


def write_film(path: Path, pictures: Iterable[Image], fps: float, poster: bool = False) -> None:
    """Write a film. With `poster`, a picture from its second half is kept beside an MP4, as NAME.jpg."""
    with_poster = poster and path.suffix.lower() == ".mp4"
    kept: Image | None = None
    with open_film(path, fps) as film:
        for number, picture in enumerate(pictures, 1):
            film.write(picture)
            if with_poster and number & (number - 1) == 0:  # a power of two: the last one is past the middle
                kept = picture.copy()
    if kept is not None:
        target = path.with_suffix(".jpg")
        aside = aside_of(target)
        try:
            kept.save(aside, "JPEG", quality=85)
            os.replace(aside, target)
        except OSError as problem:
            raise UserError(f"cannot write {target}: {problem.strerror or problem}") from None
        finally:
            aside.unlink(missing_ok=True)


def check_film(path: Path) -> None:
    """Raise if the file cannot be written; called before anything is played."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise UserError(f"cannot write {path}: its name must end in {' or '.join(ENDINGS)}")
    if not path.parent.is_dir():
        raise UserError(f"cannot write {path}: there is no directory {path.parent}")
    if ending == ".mp4" and not can_mp4():
        raise UserError(
            f"cannot write {path}: .mp4 needs PyAV; install it with pip install 'pronk[video]', or write a .gif"
        )


def can_mp4() -> bool:
    """Whether PyAV is here."""
    from importlib.util import find_spec

    return find_spec("av") is not None


class Gif:
    """A GIF whose pictures share one palette, so that only what moves takes room.

    The palette has the colours of the first pictures, and some of all kinds for what comes later.
    """

    def __init__(self, path: Path, fps: float) -> None:
        self._path, self._every = path, max(1, math.ceil(fps / GIF_FPS))
        self._milliseconds = max(20, round(100 * self._every / fps) * 10)  # the format counts in hundredths
        self._count = 0
        self._skipped: Image | None = None
        self._waiting: list[Image] = []  # in full colour, until the palette is made
        self._pictures: list[Image] = []
        self._palette: Image | None = None

    def __enter__(self) -> Gif:
        return self

    def write(self, picture: Image) -> None:
        """Keep every n-th picture, so that there are at most GIF_FPS per second, and the last."""
        self._skipped = picture
        if self._count % self._every == 0:
            self._keep(picture)
        self._count += 1

    def _keep(self, picture: Image) -> None:
        self._skipped = None
        self._waiting.append(picture)
        if self._palette or len(self._waiting) == PALETTE_PICTURES:
            self._reduce()

    def _reduce(self) -> None:
        """Full colour to the palette's, which takes a third of the memory."""
        from PIL import Image

        self._palette = palette = self._palette or palette_of(self._waiting)
        self._pictures += [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in self._waiting]
        self._waiting = []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None or self._count == 0:
            return
        if self._skipped is not None:
            self._keep(self._skipped)
        self._reduce()
        first, *rest = self._pictures
        durations = [self._milliseconds] * len(rest) + [round(HOLD * 1000)]
        aside = aside_of(self._path)
        try:
            first.save(aside, "GIF", save_all=True, append_images=rest, duration=durations, loop=0, optimize=False)
            os.replace(aside, self._path)
        except OSError as problem:
            raise UserError(f"cannot write {self._path}: {problem.strerror or problem}") from None
        finally:
            aside.unlink(missing_ok=True)


def palette_of(pictures: list[Image]) -> Image:
    """Return a palette with 128 colours of these pictures, and 125 that are spread over all colours."""
    from PIL import Image

    width, height = pictures[0].size
    strip = Image.new("RGB", (width, height * len(pictures)))
    for index, picture in enumerate(pictures):
        strip.paste(picture, (0, index * height))
    own = strip.quantize(256 - 5**3, dither=Image.Dither.NONE).getpalette() or []
    levels = (0, 64, 128, 191, 255)
    spread = [level for colour in itertools.product(levels, repeat=3) for level in colour]
    palette = Image.new("P", (1, 1))
    palette.putpalette([*own[: 3 * 128], *spread])
    return palette


class Mp4:
    """An MP4 in H.264, which every browser plays."""

    def __init__(self, path: Path, fps: float) -> None:
        self._path, self._fps = path, Fraction(fps).limit_denominator(1000)
        self._aside = aside_of(path)
        self._stream: Any = None
        self._last: Image | None = None

    def __enter__(self) -> Mp4:
        import av

        try:
            self._file: Any = av.open(str(self._aside), "w", format="mp4")
        except OSError as problem:
            raise UserError(f"cannot write {self._path}: {problem.strerror}") from None
        return self

    def write(self, picture: Image) -> None:
        """Encode it; the first one decides the size."""
        import av

        if self._stream is None:
            self._stream = self._file.add_stream("libx264", rate=self._fps, options={"crf": "20", "preset": "fast"})
            self._stream.width, self._stream.height = picture.size
            self._stream.pix_fmt = "yuv420p"
        self._last = picture
        self._file.mux(self._stream.encode(av.VideoFrame.from_image(picture)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._last is not None:
                for _ in range(round(HOLD * self._fps)):
                    self.write(self._last)
                self._file.mux(self._stream.encode())
            self._file.close()
            if kind is None:
                os.replace(self._aside, self._path)
        except OSError as problem:
            raise UserError(f"cannot write {self._path}: {problem.strerror}") from None
        finally:
            self._aside.unlink(missing_ok=True)
