#!/usr/bin/env bash
# Measures two commits of the project in the current folder, interleaved, on any machine with bash, git and Python:
#
#     action/compare.sh BASE HEAD FOLDER --env CartPole --workers 2 --budget 10m
#
# vebench and both commits are installed into interpreters of their own, the commits with $PACKAGES. report.md and the
# run files go to FOLDER. With $HISTORY, the head's is added to that branch of run files, and what changed over time to
# the report. The exit status is that of `vebench compare`, and 2 if anything cannot be installed or pushed.
set -eEuo pipefail
unset PYTHONPATH
vebench=$(cd "$(dirname "$0")/.." && pwd)
project=$(git rev-parse --show-toplevel)
trap 'exit 2' ERR
# shellcheck disable=SC2034 # ${!side} below
base=$(git rev-parse --verify "$1^{commit}")
head=$(git rev-parse --verify "$2^{commit}")
mkdir -p "$3"
folder=$(cd "$3" && pwd)
rm -f "$folder"/{report.md,run-a.jsonl,run-b.jsonl}
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

cd "$folder"
sides=("$work/base/bin/python" "$work/head/bin/python")
status=0
"$work/gate/bin/vebench" compare "${sides[@]}" "$@" --output run.jsonl --format markdown > report.md &
trap 'trap - ERR; set +e; kill $!; wait $!; exit 143' TERM INT # vebench ends its processes itself
wait $! || status=$?
cat report.md

if [ -n "${HISTORY-}" ] && [ -s report.md ]; then
	export GIT_{AUTHOR,COMMITTER}_NAME=vebench GIT_{AUTHOR,COMMITTER}_EMAIL=vebench@localhost
	cd "$project"
	cp "$folder/run-b.jsonl" "$work/run-$(date -u +%Y%m%dT%H%M%SZ)-${head:0:10}.jsonl"
	for _ in 1 2 3; do # another push may add its own meanwhile
		tip=$(git fetch --quiet origin "$HISTORY" 2> /dev/null && git rev-parse FETCH_HEAD) ||
			tip=$(git commit-tree -m "Run files" "$(git hash-object -t tree /dev/null)")
		git worktree add --force --quiet --detach "$work/history" "$tip"
		found=0 # 1: slower than before, 3: too few runs
		"$work/gate/bin/vebench" history "$work/history" --store "$work"/run-*.jsonl -f markdown > "$work/history.md" ||
			found=$?
		[ "$found" != 2 ]
		git -C "$work/history" add --all
		git -C "$work/history" commit --quiet --message "Add $(basename "$work"/run-*.jsonl)"
		pushed=0
		git -C "$work/history" push --quiet origin "HEAD:refs/heads/$HISTORY" || pushed=$?
		[ "$pushed" != 0 ] || break
		git worktree remove --force "$work/history"
	done
	tee -a "$folder/report.md" "${GITHUB_STEP_SUMMARY:-/dev/null}" < "$work/history.md"
	[ "$pushed" = 0 ]
fi
exit "$status"
