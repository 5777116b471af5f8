#!/bin/sh
# All of it on a GPU host, in less than nine minutes: run.sh [PYTHON [GPUS [CASE...]]]. GPUS: only programs for so many
# GPUs (default: those that this host has enough for). CASE: only these. Wheels in .whl and packages in .gpu, if there,
# are installed first. Results go to tests/data/planted, or as planted.tar to $OUT if that is set.
cd "$(dirname "$0")/../.." || exit
began=$(date +%s)
python=${1:-python3}
if [ -d .gpu ]; then
    for package in .gpu/*.deb; do dpkg -x "$package" /; done
    ldconfig
fi
if [ -d .whl ]; then
    "$python" -m pip install -q --no-index --no-deps --upgrade --target /tmp/site .whl/*.whl || exit
    PYTHONPATH=/tmp/site${PYTHONPATH:+:$PYTHONPATH}
fi
export PYTHONPATH="$PWD:$PWD/pipeline${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
wanted=${2:-$("$python" -c 'import torch; print(*range(1, 1 + min(torch.cuda.device_count(), 2)))')}
if [ $# -gt 2 ]; then shift 2; else set --; fi
folder=${OUT:-tests/data}/planted
mkdir -p "$folder"
left() { echo $(($1 + began - $(date +%s))); }
{
    "$python" -c 'import torch; print(torch.cuda.get_device_name(), torch.__version__)'
    for gpus in $wanted; do
        "$python" -m tests.planted time "$@" --gpus "$gpus" --folder "$folder" --seconds "$(left 200)"
        echo "$(left 540) s left"
        "$python" -m tests.planted capture "$@" --gpus "$gpus" --folder "$folder" --seconds "$(left 440)"
        echo "$(left 540) s left"
    done
    timeout "$(left 530)" "$python" -m tests.planted check "$@" --folder "$folder"
} 2>&1 | tee "$folder/log.txt"
if [ -n "$OUT" ]; then
    tar -C "$OUT" -cf "$OUT/planted.tar" planted && rm -r "$folder"
fi
