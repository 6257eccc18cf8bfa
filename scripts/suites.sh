# shellcheck shell=bash
# How scripts/test runs a suite and judges it: from a clean environment, within a time limit, with a floor for the number
# of its tests, nothing skipped, the tree as it was. Sourced, never run; needs `say` and `die` of lib.sh, and in `run` a
# folder for logs. tests/suites/runner shows that each of these can fail.
# shellcheck disable=SC2154,SC2034 # the script that sources it has `root`, `bounds`, `measurements`, and uses `counted`

# Variables that change what a test does, checks or starts. What only says where things are kept stays.
removed_variables() {
  local name
  while IFS= read -r name; do
    case $name in
      MOONKEEPER_CACHE | MOONKEEPER_E2E_ARTIFACTS) ;;
      MOONKEEPER_* | DIFFERENTIAL_* | SOAK_SECONDS | OBJECTS) printf '%s\n' "$name" ;;
      MOONCAKE_* | MC_* | ETCD_* | ETCDCTL_* | CLUSTER_* | KUBECONFIG | HELM_* | POD_*) printf '%s\n' "$name" ;;
      PYTEST_* | PYTHONPATH | PYTHONHOME | PYTHONOPTIMIZE) printf '%s\n' "$name" ;;
      RUSTFLAGS | CARGO_ENCODED_RUSTFLAGS | CARGO_BUILD_RUSTFLAGS | CARGO_PROFILE_*) printf '%s\n' "$name" ;;
      RUST_LOG | RUST_TEST_* | MALLOC_CONF | _RJEM_MALLOC_CONF) printf '%s\n' "$name" ;;
    esac
  done < <(compgen -e)
}

clean_environment() {
  local names=()
  mapfile -t names < <(removed_variables)
  ((${#names[@]})) || return 0
  say "not taken from the environment: ${names[*]}"
  unset "${names[@]}"
}

# The state of the working tree, as lines that can be compared.
tree_state() {
  git -C "$root" status --porcelain --untracked-files=all
  git -C "$root" diff HEAD | sha256sum
}

# tree_unchanged BEFORE: fails if the tree is not as `tree_state` said
tree_unchanged() {
  local after
  after=$(tree_state)
  [[ $after == "$1" ]] ||
    die "the tree was changed by the tests (or under them): $(diff <(printf '%s\n' "$1") <(printf '%s\n' "$after"))"
}

groups=()

# start LOG COMMAND...: in the background, its output in LOG, in a process group that can be ended as a whole. `started`
# is its number.
start() {
  local log=$1
  shift
  # There at once, for a reader that begins before the command does.
  : >"$log"
  # With job control it has a group of its own, and takes SIGINT.
  set -m
  (
    trap - EXIT
    "$@"
  ) </dev/null >"$log" 2>&1 &
  started=$!
  set +m
  groups+=("$started")
}

# Ends what may still run of everything that was started. Pytest's own children end with it.
end_groups() {
  local group
  for group in "${groups[@]}"; do kill -KILL -- "-$group" 2>/dev/null || true; done
  groups=()
}

# within SECONDS COMMAND...: SIGINT first, at which pytest says where it is and puts away what it started
within() { timeout --foreground --verbose --signal=INT --kill-after=60 "$@"; }

# tests_in LOG: the sum of the tests that passed, by the last lines of cargo and of pytest
tests_in() {
  sed 's/\x1b\[[0-9;]*m//g' "$1" | awk '
    /^test result: / { for (i = 2; i <= NF; i++) if ($i ~ /^passed/) sum += $(i - 1) }
    /^=+ .* in [0-9.]+s.* =+$/ { for (i = 2; i <= NF; i++) if ($i ~ /^passed/) sum += $(i - 1) }
    END { print sum + 0 }'
}

# ignored_in LOG: the Rust tests that were not run, but those that are none; pytest fails by itself (tests/suites/conftest.py)
ignored_in() {
  sed 's/\x1b\[[0-9;]*m//g' "$1" | sed -n 's/^test \(.*\) \.\.\. ignored.*/\1/p' |
    grep -vxF -f <(printf '%s\n' "${measurements[@]}") || true
}

# judge NAME STATUS LOG: fails if the suite failed, ran out of time, left tests out or has fewer than its floor
judge() {
  local name=$1 status=$2 log=$3 least seconds count ignored
  read -r least seconds <<<"${bounds[$name]}"
  if grep -q "^timeout: sending signal" "$log"; then die "$name: not done within $seconds s, its time limit"; fi
  ((status == 0)) || exit "$status"
  ignored=$(ignored_in "$log")
  [[ -z $ignored ]] || die "$name: tests that were ignored: ${ignored//$'\n'/ }"
  count=$(tests_in "$log")
  ((count >= least)) || die "$name: $count tests, the floor is $least; a suite that lost tests shows less than it did"
  counted=${count#0}
}

# suite NAME COMMAND...: runs it within its bounds, and shows what it says
suite() {
  local name=$1 status=0 log=$run/$1.log shown seconds
  shift
  read -r _ seconds <<<"${bounds[$name]}"
  start "$log" within "$seconds" "$@"
  tail --follow --lines=+1 --sleep-interval=0.2 --pid="$started" "$log" &
  shown=$!
  wait "$started" || status=$?
  wait "$shown" || true
  end_groups_of "$started"
  judge "$name" "$status" "$log"
}

# await_suite NAME GROUP: waits for one that was started beside others with $run/NAME.log, shows what it said, and judges it
await_suite() {
  local status=0 log=$run/$1.log
  wait "$2" || status=$?
  cat "$log"
  end_groups_of "$2"
  judge "$1" "$status" "$log"
}

# end_groups_of GROUP: ends what is left of one
end_groups_of() {
  local group left=()
  kill -KILL -- "-$1" 2>/dev/null || true
  for group in "${groups[@]}"; do [[ $group == "$1" ]] || left+=("$group"); done
  groups=("${left[@]}")
}
