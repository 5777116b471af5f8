#!/bin/sh
# Installs nightsight into a new virtual environment: sh templates/ci/install.sh FOLDER [PYTHON]
#
# Dependencies are pinned with hashes (requirements.txt next to this file) and come as wheels, so that only this
# checkout can change what a job with write access runs.
set -eu

folder=$1
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
"${2:-python3}" -m venv "$folder"
pip() {
    "$folder/bin/python" -m pip --disable-pip-version-check install --quiet "$@"
}
pip --require-hashes --only-binary :all: -r "$here/requirements.txt"
pip --no-index --no-deps --no-build-isolation "$here/../.."
