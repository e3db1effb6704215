"""SEAM: other trainers measured beside Pronk. base.py says what a peer is; drivers/ has one program per peer.

Run the scripts as modules from the root of the repository: `python -m benchmarks.peers.install`, `.run`, `.table`.
"""

import sys
from pathlib import Path

# The older measurements import one another by plain names; some of what they have is used here, too.
sys.path.append(str(Path(__file__).parent.parent))
