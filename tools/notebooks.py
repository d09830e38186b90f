"""Run the notebooks with a real kernel, and save them with what came out.

    python -m tools.notebooks [NAME...]

needs the extras ``dev`` and ``docs``, and a Chromium. A code host shows a saved notebook without running anything in
it, so every figure is saved with an image beside its data, and without the HTML that a host would take first. Nothing
is saved that differs from run to run: no execution times, no version of the kernel. A figure whose data did not change
keeps its image.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

REPOSITORY = Path(__file__).parents[1]
NOTEBOOKS = REPOSITORY / "notebooks"

PLOTLY_MIME, IMAGE_MIME, HTML_MIME = "application/vnd.plotly.v1+json", "image/png", "text/html"

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH_PX, SCALE, COLORS = 1080, 2, 96
"""Images are twice as fine as they are wide, and of few colors: flat areas and gray text need no more."""

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
SETTINGS_OF_THE_USER = ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "GAPSCOPE_CACHE")
TIMEOUT_S = 300


def paths(names: Sequence[str] = ()) -> list[Path]:
    """Return the notebooks of some names, or all."""
    return [NOTEBOOKS / f"{name}.ipynb" for name in names] or sorted(NOTEBOOKS.glob("*.ipynb"))


def read(path: Path) -> NotebookNode:
    """Return a saved notebook, its outputs included."""
    return nbformat.read(path, as_version=4)


def run(notebook: NotebookNode) -> NotebookNode:
    """Return a copy with what comes out now, run from top to bottom in a fresh kernel in the folder of the notebooks.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell raised.
    """
    fresh = nbformat.from_dict(notebook)
    for cell in code_cells(fresh):
        cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        fresh, timeout=TIMEOUT_S, kernel_name="python3", record_timing=False, coalesce_streams=True,
        resources={"metadata": {"path": str(NOTEBOOKS)}}, extra_arguments=["--log-level=ERROR"],
    )  # fmt: skip
    client.execute(env=_environment())
    for cell in code_cells(fresh):
        cell.metadata.pop("execution", None)
        for output in cell.outputs:
            if PLOTLY_MIME in output.get("data", {}):
                output.data.pop(HTML_MIME, None)
    fresh.metadata = nbformat.from_dict(METADATA)
    return fresh


def _environment() -> dict[str, str]:
    """Return the kernel's: the packages of this checkout, figures as data alone, nothing of the user's settings."""
    own = {k: v for k, v in os.environ.items() if k not in SETTINGS_OF_THE_USER and not k.startswith("POLARS_")}
    found = [str(REPOSITORY), str(REPOSITORY / "instrumentation"), *filter(None, [own.get("PYTHONPATH")])]
    return {**own, "PYTHONPATH": os.pathsep.join(found), "PLOTLY_RENDERER": "plotly_mimetype", "TZ": "UTC"}


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the cells with code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def figures(notebook: NotebookNode) -> Iterator[NotebookNode]:
    """Yield the data of each output that is a figure."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if PLOTLY_MIME in output.get("data", {}):
                yield output.data


def without_images(notebook: NotebookNode) -> list[Any]:
    """Return what each cell with code put out, but for images: what has to come out again on any machine."""
    return [
        [
            {**output, "data": {mime: data for mime, data in output.data.items() if mime != IMAGE_MIME}}
            if "data" in output
            else dict(output)
            for output in cell.outputs
        ]
        for cell in code_cells(notebook)
    ]


def draw(figure: Mapping[str, Any]) -> str:
    """Return the image of a figure on white paper, as notebooks hold it: PNG in base64."""
    from PIL import Image  # noqa: PLC0415 - only those who save notebooks draw
    from plotly.graph_objects import Figure  # noqa: PLC0415

    drawn = Figure(data=figure["data"], layout=figure["layout"])
    drawn.update_layout(paper_bgcolor="#ffffff", plot_bgcolor="#ffffff", font_color="#404040")
    png = drawn.to_image(format="png", width=WIDTH_PX, scale=SCALE)
    few = Image.open(io.BytesIO(png)).convert("RGB").quantize(COLORS, dither=Image.Dither.NONE)
    out = io.BytesIO()
    few.save(out, "png", optimize=True)
    return base64.b64encode(out.getvalue()).decode() + "\n"


def add_images(notebook: NotebookNode, before: NotebookNode) -> int:
    """Give every figure its image: that of an equal figure in ``before``, else a new one.

    Returns:
        How many were drawn.
    """
    known = [(data[PLOTLY_MIME], data[IMAGE_MIME]) for data in figures(before) if IMAGE_MIME in data]
    drawn = 0
    for data in figures(notebook):
        image = next((image for figure, image in known if figure == data[PLOTLY_MIME]), None)
        drawn += image is None
        data[IMAGE_MIME] = image or draw(data[PLOTLY_MIME])
    return drawn


def main(arguments: Sequence[str] | None = None) -> None:
    """Run and save some notebooks, or all."""
    parser = argparse.ArgumentParser(description="Run the notebooks and save them with their outputs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="notebook, without .ipynb (default: all)")
    parser.add_argument("--redraw", action="store_true", help="draw images anew where nothing changed, too")
    options = parser.parse_args(arguments)
    os.environ.setdefault("BROWSER_PATH", next(filter(None, map(shutil.which, BROWSERS)), ""))
    for path in paths(options.names):
        before = read(path)
        notebook = run(before)
        drawn = add_images(notebook, nbformat.v4.new_notebook() if options.redraw else before)
        nbformat.validate(notebook)
        nbformat.write(notebook, path)
        print(f"{path.relative_to(REPOSITORY)}: {path.stat().st_size:,} bytes, {drawn} images drawn")


if __name__ == "__main__":
    main()
