import sys

import pytest

import pronk.cli


@pytest.fixture
def cli(monkeypatch, capsys, tmp_path):
    """`pronk` in this process and in an empty directory: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["pronk", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            pronk.cli.main()
        return ended.value.code or 0, *capsys.readouterr()

    return run
