"""Sharing a trained policy: `pushing` collects files and sends them to the Hugging Face Hub; `card` is the README;
`zoo` lists what was shared; `recording` writes episodes as a dataset.
"""

from pronk.sharing.pushing import push
from pronk.sharing.zoo import zoo

__all__ = ["push", "zoo"]
