#!/bin/sh
# Turn a bare Debian root ($1) into a GPU host as far as this tool can tell; $2 is the public key to let in.
set -e
root=$1
chroot "$root" useradd -m -s /bin/bash ansible
chroot "$root" useradd -r -s /usr/sbin/nologin sglang
chroot "$root" useradd -m stranger
install -d -m700 "$root/home/ansible/.ssh"
install -m600 "$2" "$root/home/ansible/.ssh/authorized_keys"
chroot "$root" chown -R ansible: /home/ansible/.ssh
echo 'ansible ALL=(ALL) NOPASSWD: ALL' > "$root/etc/sudoers.d/ansible"
chmod 440 "$root/etc/sudoers.d/ansible"
printf 'UseDNS no\nPasswordAuthentication no\nMaxStartups 100\n' > "$root/etc/ssh/sshd_config.d/lab.conf"
mkdir -p "$root/etc/systemd/journald.conf.d"
printf '[Journal]\nStorage=volatile\nRuntimeMaxUse=16M\n' > "$root/etc/systemd/journald.conf.d/lab.conf"
: > "$root/etc/machine-id"
rm -f "$root/etc/hostname" "$root/etc/resolv.conf" "$root/var/lib/dbus/machine-id"
# /dev is a tmpfs: nodes made by hand are gone after a reboot
for name in 0 1 2 3 4 5 6 7 ctl -uvm; do
  echo "c /dev/nvidia$name 0666 root root - 1:3"
done > "$root/etc/tmpfiles.d/nvidia.conf"
# all hosts share one kernel; a boot of their own needs an id of its own
cat > "$root/etc/systemd/system/own-boot-id.service" <<U
[Unit]
Description=A boot id of this host's own
DefaultDependencies=no
After=local-fs.target
Before=sysinit.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'cat /proc/sys/kernel/random/uuid > /run/boot_id; mount --bind /run/boot_id /proc/sys/kernel/random/boot_id'
[Install]
WantedBy=sysinit.target
U
chroot "$root" systemctl enable own-boot-id.service
chroot "$root" systemctl mask getty.target console-getty.service systemd-remount-fs.service systemd-udevd.service \
  systemd-ask-password-console.path systemd-ask-password-wall.path sys-kernel-debug.mount dev-hugepages.mount \
  apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer
