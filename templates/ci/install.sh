#!/bin/sh
# Installs nightsight into a new virtual environment: sh templates/ci/install.sh FOLDER [PYTHON]
#
# What it needs is pinned with hashes (requirements.txt beside this file) and comes as wheels, so that nothing but this
# checkout can change what a job runs that may write.
set -eu

folder=$1
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
"${2:-python3}" -m venv "$folder"
pip() {
    "$folder/bin/python" -m pip --disable-pip-version-check install --quiet "$@"
}
pip --require-hashes --only-binary :all: -r "$here/requirements.txt"
pip --no-index --no-deps --no-build-isolation "$here/../.."
