"""Counts the lines of a file, or of all files in a folder, and writes the number to a folder."""

import argparse
import pathlib

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=pathlib.Path, required=True)
parser.add_argument("--out", type=pathlib.Path)
arguments = parser.parse_args()
files = sorted(arguments.data.rglob("*")) if arguments.data.is_dir() else [arguments.data]
lines = sum(len(file.read_text().splitlines()) for file in files if file.is_file())
print("lines:", lines)
if arguments.out:
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "lines.txt").write_text(f"{lines}\n")
