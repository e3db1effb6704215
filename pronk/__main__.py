"""`pronk`, and python -m pronk."""

from pronk.processes.early_interrupt import end_during_imports

end_during_imports()

from pronk.cli import main  # noqa: E402 - after Ctrl-C is set up

if __name__ == "__main__":
    main()
