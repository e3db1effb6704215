"""`pronk`, and python -m pronk."""

try:
    from pronk.processes.early_interrupt import end_during_imports

    end_during_imports()

    from pronk.cli import main
except KeyboardInterrupt:  # before the line above, or where it has no effect
    raise SystemExit(130) from None

if __name__ == "__main__":
    main()
