"""Make the peers' virtual environments: `python -m benchmarks.peers.install FOLDER`.

Each peer gets a virtual environment of its own in FOLDER, with the versions of requirements/NAME.txt. torch is the one
of constraints.txt for all of them: given in PIP_CONSTRAINT, it reaches isolated builds, too. What is installed already
is not installed again. A peer that cannot be installed does not keep the others from it; the exit code says so.

CleanRL and TorchBeast are run from a checkout. They are not installed, and nothing of them is compiled:

    git clone https://github.com/vwxyzjn/cleanrl && git clone https://github.com/facebookresearch/torchbeast
    python -m benchmarks.peers.install peers --cleanrl cleanrl --torchbeast torchbeast
    python -m benchmarks.peers.install peers --only sb3 rllib
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from .base import HERE, REQUIREMENTS, VENVS, Venv

CONSTRAINTS = HERE.parent.parent / "constraints.txt"
CHECKOUTS = [each.checkout for each in VENVS.values() if each.checkout]


def main() -> None:
    options = parse()
    failed = []
    for name in options.only:
        one = VENVS[name]
        try:
            link(one, options.folder, getattr(options, one.checkout.name) if one.checkout else None)
            install(one, options.folder)
        except subprocess.CalledProcessError as error:
            failed.append(name)
            print(f"{name} FAILED: {' '.join(map(str, error.cmd))} ended with {error.returncode}", flush=True)
        else:
            print(f"{name}: {options.folder / name}", flush=True)
    if failed:
        raise SystemExit(1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the virtual environments are made in it")
    parser.add_argument("--only", nargs="+", choices=VENVS, default=list(VENVS), metavar="NAME", help=", ".join(VENVS))
    for each in CHECKOUTS:
        parser.add_argument(f"--{each.name}", type=Path, metavar="PATH", help=f"a checkout of {each.url}")
    return parser.parse_args()


def install(one: Venv, folder: Path) -> None:
    """Make a virtual environment. One that was left half-made is continued."""
    python = folder / one.name / "bin/python"
    if not python.exists():
        venv.create(folder / one.name, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    isolation = [] if one.isolated else ["--no-build-isolation"]
    with tempfile.TemporaryDirectory() as customised:
        if one.undefined:  # Python imports sitecustomize at its start, so setup.py finds the name
            Path(customised, "sitecustomize.py").write_text(f"import builtins\n\nbuiltins.{one.undefined} = []\n")
        variables = os.environ | {"PIP_CONSTRAINT": str(CONSTRAINTS), "PATH": path_without(one.hidden)}
        variables |= {"PYTHONPATH": customised} | dict(one.variables)
        if one.before:
            subprocess.run([*pip, *one.before], check=True, env=variables)
        subprocess.run([*pip, *isolation, "-r", str(REQUIREMENTS / f"{one.name}.txt")], check=True, env=variables)


def path_without(program: str | None) -> str:
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(each for each in folders if program is None or not (Path(each) / program).exists())


def link(one: Venv, folder: Path, checkout: Path | None) -> None:
    """Make FOLDER/NAME-checkout point to the source tree, where the driver looks for it."""
    if one.checkout is None:
        return
    place = folder / f"{one.checkout.name}-checkout"
    if checkout is not None:
        folder.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(checkout.resolve(), target_is_directory=True)
    if not place.is_dir():
        told = f"git clone {one.checkout.url}, git checkout {one.checkout.commit[:12]} and --{one.checkout.name} PATH"
        print(f"{one.name}: no checkout; its runs need {told}", file=sys.stderr)


if __name__ == "__main__":
    main()
