#!/bin/bash
# A Ray cluster inside a SLURM job: one Ray process per node, the trainer beside the first. docs/scaling.md explains it.
#
#   sbatch --nodes=4 scripts/cluster/slurm.sh experiment=connect_four
#   sbatch --nodes=4 scripts/cluster/slurm.sh resume=runs/connect_four/RUN
#
# The folder in which it is called must be shared by all nodes; it has the environment `.venv`, and runs are written below it.
#SBATCH --job-name=muzero
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --output=muzero-%j.log
# Ten minutes before the end the trainer is asked to save and stop.
#SBATCH --signal=B:TERM@600

set -euo pipefail

if [ "$#" -eq 0 ]; then
    echo "usage: sbatch --nodes=N $0 experiment=NAME [setting=value ...]" >&2
    exit 2
fi
cd "$SLURM_SUBMIT_DIR"
source .venv/bin/activate

export OMP_NUM_THREADS=1 # search workers bring the parallelism
ulimit -n "$(ulimit -Hn)"

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
# Some machines print several addresses; the first is taken.
head_ip=$(srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | awk '{print $1}')
port=$((20000 + SLURM_JOB_ID % 20000)) # jobs that share a node do not meet
address="$head_ip:$port"
started=()

stop_ray() {
    if [ "${#started[@]}" -gt 0 ]; then
        kill "${started[@]}" 2>/dev/null || true
        wait "${started[@]}" 2>/dev/null || true
    fi
}
trap stop_ray EXIT

srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" \
    ray start --head --node-ip-address="$head_ip" --port="$port" --num-cpus="$SLURM_CPUS_PER_TASK" \
    --include-dashboard=false --disable-usage-stats --block &
started+=("$!")

# `ray status` fails until the head answers.
for _ in $(seq 60); do
    if ray status --address "$address" >/dev/null 2>&1; then
        break
    fi
    sleep 2
done
ray status --address "$address"

if [ "${#nodes[@]}" -gt 1 ]; then
    others=$(IFS=,; echo "${nodes[*]:1}")
    count=$((${#nodes[@]} - 1))
    srun --overlap --nodes="$count" --ntasks="$count" --nodelist="$others" \
        ray start --address="$address" --num-cpus="$SLURM_CPUS_PER_TASK" --disable-usage-stats --block &
    started+=("$!")
fi

# SLURM's signal goes to this script alone: it is passed on, and the trainer is given the time to save.
runtime=(runtime=ray)
if [[ " $* " == *" resume="* ]]; then
    runtime=() # a resumed run keeps its saved runtime; only the address is new
fi
muzero-train "$@" "${runtime[@]}" runtime.address="$address" &
trainer=$!
trap 'kill -TERM "$trainer" 2>/dev/null || true' TERM INT
status=0
wait "$trainer" || status=$?
while kill -0 "$trainer" 2>/dev/null; do # a signal ends `wait` before the trainer has ended
    status=0
    wait "$trainer" || status=$?
done
exit "$status"
