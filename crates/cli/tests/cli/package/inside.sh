#!/bin/bash
# Runs as root on a booted machine: installs the package, uses it as docs/guides/install.md says, and removes it.
set -euo pipefail
trap 'echo "failed in line $LINENO: $BASH_COMMAND"; journalctl --quiet --no-pager -u "muster*" -n 40' ERR
# It deletes files that a real machine may need.
[ "$(systemd-detect-virt)" = systemd-nspawn ]
# A service of systemd has no HOME.
export HOME=/root

must_fail() {
    if "$@"; then
        echo "must fail: $*"
        exit 1
    fi
}
as() { runuser -u "$1" -- env -C / HOME="$(getent passwd "$1" | cut -d: -f6)" "${@:2}"; }
# The server's owner, as in the guide with sudo.
owner() { as muster muster "$@" --state-dir /var/lib/muster; }
wait_until() {
    for _ in {1..300}; do
        if eval "$1" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    echo "not within 30 seconds: $1"
    return 1
}
main_pid() { systemctl show --property MainPID --value "$1"; }

# The files are those of the machine that runs the test, which may have a server, and may not start services.
rm -rf /usr/sbin/policy-rc.d /etc/muster /var/lib/muster /var/lib/muster-nodes
# Two things that take time and show nothing: the index of all manual pages, and waiting for the disk.
rm -f /var/lib/man-db/auto-update
echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/package-test

echo "== install"
package=$(echo /packages/muster_*.deb)
dpkg -i "$package"
dpkg --verify muster
must_fail systemctl --quiet is-active muster
must_fail systemctl --quiet is-enabled muster
[ "$(stat -c %a /etc/default/muster-agent)" = 600 ]
zcat /usr/share/man/man1/muster-job-create.1.gz | grep -q '^\.SH SYNOPSIS'
bash -c '. /usr/share/bash-completion/completions/muster && complete -p muster' >/dev/null

echo "== configure and start"
sed -i 's/^# listen = .*/listen = "127.0.0.1:7643"/' /etc/muster/muster.toml
systemctl enable --now muster
wait_until 'owner status'
[ "$(ps -o user= -p "$(main_pid muster)")" = muster ]
[ "$(ps -o user= -p "$(main_pid muster-helper)")" = root ]

echo "== an ordinary user runs a job"
owner workspace create --name vision --resource-group lab >/dev/null
key=$(owner user create --name ada --query key -o tsv)
subscription=$(owner account show --query id -o tsv)
owner role assignment create --assignee ada --role "AzureML Data Scientist" \
    --scope "/subscriptions/$subscription/resourceGroups/lab" >/dev/null
owner compute create --name cpu --size Standard_DS1_v2 --max-instances 1 -g lab -w vision >/dev/null
install -D -m 644 /var/lib/muster/pki/ca.pem /usr/local/share/muster/ca.pem
useradd --create-home package-test
ada() { as package-test "$@"; }
ada env MUSTER_URL=https://localhost:7643 MUSTER_CA_FILE=/usr/local/share/muster/ca.pem MUSTER_API_KEY="$key" \
    muster login --identity
ada muster configure --defaults group=lab workspace=vision
ada muster job create --name first --compute cpu --command 'echo hello from $(id -un)' --stream | tee /tmp/stream
grep -q '^hello from ' /tmp/stream
[ "$(ada muster job show first --query status -o tsv)" = Completed ]
must_fail ada ls /var/lib/muster

echo "== upgrade, while a job runs"
ada muster job create --name across --compute cpu --command 'sleep 10' >/dev/null
wait_until '[ "$(ada muster job show across --query status -o tsv)" = Running ]'
before=$(main_pid muster)
dpkg -i "$package"
[ "$(main_pid muster)" != "$before" ]
grep -q 7643 /etc/muster/muster.toml
wait_until 'owner status'
[ "$(ada muster job show first --query status -o tsv)" = Completed ]
ada muster job stream across
[ "$(ada muster job list-attempts across --query 'length(@)' -o tsv)" = 1 ]
owner compute delete --name cpu -g lab -w vision --yes

echo "== remove and purge"
dpkg -r muster
must_fail systemctl --quiet is-active muster
must_fail systemctl --quiet is-active muster-helper
must_fail pgrep -x muster
[ ! -e /usr/bin/muster ]
[ -e /etc/muster/muster.toml ]
dpkg -P muster | tee /tmp/purge
grep -q 'keeping /var/lib/muster;' /tmp/purge
[ ! -e /etc/muster ]
[ ! -e /etc/default/muster-agent ]
[ ! -L /etc/systemd/system/multi-user.target.wants/muster.service ]
[ -d /var/lib/muster/pki ]
echo "== done"
