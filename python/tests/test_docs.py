"""Every Python block of docs/python.md runs. The blocks of one section (## heading) share their names."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def sections():
    heading, blocks = "Introduction", []
    for match in re.finditer(r"^## (.+?)$|^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        if match[1]:
            if blocks:
                yield heading, blocks
            heading, blocks = match[1], []
        else:
            line = PAGE.read_text()[: match.start(2)].count("\n")
            blocks.append((line, match[2]))
    if blocks:
        yield heading, blocks


@pytest.mark.parametrize(("heading", "blocks"), [pytest.param(h, b, id=h) for h, b in sections()])
def test_section(heading, blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "docs"}
    for line, code in blocks:
        # blank lines in front, so that errors name the line of the page
        exec(compile("\n" * line + code, str(PAGE), "exec"), names)


def test_the_first_block_of_runs_needs_nothing_else(tmp_path):
    """In an interpreter of its own: other blocks and tests have imported what this one may not."""
    code = dict(sections())["Runs and reports"][0][1]
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "runs/mine/report.html" and (tmp_path / "runs/mine/report.html").exists()
    assert "Warning" not in run.stderr
    code = "import equipoise, sys; assert 'torch' not in sys.modules; print(*dir(equipoise.torch))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0 and {"Cwap", "Metrics"} <= set(run.stdout.split()), run.stderr


def test_the_page_has_blocks():
    assert sum(len(blocks) for _, blocks in sections()) > 0
