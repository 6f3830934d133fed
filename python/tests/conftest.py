import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# On some virtual machines with AMX, torch's own products of bf16 end with an illegal instruction. This must be set
# before torch is imported, and reaches the processes that tests start.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


@pytest.fixture(scope="session")
def binary():
    """The command line program: $EQUIPOISE, the one built in this repository, or the one that is installed."""
    places = [os.environ.get("EQUIPOISE"), ROOT / "target" / "release" / "equipoise", shutil.which("equipoise")]
    for place in places:
        if place and Path(place).is_file():
            return Path(place)
    pytest.skip("the program equipoise is not built: cargo build --release")


@pytest.fixture(scope="session")
def reference():
    """tools/reference.py: every criterion in plain Python and double precision."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["reference"] = module
    spec.loader.exec_module(module)
    return module
