//! Flags about replication: the access to etcd, the addresses of this master, durability.

use super::Group::Replication;
use super::Kind::{Bool, Duration, Int32, Text, Uint64};
use super::{Flag, used};

pub(super) const FLAGS: &[Flag] = &[
    used(
        "enable_ha",
        Bool,
        "false",
        Replication,
        "Replicate through etcd: one of the masters with the same --cluster_id serves, the others follow it and one \
         takes over when it is gone. Needs --etcd_endpoints",
    ),
    used(
        "enable_oplog",
        Bool,
        "false",
        Replication,
        "Implied by --enable_ha, which always writes every change to etcd before it is answered",
    ),
    used(
        "etcd_endpoints",
        Text,
        "",
        Replication,
        "Where etcd is: HOST:PORT or http(s)://HOST:PORT, several separated by ; or ,",
    ),
    used(
        "ha_backend_connstring",
        Text,
        "",
        Replication,
        "Read when --etcd_endpoints is empty, with the same form",
    ),
    used("ha_backend_type", Text, "etcd", Replication, "Only etcd is accepted"),
    used(
        "etcd_cacert",
        Text,
        "",
        Replication,
        "PEM file with the certificate authorities that etcd's certificate is checked with; turns TLS on",
    ),
    used(
        "etcd_cert",
        Text,
        "",
        Replication,
        "PEM file with the certificate to show to etcd; needs --etcd_key",
    ),
    used("etcd_key", Text, "", Replication, "PEM file with the private key of --etcd_cert"),
    used("etcd_user", Text, "", Replication, "User of etcd; needs --etcd_password_file"),
    used(
        "etcd_user_file",
        Text,
        "",
        Replication,
        "File whose first line is the user of etcd, instead of --etcd_user",
    ),
    used(
        "etcd_password_file",
        Text,
        "",
        Replication,
        "File whose first line is the password of the user of etcd",
    ),
    used(
        "advertise_address",
        Text,
        "",
        Replication,
        "HOST or HOST:PORT under which Mooncake clients reach this master; else --rpc_address if it is not a \
         wildcard, else the variable POD_IP",
    ),
    used(
        "member_name",
        Text,
        "",
        Replication,
        "Name of this master among those of its cluster; else the variable POD_NAME, else host name and RPC port",
    ),
    used(
        "peer_host",
        Text,
        "0.0.0.0",
        Replication,
        "Address on which the other masters reach this one; as for --rpc_address",
    ),
    used(
        "peer_port",
        Int32,
        "9005",
        Replication,
        "Port on which the other masters reach this one; they notice by it at once when the process dies",
    ),
    used(
        "peer_token_file",
        Text,
        "",
        Replication,
        "File whose first line is the token by which the masters of a cluster authenticate each other, the same \
         for all of them; without one the first master makes a token and keeps it in etcd",
    ),
    used(
        "peer_cert",
        Text,
        "",
        Replication,
        "PEM file with the certificate of this master for the peer port, as server and as client; with --peer_key and \
         --peer_cacert it takes the place of the token, and the peer port speaks TLS",
    ),
    used("peer_key", Text, "", Replication, "PEM file with the private key of --peer_cert"),
    used(
        "peer_cacert",
        Text,
        "",
        Replication,
        "PEM file with the certificate authorities that the certificates of the other masters are checked with",
    ),
    used(
        "peer_cert_name",
        Text,
        "",
        Replication,
        "DNS name that the certificate of every master must have, if the authorities also sign other certificates; \
         not checked if empty",
    ),
    used(
        "admin_host",
        Text,
        "127.0.0.1",
        Replication,
        "Address of the admin API (switchover, remove_all); one that is not a loopback needs --admin_tls_cert",
    ),
    used("admin_port", Int32, "9004", Replication, "Port of the admin API; 0 lets the system choose a port"),
    used(
        "admin_token_file",
        Text,
        "",
        Replication,
        "File whose first line is the token that changes over the admin API need (Authorization: Bearer TOKEN)",
    ),
    used(
        "admin_tls_cert",
        Text,
        "",
        Replication,
        "PEM file with the certificate of the admin API; turns TLS on",
    ),
    used("admin_tls_key", Text, "", Replication, "PEM file with the private key of --admin_tls_cert"),
    used(
        "admin_tls_client_ca",
        Text,
        "",
        Replication,
        "PEM file with the certificate authorities whose clients may change things without a token",
    ),
    used(
        "admin_allow_plain",
        Bool,
        "false",
        Replication,
        "Let the admin API listen without TLS on an address that is not a loopback; the token is then readable on \
         the way",
    ),
    used(
        "companion",
        Bool,
        "true",
        Replication,
        "Have a small process beside this one that turns clients away if this one dies, so that their calls fail at once \
         and not after four seconds",
    ),
    used(
        "companion_socket",
        Text,
        "",
        Replication,
        "Unix socket of a companion that another process starts (moonkeeper companion), as in the pods of the operator; \
         if empty, this master starts its own",
    ),
    used(
        "data_dir",
        Text,
        "",
        Replication,
        "Folder for what this master keeps across restarts: which log it knows, so that it notices one that was deleted or \
         restored from a backup, and its snapshots; none if empty",
    ),
    used(
        "data_dir_durable",
        Bool,
        "true",
        Replication,
        "Whether --data_dir outlives the machine of this master; false for an emptyDir of Kubernetes or a disk that goes \
         with a virtual machine. Snapshots in such a directory do not count for deleting the log",
    ),
    used(
        "durability",
        Text,
        "strict",
        Replication,
        "strict: every change is durable in etcd before it is answered. relaxed: the end of a put, a revoke, a removal \
         and an unmount are answered before, and a crash may lose the last of them",
    ),
    used(
        "relaxed_tail_records",
        Uint64,
        "4096",
        Replication,
        "With --durability=relaxed: most changes that are answered and not yet durable; more wait",
    ),
    used(
        "relaxed_tail_time",
        Duration,
        "500ms",
        Replication,
        "With --durability=relaxed: a write to etcd that takes longer makes later changes wait for it",
    ),
    used(
        "expired",
        Text,
        "keep",
        Replication,
        "Objects whose lease has ended when a standby takes over: keep leaves them to eviction; evict evicts all of \
         them once no reader can hold a lease, which is most of a cache",
    ),
    used(
        "inherited_client_ttl",
        Duration,
        "180s",
        Replication,
        "How long a new primary waits to hear from a client of the old one before it gives up the client's memory",
    ),
    used(
        "leader_lease_ttl",
        Duration,
        "5s",
        Replication,
        "A primary that cannot reach etcd for so long is replaced, and stops answering before; whole seconds",
    ),
    used(
        "keep_alive_interval",
        Duration,
        "1s",
        Replication,
        "Time between two renewals of the leader's lease",
    ),
    used(
        "lease_sync_interval",
        Duration,
        "1s",
        Replication,
        "Time between two records about leases that reads have set",
    ),
    used(
        "oplog_queue_bytes",
        Uint64,
        "67108864",
        Replication,
        "Most bytes of changes that wait to be written to etcd; when they are used up, writers wait",
    ),
];
