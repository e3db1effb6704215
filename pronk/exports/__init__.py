"""SEAM: formats of an exported policy. `base.py` has the protocol and the table; `exporting.py` writes and checks."""

from pronk.exports.base import FORMATS, Format
from pronk.exports.exporting import Exported, export

__all__ = ["FORMATS", "Exported", "Format", "export"]
