"""Sharing a trained policy: `pushing` collects files and sends them to the Hugging Face Hub; `card` is the README."""

from pronk.sharing.pushing import push

__all__ = ["push"]
