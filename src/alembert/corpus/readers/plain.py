"""Plain text: a file is one document, or documents are separated by blank lines (`documents="blank"`).

The text is kept exactly as it is decoded, line ends and white space included, except that a final line break is
dropped. Ids are the file's name, with the number of the document when there are several.
"""

from __future__ import annotations

from collections.abc import Iterator

from alembert.corpus.document import Document
from alembert.corpus.readers.contract import Item, ReadOptions, SetAside
from alembert.corpus.readers.source import SourceFile, split_paragraphs


def read(source: SourceFile, options: ReadOptions) -> Iterator[Item]:
    """Read a text file as one document or as one per paragraph."""
    if options.documents == "blank":
        yield from _by_paragraph(source)
        return
    text = source.text().removesuffix("\n").removesuffix("\r")
    if text.strip():
        yield Document(source.stem, text)
    else:
        yield source.set_aside("the file holds white space only", kind="file")


def _by_paragraph(source: SourceFile) -> Iterator[Item]:
    for number, lines in enumerate(split_paragraphs(source), start=1):
        if isinstance(lines, SetAside):
            yield lines
        else:
            yield Document(f"{source.stem}-{number}", "\n".join(line.text for line in lines))
