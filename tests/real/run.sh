#!/bin/sh
# On a GPU host: run.sh time|capture|record|prove [OPTION ...] [NAME ...]. Wheels in .whl and packages in .gpu, if there, are
# installed first. It ends after $REAL_LIMIT seconds. Results go to $OUT/real.tar.aa, .ab, ... of 15 MB each, or to the folder real if OUT is not set.
cd "$(dirname "$0")/../.." || exit
if [ -d .gpu ]; then
    for package in .gpu/*.deb; do dpkg -x "$package" /; done
    ldconfig
fi
if [ -d .whl ]; then
    python3 -m pip install -q --no-index --no-deps --no-compile --upgrade --target /tmp/site .whl/*.whl || exit
    PYTHONPATH=/tmp/site${PYTHONPATH:+:$PYTHONPATH}
fi
export PYTHONPATH="$PWD:$PWD/pipeline${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 CC="${CC:-$(command -v gcc)}"
folder=${OUT:+/tmp/}real
mkdir -p "$folder"
command=$1
shift
timeout "${REAL_LIMIT:-3600}" python3 -m tests.real "$command" "$@" --folder "$folder" 2>&1 | tee "$folder/$command.log"
if [ -n "$OUT" ]; then
    tar -C /tmp -cf - real | split -b 15000000 - "$OUT/real.tar."
fi
