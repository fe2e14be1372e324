#!/bin/bash
# machine.sh FOLDER: boots systemd on a copy of this machine's files, runs inside.sh there, and ends as it does. FOLDER has
# the packages, and gets what the machine writes. It runs in mount and process namespaces of its own, so nothing outlives it.
set -eu
folder=$1
here=$(dirname "$0")

# systemd-nspawn leaves its control groups behind, so it gets a group that we remove. /sys/fs/cgroup/systemd and unified
# are there on machines that have both versions of control groups.
groups=()
for root in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
    if [ -e "$root/cgroup.procs" ]; then
        groups+=("$root/muster-$(basename "$folder")")
    fi
done
leave() {
    for group in "${groups[@]}"; do
        # 0 is the process that writes.
        echo 0 >"$group/../cgroup.procs"
        find "$group" -depth -type d -exec rmdir {} +
    done
}
trap leave EXIT
for group in "${groups[@]}"; do
    mkdir "$group"
    echo 0 >"$group/cgroup.procs"
done

mkdir -p "$folder"/{root,work,written/etc/systemd/system} /run/systemd/nspawn
cp "$here/package-test.service" "$folder/written/etc/systemd/system/"
# systemd-nspawn stores its state here.
mount -t tmpfs tmpfs /run/systemd/nspawn
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/written,workdir=$folder/work" "$folder/root"
# A node needs all privileges of root. The machine has no network, so it cannot disturb other servers.
systemd-nspawn --quiet --boot --directory="$folder/root" --machine=muster-package --register=no --keep-unit \
    --private-network --capability=all --link-journal=no --bind-ro="$folder/packages:/packages" \
    --bind-ro="$here:/test" --console=pipe systemd.unit=package-test.service </dev/null
