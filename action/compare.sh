#!/usr/bin/env bash
# Measures two commits of the project in the current folder in turn, on any machine with bash, git and Python:
#
#     action/compare.sh BASE HEAD FOLDER --env CartPole --workers 2 --budget 10m
#
# vebench and both commits are installed into interpreters of their own, the commits with $PACKAGES. The report and the
# run files go to FOLDER. The exit status is that of `vebench compare`, and 2 if anything cannot be installed.
set -eEuo pipefail
unset PYTHONPATH
vebench=$(cd "$(dirname "$0")/.." && pwd)
project=$(git rev-parse --show-toplevel)
trap 'exit 2' ERR
base=$(git rev-parse --verify "$1^{commit}")
head=$(git rev-parse --verify "$2^{commit}")
mkdir -p "$3"
folder=$(cd "$3" && pwd)
rm -f "$folder/report.md"
shift 3

work=$(mktemp -d)
cd "$work" # Python finds no module of the project here
trap 'cd / && rm -rf "$work" && git -C "$project" worktree prune' EXIT

install() { # an interpreter, and what goes into it
	local python=$1/bin/python
	if command -v uv > /dev/null; then
		uv venv --quiet --no-project --python python "$1"
		uv pip install --quiet --python "$python" "${@:2}"
	else
		python3 -I -m venv "$1"
		"$python" -I -m pip install --quiet --disable-pip-version-check "${@:2}"
	fi
}

install gate "$vebench"
for side in base head; do
	git -C "$project" worktree add --quiet --detach "$work/$side-source" "${!side}"
	# shellcheck disable=SC2086 # they are words
	install "$side" "./$side-source" ${PACKAGES-numpy gymnasium}
done

trap - ERR
cd "$folder"
status=0
"$work/gate/bin/vebench" compare "$work/base/bin/python" "$work/head/bin/python" "$@" --output report.md || status=$?
exit "$status"
