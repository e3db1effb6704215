"""python -m pronk."""

from pronk.cli import main

main()
