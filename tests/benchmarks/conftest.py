"""The harness lies beside the package, not in it."""

import sys
from pathlib import Path

# Last, so that the package that is installed is the one that is tested.
sys.path.append(str(Path(__file__).parents[2]))
