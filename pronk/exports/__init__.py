"""SEAM: the formats of an exported policy. `base.py` has the protocol and the table of implementations."""

from pronk.exports.base import FORMATS, Format, Run, check_format, make_format
from pronk.exports.plain_policy import PlainPolicy

__all__ = ["FORMATS", "Format", "PlainPolicy", "Run", "check_format", "make_format"]
