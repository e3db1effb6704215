#!/bin/sh
# The tests in narrow circumstances: 256 descriptors, 4 GiB of address space for each process, an ordinary user, and a
# directory with spaces and letters beyond ASCII. Usage: tests/confined.sh PYTHON [ARGUMENT OF PYTEST]...
#
# PYTHON is that of an environment with everything that the tests need. Run by root, the tests run as the user `nobody`,
# if that user can run PYTHON. All that is written goes to a temporary directory, which is removed at the end.
set -eu

DESCRIPTORS=256
ADDRESS_SPACE=4194304 # KiB

python=$1
shift
checkout=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

# Tracked files as they are now, so that changes that are not committed are tested, too, and nothing else is copied.
copy="$folder/a checkout with späces, ünd 字母"
mkdir "$copy" "$folder/home" "$folder/tmp"
(cd "$checkout" && git ls-files -z | tar --null -T - -cf -) | tar -xf - -C "$copy"

as_user=""
if [ "$(id -u)" = 0 ]; then
    as_user="setpriv --reuid=nobody --regid=$(id -g nobody) --clear-groups"
    chmod 755 "$folder"
    chown -R nobody "$copy" "$folder/home" "$folder/tmp"
    # Twice: the first time, capabilities of root may still open what only root can read.
    starts_itself="import subprocess, sys, torch; subprocess.run([sys.executable, '-c', ''], check=True)"
    if ! $as_user "$python" -c "$starts_itself" 2>/dev/null; then
        echo "the user nobody cannot run $python: the tests run as root (make PYTHON=/usr/bin/python3 helps)"
        as_user=""
    fi
fi

cd "$copy"
export HOME="$folder/home" TMPDIR="$folder/tmp" PYTHONPATH="$copy"
unset XDG_CONFIG_HOME XDG_CACHE_HOME
ulimit -n "$DESCRIPTORS"
if (ulimit -v "$ADDRESS_SPACE" && $as_user "$python" -c "import torch; torch.ones(8, 8) @ torch.ones(8, 8)") 2>/dev/null; then
    ulimit -v "$ADDRESS_SPACE"
else
    echo "torch does not start within $((ADDRESS_SPACE / 1048576)) GiB of address space: without that limit"
fi
$as_user "$python" -c "
import os, resource, pronk
user, files, space = os.getuid(), resource.getrlimit(resource.RLIMIT_NOFILE)[0], resource.getrlimit(resource.RLIMIT_AS)[0]
assert os.path.dirname(os.path.dirname(pronk.__file__)) == os.getcwd(), pronk.__file__
print(f'user {user}, {files} descriptors, address space {space if space > 0 else \"unlimited\"}, in {os.getcwd()}')
"
$as_user "$python" -m pytest -p no:cacheprovider "$@"
