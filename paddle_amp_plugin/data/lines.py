"""Renders one text line as a photographed or scanned receipt or label would show it.

Fonts come from installed packages: Noto Sans SC and Noto Serif SC (``pylopdf-fonts-zh-cn``, SIL OFL 1.1) and
WenQuanYi Micro Hei, proportional and mono (``paperang-p2-fonts-cjk``; the font: Apache-2.0 or GPL-3.0 with
font exception). Only Pillow and NumPy are needed; about 2 ms a line. All images are 8-bit RGB, H x W x 3.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from paddle_amp_plugin.data.words import package_file
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

#: Coverage, colours or pixels.
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Face:
    """One font face: the file inside its package, the index inside a collection, how often it is drawn."""

    name: str
    package: str
    file: str
    index: int
    share: float


FACES = (
    Face("Noto Sans SC", "pylopdf_fonts_zh_cn", "NotoSansSC-Regular.otf", 0, 0.35),
    Face("Noto Serif SC", "pylopdf_fonts_zh_cn", "NotoSerifSC-Regular.otf", 0, 0.30),
    Face("WenQuanYi Micro Hei", "paperang_p2_fonts_cjk", "fonts/wqy-microhei.ttc", 0, 0.20),
    Face("WenQuanYi Micro Hei Mono", "paperang_p2_fonts_cjk", "fonts/wqy-microhei.ttc", 1, 0.15),
)


@lru_cache(maxsize=128)
def load_font(face: Face, size: int) -> ImageFont.FreeTypeFont:
    """The face at ``size`` pixels an em; AMP070 when its package is missing, AMP073 when it is damaged."""
    path = package_file(face.package, face.file)
    try:
        # The basic layout engine is the same on every machine; raqm is not always there and moves glyphs.
        return ImageFont.truetype(str(path), size, index=face.index, layout_engine=ImageFont.Layout.BASIC)
    except OSError as error:
        raise AmpError(
            "AMP073",
            tr("the font {p} cannot be read: {e}", "无法读取字体 {p}:{e}", p=path, e=error),
            hint=tr(
                "reinstall it: pip install --force-reinstall {p}",
                "请重装:pip install --force-reinstall {p}",
                p=face.package.replace("_", "-"),
            ),
        ) from error


def check_fonts() -> None:
    """Load every face once, so that a missing font is found before any line is made."""
    for face in FACES:
        load_font(face, 32)


def draw_mask(text: str, face: Face, rng: np.random.Generator) -> Floats:
    """The line's ink as coverage, float32 H x W in [0, 1], with the loose margins of a detector's crop."""
    size = int(rng.integers(30, 45))
    font = load_font(face, size)
    bold = int(rng.random() < 0.3)
    spacing = size * float(rng.choice([0.0, 0.0, 0.04, 0.1, 0.2]))
    left = int(size * rng.uniform(0.06, 0.35))
    width = left + int(sum(font.getlength(c) + spacing for c in text)) + int(size * rng.uniform(0.06, 0.35))
    height = int(size * rng.uniform(1.26, 1.5))
    image = Image.new("L", (width, height))
    draw = ImageDraw.Draw(image)
    # A Chinese character's body is centred 0.38 em above the baseline (OpenType ideographic em box); centring
    # on it leaves room for the tails of g and for the hooks above.
    x, y = float(left), height / 2 + size * (0.38 + rng.uniform(-0.02, 0.04))
    for character in text:
        draw.text((x, y), character, fill=255, font=font, anchor="ls", stroke_width=bold)
        x += font.getlength(character) + spacing
    if rng.random() < 0.25:
        # Narrow print of tickets and price tags, wide print of receipt printers.
        image = image.resize((max(int(width * rng.uniform(0.75, 1.2)), 8), height), Image.Resampling.BILINEAR)
    return np.asarray(warp(image, rng), dtype=np.float32) / 255.0


def warp(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """A slight rotation, shear and perspective: the corners move by up to a sixth of the line's height."""
    w, h = image.size
    if rng.random() < 0.35:
        return image
    slope = np.tan(np.radians(rng.uniform(-2.0, 2.0))) * w / 2
    slope = float(np.clip(slope, -0.1 * h, 0.1 * h))
    shear = rng.uniform(-0.12, 0.12) * h if rng.random() < 0.3 else 0.0
    jitter = rng.uniform(-0.06, 0.06, size=8) * h
    corners = np.array([shear, -slope, -shear, h - slope, w - shear, h + slope, w + shear, slope]) + jitter
    return image.transform((w, h), Image.Transform.QUAD, corners.tolist(), Image.Resampling.BILINEAR)


def paper(height: int, width: int, rng: np.random.Generator) -> Floats:
    """A background, float32 H x W x 3 in [0, 255]: paper or label colour, uneven light, grain."""
    level = rng.uniform(165, 252)
    tint = rng.uniform(-1, 1, size=3) * (20 if rng.random() < 0.2 else 6)
    base = np.clip(level + tint, 120, 255)
    light = np.asarray(
        Image.fromarray(rng.uniform(-1, 1, size=(2, 4)).astype(np.float32)).resize(
            (width, height), Image.Resampling.BICUBIC
        )
    )
    grain = rng.standard_normal((height, width)).astype(np.float32) * rng.uniform(0.5, 5.0)
    pixels: Floats = (base + (light * rng.uniform(2, 22) + grain)[..., None]).astype(np.float32)
    return pixels


def ink_colour(rng: np.random.Generator) -> Floats:
    """Mostly near-black; now and then the blue, red or green of stamps and labels. RGB in [0, 255]."""
    grey = rng.uniform(0, 85)
    colour = np.full(3, grey) + rng.uniform(-12, 12, size=3)
    if rng.random() < 0.2:
        tints = ((170, 30, 35), (25, 45, 140), (20, 100, 60))
        colour = np.array(tints[int(rng.integers(3))]) + rng.uniform(-20, 20, size=3)
    clipped: Floats = np.clip(colour, 0, 255)
    return clipped


def wear(mask: Floats, rng: np.random.Generator) -> Floats:
    """Print that is not whole: pale thermal paper, missing print-head rows, toner that did not hold."""
    mask = mask * rng.uniform(0.72, 1.0)
    kind = rng.random()
    h, w = mask.shape
    if kind < 0.10:
        mask = mask * np.where(rng.random((h, 1)) < 0.1, 0.45, 1.0)
    elif kind < 0.22:
        blotches = Image.fromarray(rng.uniform(0.55, 1.15, size=(4, 12)).astype(np.float32))
        mask = mask * np.clip(np.asarray(blotches.resize((w, h), Image.Resampling.BICUBIC)), 0, 1)
    return mask


def rule_lines(mask: Floats, rng: np.random.Generator) -> None:
    """In place: now and then a form's rule or a cell's border beside the text, as receipts and tables have."""
    if rng.random() > 0.12:
        return
    h, w = mask.shape
    y = int(rng.choice([1, h - 2]))
    strength = rng.uniform(0.4, 0.9)
    if rng.random() < 0.4:
        dash = int(rng.integers(3, 7))
        columns = (np.arange(w) // dash) % 2 == 0
        mask[y, columns] = np.maximum(mask[y, columns], strength)
    else:
        mask[y, :] = np.maximum(mask[y, :], strength)


def degrade(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """The camera: blur, a low resolution, noise of the sensor, JPEG."""
    if rng.random() < 0.5:
        image = image.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.3, 1.1))))
    if rng.random() < 0.25:
        w, h = image.size
        factor = rng.uniform(0.5, 0.8)
        small = image.resize((max(int(w * factor), 8), max(int(h * factor), 8)), Image.Resampling.BILINEAR)
        image = small.resize((w, h), Image.Resampling.BILINEAR)
    if rng.random() < 0.4:
        pixels = np.asarray(image, dtype=np.float32)
        noise = rng.standard_normal(pixels.shape).astype(np.float32) * rng.uniform(2, 11)
        image = Image.fromarray(np.clip(pixels + noise, 0, 255).astype(np.uint8))
    return image


def render_line(text: str, rng: np.random.Generator) -> Image.Image:
    """One text line as an RGB image, about 32 to 64 pixels high; a function of text and ``rng`` state alone."""
    shares = np.cumsum([face.share for face in FACES])
    face = FACES[min(int(np.searchsorted(shares, rng.random() * shares[-1])), len(FACES) - 1)]
    mask = wear(draw_mask(text, face, rng), rng)
    rule_lines(mask, rng)
    background, ink = paper(mask.shape[0], mask.shape[1], rng), ink_colour(rng)
    if rng.random() < 0.12:
        # White on a dark label or sign.
        background, ink = 255.0 - background * rng.uniform(0.75, 1.0), 255.0 - ink * 0.4
    alpha = mask[..., None]
    pixels = background * (1 - alpha) + ink * alpha
    return degrade(Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)), rng)


def encode_jpeg(image: Image.Image, rng: np.random.Generator) -> bytes:
    """The image as JPEG, quality 45 to 95, as phones and scanners save it."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=int(rng.integers(45, 96)))
    return buffer.getvalue()


def contact_sheet(images: Sequence[Image.Image], columns: int = 8, cell: tuple[int, int] = (180, 60)) -> Image.Image:
    """The images side by side in cells of (width, height) pixels, for a human eye."""
    rows = -(-len(images) // columns)
    sheet = Image.new("RGB", (columns * cell[0], rows * cell[1]), (90, 140, 90))
    for i, image in enumerate(images):
        fitted = image.copy()
        fitted.thumbnail((cell[0] - 6, cell[1] - 6))
        sheet.paste(fitted, ((i % columns) * cell[0] + 3, (i // columns) * cell[1] + 3))
    return sheet
