#!/bin/bash
# Measures CartPole and HalfCheetah by every route, on a machine with an NVIDIA GPU, in at most 12 minutes.
#
#     bash tools/gpu_route.sh [FOLDER]     # default: gpu-route
#
# Needs vebench with Atari, MuJoCo and EnvPool in .venv, or VEBENCH=COMMAND, and a package index. Interpreters of JAX
# libraries get JAX for CUDA 12. FOLDER then has the run files, the reports, nvidia-smi's answers and a log.
set -u
folder=${1:-gpu-route}
vebench=${VEBENCH:-$PWD/.venv/bin/vebench}
began=$SECONDS
mkdir -p "$folder"
exec > >(tee "$folder/log.txt") 2>&1

left() { echo $((720 - (SECONDS - began))); }  # seconds of the 12 minutes

install() { # python, requirements; environments made by uv have no pip
    if command -v uv >/dev/null; then uv pip install -q --python "$@"; else "$1" -m pip install -q "${@:2}"; fi
}

install "$(dirname "$(command -v "$vebench")")/python" nvidia-ml-py  # names the GPU in run files
nvidia-smi -q >"$folder/gpu.txt" || { echo "nvidia-smi found no GPU"; exit 2; }
export XLA_PYTHON_CLIENT_PREALLOCATE=false  # otherwise each process takes 75 % of the GPU's memory

timeout 180 "$vebench" install gymnax brax mujoco-warp || exit 1
cache=${XDG_CACHE_HOME:-$HOME/.cache}/vebench/peers
for library in gymnax brax; do
    install "$cache/$library/bin/python" 'jax[cuda12]==0.10.2' nvidia-ml-py || exit 1
    "$cache/$library/bin/python" -c 'import jax; print(jax.devices())'
done
"$cache/mujoco-warp/bin/python" -c 'import warp; warp.init()'

routes() { # file, seconds, environments, backends, counts
    timeout "$(($2 + 30))" "$vebench" run -e "$3" -b "$4" -w 1 --envs-per-worker "$5" --budget "$2s" \
        --passes 2 --windows 3 --no-interleave -q -o "$folder/$1.jsonl"
    "$vebench" report --all "$folder/$1.jsonl" -o "$folder/$1.html"
}

jax='jax,jax[deliver=device],jax[rollout=128]'
routes cartpole $((($(left) - 60) / 3)) CartPole-v1,gymnax:CartPole-v1 \
    "for-loop,gym-vector,envpool-sync,fast-sync,$jax" 16..16384:*8
routes halfcheetah $(($(left) - 100)) 'HalfCheetah-v5,brax:halfcheetah[backend=mjx],mujoco_warp:HalfCheetah' \
    "for-loop,envpool-sync,fast-sync,native,$jax" 1..1024:*8
timeout 60 "$vebench" verify CartPole-v1 gymnax:CartPole-v1 --within distribution --steps 500 --num-envs 16
echo "took $((SECONDS - began)) s: run files are in $folder"
