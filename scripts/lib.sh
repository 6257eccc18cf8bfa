# shellcheck shell=bash
# What the scripts share: where things are kept, how messages look, how a part is installed once. Sourced, never run.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${MOONKEEPER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/moonkeeper}

# The versions that everything is tested with. Those of Python packages and of Go modules stand in their own lock files.
kubernetes_version=$(awk '$1 == "k8s.io/kubernetes" { print substr($2, 2) }' "$root/scripts/kubernetes/control/go.mod")
etcd_version=$(awk '$1 == "go.etcd.io/etcd/server/v3" { print substr($2, 2) }' "$root/scripts/etcd/go.mod")
kind_version=$(sed -n 's|.*sigs.k8s.io/kind v\([0-9.]*\).*|\1|p' "$root/scripts/kind/kind/go.mod")
mooncake_version=$(sed -n 's/^mooncake-transfer-engine-non-cuda==//p' "$root/scripts/requirements.txt")

say() { printf '== %s\n' "$*" >&2; }

die() {
  printf '!! %s\n' "$*" >&2
  exit 1
}

# short_hash FILE...: names a folder by what its content was built from
short_hash() { cat "$@" | sha256sum | cut -c1-8; }

# The folder of each part carries its name, its version and, where a lock file decides more than the version, its hash.
python_folder() {
  printf '%s/python-mooncake-%s-%s-%s' "$cache" "$mooncake_version" \
    "$(python3 -c 'import sys; print(f"cp{sys.version_info[0]}{sys.version_info[1]}")')" \
    "$(short_hash "$root/scripts/requirements.txt" "$root/scripts/install-python")"
}
etcd_folder() {
  printf '%s/etcd-%s-%s' "$cache" "$etcd_version" \
    "$(short_hash "$root"/scripts/etcd/{go.mod,go.sum,main.go} "$root/scripts/install-etcd")"
}
etcd_debian_folder() {
  printf '%s/etcd-debian-%s-%s' "$cache" "$(. /etc/os-release && printf '%s' "${VERSION_ID:-none}")" \
    "$(short_hash "$root/scripts/install-etcd-debian")"
}
kubernetes_folder() {
  printf '%s/kubernetes-%s-%s' "$cache" "$kubernetes_version" \
    "$(short_hash "$root"/scripts/kubernetes/*/{go.mod,go.sum} "$root/scripts/kubernetes/dns/main.go" "$root/scripts/install-kubernetes")"
}
kind_programs_folder() {
  printf '%s/kind-programs-%s-%s' "$cache" "$kind_version" \
    "$(short_hash "$root"/scripts/kind/*/{go.mod,go.sum} "$root"/scripts/kind/*/main.go "$root/scripts/kind/storage.py" "$root/scripts/install-kind-programs")"
}
kind_engine_folder() {
  printf '%s/kind-engine-%s-%s' "$cache" "$(. /etc/os-release && printf '%s' "${VERSION_ID:-none}")" \
    "$(short_hash "$root/scripts/install-kind-engine")"
}
kind_debian_folder() { printf '%s/kind-debian-12-%s' "$cache" "$(short_hash "$root/scripts/install-kind-debian")"; }
# What is in the image decides its name.
kind_node_folder() {
  printf '%s/kind-node-%s-%s' "$cache" "$kubernetes_version" \
    "$({ cat "$root"/scripts/kind/{network.yaml,pod-network,pack.py} "$root/scripts/install-kind-node" && kind_programs_folder &&
      kind_debian_folder && kubernetes_folder && etcd_folder; } | sha256sum | cut -c1-8)"
}

# provide FOLDER SCRIPT: makes FOLDER once. SCRIPT gets a new folder beside it, which is renamed when the script has
# succeeded, so a folder under its final name is always whole; a lock makes a second run wait for the first.
provide() {
  local folder=$1 script=$2 name partial log
  [[ -d $folder ]] && return
  name=$(basename "$folder")
  log=$cache/log/$name.log
  mkdir -p "$cache/log"
  {
    if ! flock --nonblock 9; then
      say "waiting for another run that installs $name"
      flock 9
    fi
    if [[ ! -d $folder ]]; then
      say "installing $name (log: $log)"
      SECONDS=0
      rm -rf "$folder".partial.*
      partial=$(mktemp -d "$folder.partial.XXXXXX")
      chmod 755 "$partial"
      if ! "$root/scripts/$script" "$partial" "$folder" >"$log" 2>&1 9>&-; then
        tail -n 40 "$log" >&2
        die "installing $name failed; the whole log is $log"
      fi
      mv -T "$partial" "$folder"
      say "installed $name in $SECONDS s"
    fi
  } 9>"$cache/$name.lock"
}

# lacks_docker_for_kind: whether kind is asked for and there is none, or no Docker for it
lacks_docker_for_kind() {
  [[ ${MOONKEEPER_E2E_CLUSTER-} == kind ]] && ! { command -v kind >/dev/null && docker info >/dev/null 2>&1; }
}

# start_docker_for_kind: starts what `make setup-kind` installs, and installs that first if need be
start_docker_for_kind() {
  local variables
  "$root/scripts/setup-kind"
  variables=$("$root/scripts/kind/engine" up)
  eval "$variables"
}

# need_tools TOOL...: every missing one is named at once
need_tools() {
  local tool missing=()
  for tool in "$@"; do
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  ((${#missing[@]} == 0)) || die "not found on this machine: ${missing[*]}; install them first (see docs/development.md)"
}

# need_space GIB FOLDER VARIABLE: of free space where FOLDER is or will be, which VARIABLE can move elsewhere
need_space() {
  local free
  mkdir -p "$2"
  free=$(df --output=avail -k "$2" | tail -n 1)
  ((free >= $1 * 1024 * 1024)) ||
    die "disk space is short: $2 has $((free / 1024)) MiB left, $1 GiB are needed; set $3 to a folder on another disk"
}

# has_library NAME. Not a pipe into grep -q: that ends early, and the broken pipe would count as "no".
has_library() { grep -qF "$1 " <<<"$(/sbin/ldconfig -p)"; }

# need_packages: what comes from Debian, asked for by what is used of it, so that other systems can supply it their way
need_packages() {
  local packages=() sudo=()
  has_library libibverbs.so.1 || packages+=(libibverbs1)
  has_library libnuma.so.1 || packages+=(libnuma1)
  has_library libcurl.so.4 || packages+=(libcurl4)
  command -v protoc >/dev/null || packages+=(protobuf-compiler)
  [[ -f /usr/include/google/protobuf/descriptor.proto ]] || packages+=(libprotobuf-dev)
  # Certificates of tests.
  command -v openssl >/dev/null || packages+=(openssl)
  # Tests that cut networks make namespaces with it.
  command -v ip >/dev/null || packages+=(iproute2)
  # The nodes of the test cluster (tests/suites/cluster).
  command -v containerd >/dev/null || packages+=(containerd)
  command -v runc >/dev/null || packages+=(runc)
  command -v iptables >/dev/null || packages+=(iptables)
  [[ -x /usr/lib/cni/bridge ]] || packages+=(containernetworking-plugins)
  # Its first container is written in C, and static.
  command -v gcc >/dev/null || packages+=(gcc)
  [[ -f $(gcc -print-file-name=libc.a 2>/dev/null) ]] || packages+=(libc6-dev)
  ((${#packages[@]})) || return 0
  if ((EUID != 0)); then
    sudo -n true 2>/dev/null ||
      die "these packages are missing and installing them needs root: apt-get install ${packages[*]}"
    sudo=(sudo -n)
  fi
  command -v apt-get >/dev/null || die "apt-get not found; install what Debian calls: ${packages[*]}"
  say "installing Debian packages: ${packages[*]}"
  mkdir -p "$cache/log"
  local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq)
  { "${apt[@]}" update && "${apt[@]}" install --yes --no-install-recommends "${packages[@]}"; } \
    >"$cache/log/apt.log" 2>&1 || {
    tail -n 20 "$cache/log/apt.log" >&2
    die "apt-get could not install ${packages[*]}; the whole log is $cache/log/apt.log"
  }
}

# Where cargo builds. Outside the tree, so that a clone stays small and a new clone finds the dependencies built.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/target}
# One static binary, because the image has an empty base and because what is tested and measured shall be what is shipped.
# The target is named so that the flag is for it alone: a compiler plug-in cannot be linked statically.
export CARGO_BUILD_TARGET=${CARGO_BUILD_TARGET:-$(rustc -vV 2>/dev/null | sed -n 's/^host: //p')}
target_variable=CARGO_TARGET_$(tr a-z- A-Z_ <<<"$CARGO_BUILD_TARGET")_RUSTFLAGS
export "$target_variable=-C target-feature=+crt-static"

# built PROFILE: where cargo puts the binary
built() { printf '%s/%s/%s/moonkeeper' "$CARGO_TARGET_DIR" "$CARGO_BUILD_TARGET" "$1"; }

# Bytecode does not belong in the tree either.
export PYTHONPYCACHEPREFIX=${PYTHONPYCACHEPREFIX:-$cache/pycache}

# export_test_environment: the names by which tests find the programs they start
export_test_environment() {
  local python
  python=$(python_folder)
  export MOONCAKE_PYTHON=$python/bin/python
  export MOONCAKE_MASTER=$python/bin/mooncake_master
  export ETCD_BIN ETCDCTL_BIN
  ETCD_BIN=$(etcd_folder)/bin/etcd
  ETCDCTL_BIN=$(etcd_folder)/bin/etcdctl
  export CLUSTER_BIN
  CLUSTER_BIN=${CLUSTER_BIN:-$(kubernetes_folder)/bin}
  export ETCD_DEBIAN_BIN
  ETCD_DEBIAN_BIN=$(etcd_debian_folder)/bin/etcd
  export MOONKEEPER_BIN=${MOONKEEPER_BIN:-$(built debug)}
}
