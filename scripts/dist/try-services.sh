#!/usr/bin/env bash
# Runs in a fresh root of Debian with systemd, which does not run there (try-in-debian.sh): installs the .deb, says how
# open its services are, runs the agent with the rights of its unit, then installs it again, removes it and purges it.
# Prints what systemd is told meanwhile.
set -e -o pipefail

deb=$(echo /tmp/*_"$(dpkg --print-architecture)".deb)
units=/usr/lib/systemd/system
link=/etc/systemd/system/multi-user.target.wants/swtch-agent.service

# As if systemd ran, with a systemctl that only writes down its words.
mkdir -p /run/systemd/system
printf '#!/bin/sh\necho "$*" >>/tmp/told\n' >/usr/local/bin/systemctl
chmod 755 /usr/local/bin/systemctl

# step WORDS COMMAND…: systemd must be told the words.
step() {
    local words=$1
    shift
    : >/tmp/told
    "$@" >/tmp/said 2>&1 || { cat /tmp/said && exit 1; }
    printf '%s: systemctl %s\n' "${*##*/}" "$(sort -u /tmp/told | paste -sd ';')"
    grep -q -e "$words" /tmp/told
}

# Prints whether the agent counts switches as the user and with the capabilities of its unit.
run_agent() {
    local capabilities
    capabilities=$(sed -n 's/^AmbientCapabilities=//p' $units/swtch-agent.service | tr 'A-Z ' 'a-z,' | sed 's/cap_/+/g')
    env -u HOME setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --inh-caps="-all,$capabilities" \
        --ambient-caps="-all,$capabilities" --bounding-set="-all,$capabilities" swtch agent --listen 127.0.0.1:29464 &
    for _ in {1..60}; do
        sleep 0.5
        (printf 'GET /metrics HTTP/1.0\r\nHost: 127.0.0.1:29464\r\n\r\n' >&3 && grep 'layer="switches"' <&3) \
            3<>/dev/tcp/127.0.0.1/29464 2>/dev/null >/tmp/layer && break
    done
    kill %1
    cat /tmp/layer
    grep -q '} 1$' /tmp/layer
}

step daemon-reload dpkg -i "$deb"
systemd-analyze verify --man=no $units/swtch-*.service
for unit in $units/swtch-*.service; do
    systemd-analyze security --offline=yes --threshold=30 "$unit" | tail -n 1
done
run_agent
SYSTEMD_OFFLINE=1 /usr/bin/systemctl --quiet enable swtch-agent
echo '# changed' >>/etc/default/swtch-agent
step 'try-restart swtch-agent' dpkg -i "$deb"
[ -L $link ] && grep -q changed /etc/default/swtch-agent
step 'stop swtch-agent' dpkg -r swtch
[ ! -L $link ] && [ -e /etc/default/swtch-agent ]
mkdir -p /var/lib/swtch /var/lib/private/swtch-agent
step daemon-reload dpkg -P swtch
left=$(find /etc /usr /var -name '*swtch*')
[ -z "$left" ] || { echo "left behind: $left" && exit 1; }
