"""Runs the commands of docs/photographs.md and compares what they print with its first table.

    python3 tools/check_photographs.py target/release/equipoise [--data DIR] [--features FILE]

DIR holds CIFAR-10 for the program (`equipoise data get cifar10`). With FILE, features that were computed before, backbone and features are not
made again; then there is no file to join a head with. Needs what the page installs. Takes some minutes. Ends with `N passed, M failed`.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# the figures are those of one kind of CPU; others round differently
TOLERANCE = 0.5


def commands(text):
    block = re.search(r"## The commands\n```sh\n(.*?)```", text, re.DOTALL).group(1)
    return [line for line in block.splitlines() if not line.startswith("pip ")]


def table(text):
    rows = re.findall(r"^\| `?([\w -]+?)`? \|(.*\d.*)\|$", text.split("## What came out")[1].split("| step |")[0], re.MULTILINE)
    return {name: [float(cell.split("±")[0]) for cell in cells.split("|")] for name, cells in rows}


def printed(text):
    """The means in a table as `compare` prints it: a criterion, the number of seeds, and a number with its deviation per group."""
    rows = {}
    for line in text.splitlines():
        found = re.match(r"(\S+(?: \S+)*)\s{2,}\d+\s+(.*\d.*)$", line)
        if found:
            rows[found.group(1)] = [float(x) for x in re.findall(r"\d+\.\d", re.sub(r"\+- \d+\.\d", "", found.group(2)))]
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--features", type=Path)
    arguments = parser.parse_args()
    program = str(arguments.program.resolve())
    if arguments.data:
        os.environ["EQUIPOISE_DATA"] = str(arguments.data.resolve())
    page = (ROOT / "docs" / "photographs.md").read_text()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        if arguments.features:
            shutil.copy(arguments.features, Path(folder) / "features.safetensors")
        for line in commands(page):
            words = shlex.split(line)
            if arguments.features and ("embed" in words[1:2] or words[0] == "python3" or "--backbone" in words):
                continue
            words[0] = {"equipoise": program, "python3": sys.executable}[words[0]]
            words = [str(ROOT / word) if word.startswith("tools/") else word for word in words]
            result = subprocess.run(words, cwd=folder, capture_output=True, text=True)
            good, detail = result.returncode == 0, result.stderr
            if good and words[1] == "compare":
                want, got = table(page), printed(result.stdout)
                far = [name for name in want if name not in got or max(abs(a - b) for a, b in zip(want[name], got[name], strict=True)) > TOLERANCE]
                good, detail = bool(want) and not far, f"{far} differ from the page:\n{result.stdout}"
            passed, failed = passed + good, failed + (not good)
            print(f"{'ok' if good else 'FAILED'}: {line}{'' if good else f': {detail}'}", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
