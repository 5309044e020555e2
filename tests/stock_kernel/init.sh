#!/bin/busybox sh
# First program of the stock kernel: the host's tree, read-only below a layer of memory, becomes the root.
# What is written there is gone with the boot; /run, where namespaces are kept, starts empty.
set -e
mount() { busybox mount "$@"; }
mkdir() { busybox mkdir -p "$@"; }

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do
    busybox insmod "/modules/$module"
done </modules/order

share=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o "ro,cache=loose,$share" host /host
mount -t tmpfs -o mode=0755,size=50% tmpfs /memory
mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work overlay /root

mount --move /proc /root/proc
mount --move /sys /root/sys
mount --move /dev /root/dev
mkdir /root/dev/pts /root/dev/shm
mount -t devpts -o ptmxmode=0666,mode=0620 devpts /root/dev/pts
mount -t tmpfs -o mode=1777 tmpfs /root/dev/shm
mount -t bpf bpf /root/sys/fs/bpf
mount -t tracefs tracefs /root/sys/kernel/tracing
mount -t tmpfs -o mode=0755 tmpfs /root/run
mkdir /root/run/stock-kernel
mount -t 9p -o "cache=none,$share" run /root/run/stock-kernel
exec busybox switch_root /root /run/stock-kernel/guest
