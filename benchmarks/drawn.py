"""Pictures of the documentation: each names the version of the layout that it was drawn with.

python -m benchmarks.drawn PICTURE    keep a picture that an example drew
"""

from __future__ import annotations

import sys
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from qbeast_core.spec.blocks import LAYOUT_VERSION

IMAGES = Path(__file__).parent.parent / "docs" / "images"
LAYOUT = "Layout"  # of the metadata of a picture


def save(figure: Figure, name: str, *, dpi: int = 110) -> None:
    """Save a picture for the documentation."""
    figure.savefig(IMAGES / name, dpi=dpi, metadata={LAYOUT: str(LAYOUT_VERSION)})


def keep(picture: Path) -> None:
    """Copy a picture to the documentation."""
    info = PngInfo()
    info.add_text(LAYOUT, str(LAYOUT_VERSION))
    with Image.open(picture) as image:
        image.save(IMAGES / picture.name, pnginfo=info, optimize=True)


def layout_of(picture: Path) -> str | None:
    """Return the version of the layout that a picture was drawn with. None: it does not say."""
    with Image.open(picture) as image:
        return image.info.get(LAYOUT)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
