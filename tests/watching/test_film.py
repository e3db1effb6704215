import numpy as np
import pytest
from PIL import Image

from pronk.types import UserError
from pronk.watching.film import CAPTION, View, as_rgb, compose, is_picture, open_film


def flat(value, shape=(20, 30, 3)):
    return np.full(shape, value, np.uint8)


def test_a_grid_shows_every_picture_under_its_caption():
    views = [View(index + 1, flat(60 * index)) for index in range(4)]
    sheet = np.asarray(compose(views))
    height, width = sheet.shape[0] // 2, sheet.shape[1] // 2
    for index in range(4):
        y, x = index // 2 * height, index % 2 * (width + 1)
        tile, caption = (
            sheet[y + CAPTION + 2 : y + height - 2, x + 2 : x + width - 4],
            sheet[y : y + CAPTION, x : x + width],
        )
        assert (tile == 60 * index).all()
        assert caption.max() > 200  # white letters
        assert caption.min() < 60


def test_captions_say_episode_step_and_score():
    view = View(3, flat(0), step=1234, score=21.0)
    assert view.caption == "episode 3   step 1,234   score 21"
    assert View(1, score=-0.5).caption.endswith("score -0.50")
    assert View(1, score=0.0041).caption.endswith("score 0.0041")


def test_a_seat_whose_episodes_are_over_is_dimmed():
    bright, dim = (np.asarray(compose([View(1, flat(200), over=over), View(2, flat(200))])) for over in (False, True))
    assert dim[CAPTION + 5, 5].max() < bright[CAPTION + 5, 5].min()


@pytest.mark.parametrize(
    ("shape", "width", "wanted"), [((10, 5), None, 240), ((400, 600), None, 600), ((400, 600), 301, 302)]
)
def test_small_pictures_grow_and_sizes_are_even(shape, width, wanted):
    sheet = compose([View(1, flat(0, (*shape, 3)))], width)
    assert sheet.width == wanted
    assert sheet.height % 2 == 0


def test_a_wide_grid_shrinks():
    assert compose([View(i, flat(0, (400, 600, 3))) for i in range(9)]).width <= 1290


def test_what_counts_as_a_picture():
    assert all(map(is_picture, [flat(0), flat(0, (4, 4)), flat(0, (4, 4, 1)), flat(0, (4, 4, 4))]))
    assert not any(map(is_picture, [None, "text", [1], flat(0, (3,)), flat(0, (4, 4, 2))]))
    assert as_rgb(np.full((2, 2), 0.5)).tolist() == [[[127] * 3] * 2] * 2
    assert as_rgb(flat(7, (2, 3, 4))).shape == (2, 3, 3)


# ---- files


def filmed(path, count, fps):
    with open_film(path, fps) as film:
        for index in range(count):
            film.write(Image.fromarray(flat(8 * index, (64, 64, 3))))
    return path


def test_a_gif_keeps_the_pace_and_the_last_picture(tmp_path):
    with Image.open(filmed(tmp_path / "a.gif", 12, 50)) as gif:
        assert gif.n_frames == 7  # every second one, and the last
        assert (gif.info["duration"], gif.info["loop"]) == (40, 0)
        gif.seek(gif.n_frames - 1)
        assert gif.info["duration"] == 1000
    assert [path.name for path in tmp_path.iterdir()] == ["a.gif"]


def test_a_gif_has_colours_for_what_comes_late(tmp_path):
    late = np.zeros((64, 64, 3), np.uint8)
    late[:] = (255, 0, 128)
    with open_film(tmp_path / "a.gif", 10) as film:
        for index in range(40):
            film.write(Image.fromarray(flat(index, (64, 64, 3))))
        film.write(Image.fromarray(late))
    with Image.open(tmp_path / "a.gif") as gif:
        gif.seek(gif.n_frames - 1)
        assert gif.convert("RGB").getpixel((5, 5)) == (255, 0, 128)


def test_an_mp4_has_every_picture_and_holds_the_last(tmp_path):
    av = pytest.importorskip("av")
    with av.open(str(filmed(tmp_path / "a.mp4", 12, 15))) as file:
        stream = file.streams.video[0]
        assert (stream.codec_context.name, stream.average_rate) == ("h264", 15)
        levels = [frame.to_ndarray(format="gray").mean() for frame in file.decode(stream)]
    assert len(levels) == 12 + 15
    assert levels[:12] == sorted(levels[:12])
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"]


@pytest.mark.parametrize("name", ["a.gif", "a.mp4"])
def test_a_broken_off_film_leaves_nothing_and_spares_the_old_one(tmp_path, name):
    (tmp_path / name).write_bytes(b"old")

    def break_off():
        with open_film(tmp_path / name, 10) as film:
            film.write(Image.fromarray(flat(1, (64, 64, 3))))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_off()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {name: b"old"}


@pytest.mark.parametrize(
    ("name", "told"), [("a.avi", r"its name must end in .mp4 or .gif"), ("no/a.gif", "no directory")]
)
def test_a_film_that_cannot_be_is_refused(tmp_path, name, told):
    with pytest.raises(UserError, match=told):
        open_film(tmp_path / name, 10)
