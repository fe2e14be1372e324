"""The code, files and commands of the four source documents, from clients/documents.

`BLOCKS["S0:42"]` is the block that begins at line 42 of the first document.
"""

import re
from dataclasses import dataclass

from conftest import REPOSITORY

BLOCK = re.compile(r"^## (S\d:\d+)\n\n```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    language: str
    text: str


def read_blocks():
    found = {}
    for page in sorted((REPOSITORY / "clients/documents").glob("*.md")):
        for place, language, text in BLOCK.findall(page.read_text()):
            assert place not in found, f"{page}: {place} is given twice"
            found[place] = Block(language, text)
    return found


BLOCKS = read_blocks()


def text_of(place):
    return BLOCKS[place].text
