#!/bin/bash
# Real hosts for the scenarios: systemd as init, sshd, an unprivileged user with sudo, eight device nodes.
# Containers from Debian packages alone, in mount and network namespaces of their own. Needs root on Debian 12.
#   lab.sh deps | image | start | up N | down | stop | exec CMD...
# Why each setting is what it is, stands beside it. Two hosts are up in about a second.
set -euo pipefail
LAB=${LAB:-/run/sglang-lab}
CACHE=${CACHE:-/var/cache/sglang-lab}
STATE=$LAB/state
NET=198.18.0
# SYS_PTRACE: without it root sees nobody else's /proc/PID/fd. MKNOD: device nodes. SYS_ADMIN: systemd's own mounts.
CAPS=MKNOD,SYS_PTRACE,AUDIT_WRITE,SYS_ADMIN,NET_ADMIN,SYS_NICE
export CONTAINERS_CONF=$CACHE/containers.conf CONTAINERS_STORAGE_CONF=$CACHE/storage.conf

inside() { nsenter --mount="$LAB/mnt" --net="$LAB/net" --wdns="$PWD" -- "$@"; }

deps() {
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # runc works with the hybrid cgroups of older hosts, crun does not
  apt-get install -y -qq --no-install-recommends podman runc conmon netavark iptables mmdebstrap uidmap \
    openssh-client iproute2 util-linux > /dev/null
}

image() {  # one archive on disk, kept between runs; from this machine's own list of package sources
  local file sources=""
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
    if [ -s "$file" ] && [ -z "$sources" ]; then sources=$file; fi
  done
  mkdir -p "$CACHE"
  [ -f "$CACHE/id" ] || ssh-keygen -q -t ed25519 -N '' -f "$CACHE/id"
  [ -f "$CACHE/host.tar" ] && return
  mmdebstrap --quiet --variant=minbase --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --aptopt='Apt::Install-Recommends "false"' \
    --include=systemd,systemd-sysv,dbus,openssh-server,python3,sudo,curl,psmisc,procps,iproute2,util-linux \
    --customize-hook="sh $(dirname "$(readlink -f "$0")")/image-hook.sh \"\$1\" $CACHE/id.pub" \
    bookworm "$CACHE/host.part.tar" "$sources" 2>&1 | grep -v '^Created symlink' || true
  mv "$CACHE/host.part.tar" "$CACHE/host.tar"
}

start() {
  mountpoint -q "$LAB" && [ -f "$CACHE/ssh_config" ] && return
  mkdir -p "$LAB"
  mount --bind "$LAB" "$LAB"
  mount --make-private "$LAB"
  mkdir -p "$STATE"
  touch "$LAB/mnt" "$LAB/net"
  # six inotify instances a host; the default of 128 ends near the twentieth
  [ "$(sysctl -n fs.inotify.max_user_instances)" -ge 1024 ] || sysctl -qw fs.inotify.max_user_instances=4096
  # a mount namespace with cgroup v2 only: systemd in the containers wants no hybrid hierarchy
  unshare --mount="$LAB/mnt" --net="$LAB/net" --propagation private sh -ec "
    ip link set lo up
    umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup
    mount -t tmpfs -o mode=755 tmpfs $STATE; mkdir -p $STATE/rc $STATE/net
    mkdir -p /run/containers /run/libpod; mount --bind $STATE/rc /run/containers
    mount -t tmpfs tmpfs /dev/shm"
  printf '[storage]\ndriver = "overlay"\ngraphroot = "%s/storage"\nrunroot = "%s/run"\n' "$STATE" "$STATE" \
    > "$CACHE/storage.conf"
  # limits as they are here: podman's own defaults are above what a machine without CAP_SYS_RESOURCE may set
  cat > "$CACHE/containers.conf" <<E
[containers]
default_ulimits = ["nofile=$(ulimit -Hn):$(ulimit -Hn)", "nproc=16384:16384"]
pids_limit = 0
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
tmp_dir = "$STATE/libpod"
[network]
network_backend = "netavark"
network_config_dir = "$STATE/net"
E
  inside podman import -q -c 'CMD ["/sbin/init"]' -c 'STOPSIGNAL SIGRTMIN+3' -c 'ENV container=podman' \
    "$CACHE/host.tar" localhost/gpuhost:latest > /dev/null
  inside podman network create --disable-dns --subnet $NET.0/24 gpunet > /dev/null
  # hosts are made anew all the time, so their keys are nobody's to know; of real hosts they are checked
  printf 'Host *\n IdentityFile %s\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n ConnectTimeout 2\n User ansible\n' \
    "$CACHE/id" > "$CACHE/ssh_config"
}

up() {
  local n tries
  for n in $(seq 1 "$1"); do  # a fixed MAC: after a restart with a new one, ssh is dead for half a minute
    inside podman run -d --pull=never --name "gpu$n" --hostname "gpu$n" --restart=always --systemd=always \
      --network "gpunet:ip=$NET.$((10 + n)),mac=$(printf 02:00:00:00:00:%02x "$n")" --cap-add $CAPS \
      localhost/gpuhost:latest > /dev/null
  done
  for n in $(seq 1 "$1"); do
    tries=0
    until inside ssh -F "$CACHE/ssh_config" "$NET.$((10 + n))" true 2> /dev/null; do
      sleep 0.1
      tries=$((tries + 1))
      [ $tries -lt 400 ] || { echo "gpu$n: no ssh" >&2; exit 1; }
    done
  done
}

down() { inside podman rm -f -t 1 -a > /dev/null; }

stop() {
  inside podman rm -f -t 1 -a > /dev/null 2>&1 || true
  umount "$LAB/mnt" "$LAB/net" 2> /dev/null || true
  umount "$LAB" 2> /dev/null || true
  rm -rf "$LAB"
}

case ${1:-} in
  deps | image | start | down | stop) "$1" ;;
  up) up "$2" ;;
  exec) shift; inside "$@" ;;
  *) sed -n 2,5p "$0"; exit 2 ;;
esac
