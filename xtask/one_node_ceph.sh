#!/bin/bash
# A Ceph cluster on this machine alone, for images on RBD: one monitor and one OSD on a file, without a manager and without keys.
#   apt-get install --no-install-recommends ceph-mon ceph-osd ceph-common qemu-block-extra
#   xtask/one_node_ceph.sh DIR; export CEPH_CONF=DIR/ceph.conf
#   ceph osd pool create rbd 8 8 replicated; rbd create --size 512 disk
#   qemu-nbd -f raw -k DIR/socket --persistent --shared=8 --discard=unmap "rbd:rbd/disk:conf=$CEPH_CONF" &
#   diorite mkfs -t ext4 "nbd+unix:///?socket=DIR/socket"; diorite mount "nbd+unix:///?socket=DIR/socket" /mnt
# Its processes are in DIR/run/*.pid.
set -eu
dir=$(realpath -m "$1")
mkdir -p "$dir"/{mon,osd,run}
address='[v2:127.0.0.1:43300,v1:127.0.0.1:46789]'
fsid=$(cat /proc/sys/kernel/random/uuid)
cat > "$dir/ceph.conf" <<CONF
[global]
fsid = $fsid
mon_host = $address
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_crush_chooseleaf_type = 0
bluestore_block_size = 2147483648
public_network = 127.0.0.0/8
cluster_network = 127.0.0.0/8
run_dir = $dir/run
admin_socket = $dir/run/\$name.asok
log_file = $dir/\$name.log
mon_data = $dir/mon
osd_data = $dir/osd
[mon.a]
host = localhost
CONF
export CEPH_CONF="$dir/ceph.conf"
monmaptool --create --clobber --fsid "$fsid" --addv a "$address" "$dir/monmap"
ceph-mon --mkfs -i a --monmap "$dir/monmap"
ceph-mon -i a --pid-file "$dir/run/mon.pid"
uuid=$(cat /proc/sys/kernel/random/uuid)
ceph osd new "$uuid"
ceph-osd -i 0 --mkfs --osd-uuid "$uuid"
ceph-osd -i 0 --pid-file "$dir/run/osd.pid"
