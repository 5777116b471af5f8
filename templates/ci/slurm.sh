#!/usr/bin/env bash
# One night on a Slurm cluster: profile, add to the history, push it. Change what is marked "yours", then let cron or
# scrontab run `sbatch slurm.sh` in a checkout of the program. docs/ci.md says more.
#SBATCH --job-name=nightsight
#SBATCH --gres=gpu:1
#SBATCH --exclusive
#SBATCH --time=01:00:00
#SBATCH --output=nightsight-%j.log
set -euo pipefail

workload=${WORKLOAD:-mlp} # yours
repeat=${REPEAT:-5}

cd "${SLURM_SUBMIT_DIR:-$PWD}"
work=$(mktemp -d "${TMPDIR:-/tmp}/nightsight-XXXXXX")
finish() {
    if [ "$1" = 0 ]; then
        git worktree remove --force "$work/history"
        rm -rf "$work"
    else
        echo "nightsight: nothing was pushed. What was measured is in $work on $(hostname)." >&2
    fi
}
trap 'finish $?' EXIT

nightsight profile --repeat "$repeat" --reports "$work/reports" "$workload" -- "$@"
nightsight ci fetch "$work/history"
nightsight history add --history "$work/history" "$work"/reports/*/2*/
nightsight ci push "$work/history" --message "Runs of $(date -u +%F)"
nightsight history report --history "$work/history" -o nightsight.html
