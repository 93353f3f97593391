#!/bin/bash
# Prints what there is on a host, in sections that begin with "== NAME". The
# arguments are paths that are left out. A program that is missing or fails ends
# it with an error, so that nothing is taken for absent that was not looked for.
set -euo pipefail
export LC_ALL=C

section() { echo "== $1"; }

section self
echo $$

# First, as what follows starts processes of its own.
section processes
ps -e --no-headers -o pid= -o ppid= -o args=

section namespaces
lsns --noheadings --output TYPE,COMMAND

section mounts
cat /proc/self/mountinfo

section interfaces
ip -oneline -details link show
section addresses
ip -oneline address show
section routes
ip -4 route show table all
ip -6 route show table all
section rules
ip -4 rule show
ip -6 rule show
section filter
nft list ruleset
iptables-save
ip6tables-save

section accounts
getent passwd
getent group

section unitfiles
systemctl list-unit-files --no-legend --no-pager --plain
section units
systemctl list-units --all --no-legend --no-pager --plain --full

section sysctls
sysctl --all --ignore --pattern '^(net\.|vm\.(overcommit_memory|panic_on_oom|max_map_count|swappiness)|kernel\.(panic|panic_on_oops|keys\.root_max)|fs\.(inotify|file-max))' 

section cgroups
find /sys/fs/cgroup -type d

# The CRI keeps containers of Kubernetes in this namespace of containerd.
section containers
# A bare host has no containerd, and must not have its folders either.
for folder in /run/containerd /var/lib/containerd; do
	if [ -e "$folder" ]; then
		echo "folder $folder"
	else
		echo "no folder $folder"
	fi
done
if [ -e /run/containerd/containerd.sock ] || command -v ctr >/dev/null; then
	for kind in containers tasks images snapshots leases; do
		ctr --namespace k8s.io "$kind" list | sed "s/^/$kind /"
	done
fi
cri=/var/lib/containerd/io.containerd.grpc.v1.cri
if [ -d "$cri" ]; then
	find "$cri" -mindepth 2
fi

# From here on the arguments are those of find.
for path; do
	shift
	set -- "$@" -o -path "$path"
done
# What vanishes meanwhile, or can't be read as namespaces can't, is no failure.
section files
find / \( -false "$@" \) -prune -o -printf '%y %m %u:%g %s %p\t%l\n' || true
section hashes
find / \( -false "$@" \) -prune -o -type f -print0 | xargs --null --no-run-if-empty sha256sum || true

section end
