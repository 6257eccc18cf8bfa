//! The settings of a master: typed, validated, and the only form in which flags reach the rest of the program.

use std::time::Duration;

use super::flags::value::Value;
use super::flags::{FlagError, Values, Warning};
use crate::net::http_server::HttpLimits;
use crate::net::listen::EVERY_ADDRESS;

pub mod command_line;
pub mod companion;
pub mod ha;
pub mod peer;
pub mod snapshots;

pub use ha::HaSettings;

/// All settings of a master, checked and converted.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Name of this store.
    pub cluster_id: String,
    /// Replication; `None` for a master that is alone.
    pub ha: Option<HaSettings>,
    /// How Mooncake clients are served.
    pub rpc: RpcSettings,
    /// The HTTP server for metrics, health and queries.
    pub http: HttpSettings,
    /// The metadata server for transfer engines, if it is enabled.
    pub metadata_server: Option<MetadataServerSettings>,
    /// Leases, pins and timeouts.
    pub objects: ObjectSettings,
    /// When and how much to evict.
    pub eviction: EvictionSettings,
    /// How segments are chosen for new replicas.
    pub allocation_strategy: AllocationStrategy,
    /// What clients are told about disks; this master has no disk replicas.
    pub storage_config: StorageConfigSettings,
    pub tasks: TaskSettings,
    pub log: LogSettings,
    /// Time between two summaries of the metrics in the log; none are written if it is absent.
    pub metric_reporting: Option<Duration>,
}

/// Settings of the RPC server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcSettings {
    /// The address to listen on: an IP address or a host name.
    pub address: String,
    /// The interface whose IPv4 address replaces `address`
    /// (see [`interface_address`](super::flags::interface_address)).
    pub interface: Option<String>,
    /// The port to listen on; 0 lets the system choose.
    pub port: u16,
    /// How many threads serve clients.
    pub threads: Threads,
    /// Close a connection that has been silent for this long.
    pub idle_timeout: Option<Duration>,
    pub tcp_no_delay: bool,
}

/// A number of threads that may depend on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    Exactly(usize),
    /// One per core, but no more than this.
    PerCoreUpTo(usize),
}

impl Threads {
    /// Returns the number of threads on a machine with this many cores; at least one.
    pub fn on(self, cores: usize) -> usize {
        match self {
            Threads::Exactly(count) => count,
            Threads::PerCoreUpTo(most) => cores.min(most),
        }
        .max(1)
    }
}

/// The HTTP server for metrics, health and queries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// The address to listen on.
    pub host: String,
    /// The port to listen on; 0 lets the system choose.
    pub port: u16,
    pub limits: HttpLimits,
}

/// The metadata server for transfer engines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataServerSettings {
    /// The address to listen on.
    pub host: String,
    /// The port to listen on; 0 lets the system choose.
    pub port: u16,
    pub limits: HttpLimits,
    pub max_entries: usize,
    /// Most bytes of keys and values together.
    pub max_bytes: usize,
    /// Whether the entries of a client are removed when it expires.
    pub cleanup_on_timeout: bool,
}

/// Leases, pins and timeouts of objects and clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectSettings {
    /// Time to live of the lease that a read sets.
    pub lease_ttl: Duration,
    /// Length of a soft pin that does not name one.
    pub soft_pin_ttl: Duration,
    /// Longest soft pin that a client may request.
    pub max_soft_pin_ttl: Duration,
    /// After this an unfinished put may be replaced.
    pub put_start_discard_timeout: Duration,
    /// After this the memory of an unfinished put is released.
    pub put_start_release_timeout: Duration,
    /// A client that has been silent for this long expires.
    pub client_ttl: Duration,
}

/// When and how much to evict.
#[derive(Debug, Clone, PartialEq)]
pub struct EvictionSettings {
    /// Share of the memory in use above which eviction starts.
    pub high_watermark_ratio: f64,
    /// Share of the objects that one round evicts.
    pub ratio: f64,
    /// Whether soft-pinned objects may be evicted when nothing else is left.
    pub allow_soft_pinned: bool,
}

/// Strategy by which segments are chosen for new replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocationStrategy {
    /// Preferred segments first, then from a random start.
    Random,
    /// The emptiest of a sample first.
    FreeRatioFirst,
    /// The writer's own host first.
    LocalFirst,
}

/// What clients are told about disks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageConfigSettings {
    /// Disk quota in bytes; 0 leaves it to the client.
    pub quota_bytes: u64,
    /// Whether a client may evict from its disk.
    pub enable_disk_eviction: bool,
}

/// Limits and timeouts of copy and move tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSettings {
    /// Most tasks that wait for a client.
    pub max_pending: u32,
    /// Most tasks that clients work on.
    pub max_processing: u32,
    /// Most finished tasks that can still be queried.
    pub max_finished: u32,
    /// How long a task may wait for a client.
    pub pending_timeout: Option<Duration>,
    /// How long a client may work on a task.
    pub processing_timeout: Option<Duration>,
    /// How often a client retries a task.
    pub max_retry_attempts: u32,
}

/// The least level that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// Errors only.
    Error,
    /// Warnings as well.
    Warn,
    /// Changes of state as well; the default.
    Info,
    /// Details as well.
    Debug,
    Trace,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Level, format and colour of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    pub level: LogLevel,
    pub format: LogFormat,
    /// Whether text is coloured.
    pub color: bool,
}

impl Settings {
    /// Checks the ranges of all values and converts them into their final form.
    pub(super) fn from_values(
        values: &Values,
        place: &ha::Surroundings,
        warnings: &mut Vec<Warning>,
    ) -> Result<Settings, FlagError> {
        let read = Reader { values };
        let limits = HttpLimits {
            max_connections: read.at_least_one("http_max_connections")?,
            header_timeout: read.positive_duration("http_header_timeout")?,
        };
        let mut settings = Settings {
            cluster_id: read.cluster_id()?,
            ha: None,
            rpc: read.rpc()?,
            http: HttpSettings { host: read.host("metrics_host")?, port: read.port("metrics_port")?, limits },
            metadata_server: read.metadata_server(limits)?,
            objects: read.objects()?,
            eviction: EvictionSettings {
                high_watermark_ratio: read.ratio("eviction_high_watermark_ratio")?,
                ratio: read.ratio("eviction_ratio")?,
                allow_soft_pinned: read.bool("allow_evict_soft_pinned_objects"),
            },
            allocation_strategy: read.allocation(warnings)?,
            storage_config: StorageConfigSettings {
                quota_bytes: read.uint("quota_bytes"),
                enable_disk_eviction: read.bool("enable_disk_eviction"),
            },
            tasks: TaskSettings {
                max_pending: read.uint32("max_total_pending_tasks"),
                max_processing: read.uint32("max_total_processing_tasks"),
                max_finished: read.uint32("max_total_finished_tasks"),
                pending_timeout: none_if_zero(read.seconds("pending_task_timeout_sec")?),
                processing_timeout: none_if_zero(read.seconds("processing_task_timeout_sec")?),
                max_retry_attempts: read.uint32("max_retry_attempts"),
            },
            log: read.log()?,
            metric_reporting: match read.bool("enable_metric_reporting") {
                true => Some(read.positive_duration("metric_reporting_interval")?),
                false => None,
            },
        };
        settings.ha = read.ha(&settings, place, warnings)?;
        Ok(settings)
    }
}

fn none_if_zero(duration: Duration) -> Option<Duration> {
    if duration.is_zero() { None } else { Some(duration) }
}

/// Longest timeout in seconds that is accepted: a hundred years, so that no clock overflows.
const MAX_SECONDS: u64 = 100 * 365 * 24 * 3_600;

/// Reads values by name. The table fixes their types, so the other alternatives of [`Value`] cannot occur.
struct Reader<'a> {
    values: &'a Values,
}

impl Reader<'_> {
    fn bool(&self, name: &str) -> bool {
        self.values.get(name) == Value::Bool(true)
    }

    fn int(&self, name: &str) -> i64 {
        if let Value::Int(number) = self.values.get(name) { number } else { 0 }
    }

    fn uint(&self, name: &str) -> u64 {
        if let Value::Uint(number) = self.values.get(name) { number } else { 0 }
    }

    fn uint32(&self, name: &str) -> u32 {
        u32::try_from(self.uint(name)).unwrap_or(u32::MAX)
    }

    fn duration(&self, name: &str) -> Duration {
        if let Value::Duration(duration) = self.values.get(name) { duration } else { Duration::ZERO }
    }

    fn positive_duration(&self, name: &'static str) -> Result<Duration, FlagError> {
        none_if_zero(self.duration(name))
            .ok_or_else(|| self.values.out_of_range(name, "a duration above zero is accepted"))
    }

    fn at_least_one(&self, name: &'static str) -> Result<usize, FlagError> {
        usize::try_from(self.uint(name))
            .ok()
            .filter(|number| *number > 0)
            .ok_or_else(|| self.values.out_of_range(name, "a number of at least 1 is accepted"))
    }

    /// Reads an unsigned flag as seconds.
    fn seconds(&self, name: &'static str) -> Result<Duration, FlagError> {
        match self.uint(name) {
            seconds if seconds <= MAX_SECONDS => Ok(Duration::from_secs(seconds)),
            _ => Err(self
                .values
                .out_of_range(name, "at most 3153600000 seconds (a hundred years) is accepted")),
        }
    }

    fn ratio(&self, name: &'static str) -> Result<f64, FlagError> {
        match self.values.get(name) {
            Value::Double(ratio) if (0.0..=1.0).contains(&ratio) => Ok(ratio),
            _ => Err(self.values.out_of_range(name, "a number from 0 to 1 is accepted")),
        }
    }

    fn port(&self, name: &'static str) -> Result<u16, FlagError> {
        u16::try_from(self.int(name))
            .map_err(|_| self.values.out_of_range(name, "a port from 0 to 65535 is accepted"))
    }

    /// Reads an address to listen on. The default of the reference is the IPv4 wildcard; where the user did not ask for
    /// that, IPv6 is listened on as well.
    fn host(&self, name: &'static str) -> Result<String, FlagError> {
        let host = match self.values.text(name) {
            "0.0.0.0" if !self.values.is_set(name) => EVERY_ADDRESS,
            host => host,
        };
        // Users write IPv6 addresses next to a port in brackets.
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let plain = |c: char| c.is_ascii_alphanumeric() || ".:-_%".contains(c);
        if host.is_empty() || !host.chars().all(plain) {
            return Err(self.values.out_of_range(name, "an IP address or a host name is accepted"));
        }
        Ok(host.to_owned())
    }

    /// Reads the cluster's name without trailing slashes, which the reference cuts off as well.
    fn cluster_id(&self) -> Result<String, FlagError> {
        let id = self.values.text("cluster_id").trim_end_matches('/');
        if id.is_empty() || id.chars().any(char::is_control) {
            let accepted = "a name without control characters is accepted";
            return Err(self.values.out_of_range("cluster_id", accepted));
        }
        Ok(id.to_owned())
    }

    fn rpc(&self) -> Result<RpcSettings, FlagError> {
        let interface = self.values.text("rpc_interface");
        let idle = self.int("rpc_conn_timeout_seconds");
        let idle = u64::try_from(idle).map_err(|_| {
            self.values.out_of_range("rpc_conn_timeout_seconds", "0 or a number of seconds is accepted")
        })?;
        Ok(RpcSettings {
            address: self.host("rpc_address")?,
            interface: (!interface.is_empty()).then(|| interface.to_owned()),
            // The reference takes every value below 1 for "not set".
            port: if self.int("rpc_port") > 0 { self.port("rpc_port")? } else { self.port("port")? },
            threads: self.threads()?,
            idle_timeout: none_if_zero(Duration::from_secs(idle)),
            tcp_no_delay: self.bool("rpc_enable_tcp_no_delay"),
        })
    }

    fn threads(&self) -> Result<Threads, FlagError> {
        const ACCEPTED: &str = "a number of threads from 1 to 1024 is accepted";
        let count = |name| {
            usize::try_from(self.int(name))
                .ok()
                .filter(|count| (1..=1024).contains(count))
                .ok_or_else(|| self.values.out_of_range(name, ACCEPTED))
        };
        if self.int("rpc_thread_num") > 0 {
            count("rpc_thread_num").map(Threads::Exactly)
        } else {
            count("max_threads").map(Threads::PerCoreUpTo)
        }
    }

    fn metadata_server(&self, limits: HttpLimits) -> Result<Option<MetadataServerSettings>, FlagError> {
        let settings = MetadataServerSettings {
            host: self.host("http_metadata_server_host")?,
            port: self.port("http_metadata_server_port")?,
            limits,
            max_entries: self.at_least_one("http_metadata_server_max_entries")?,
            max_bytes: self.at_least_one("http_metadata_server_max_bytes")?,
            cleanup_on_timeout: self.bool("enable_metadata_cleanup_on_timeout"),
        };
        Ok(self.bool("enable_http_metadata_server").then_some(settings))
    }

    fn objects(&self) -> Result<ObjectSettings, FlagError> {
        let soft_pin_ttl = self.duration("default_kv_soft_pin_ttl");
        let max_soft_pin_ttl = self.duration("max_kv_soft_pin_ttl");
        if soft_pin_ttl > max_soft_pin_ttl {
            return Err(FlagError::Conflict(format!(
                "--default_kv_soft_pin_ttl={} is longer than --max_kv_soft_pin_ttl={}",
                self.values.text("default_kv_soft_pin_ttl"),
                self.values.text("max_kv_soft_pin_ttl"),
            )));
        }
        let client_ttl = u64::try_from(self.int("client_ttl"))
            .ok()
            .filter(|seconds| (1..=MAX_SECONDS).contains(seconds))
            .ok_or_else(|| {
                self.values.out_of_range("client_ttl", "a number of at least 1 second is accepted")
            })?;
        Ok(ObjectSettings {
            lease_ttl: self.duration("default_kv_lease_ttl"),
            soft_pin_ttl,
            max_soft_pin_ttl,
            put_start_discard_timeout: self.seconds("put_start_discard_timeout_sec")?,
            put_start_release_timeout: self.seconds("put_start_release_timeout_sec")?,
            client_ttl: Duration::from_secs(client_ttl),
        })
    }

    fn allocation(&self, warnings: &mut Vec<Warning>) -> Result<AllocationStrategy, FlagError> {
        match self.values.text("memory_allocator") {
            "offset" => {}
            "cachelib" => warnings.push(Warning(
                "--memory_allocator=cachelib has no effect: there is one allocator, and it has none of \
                 cachelib's limits on sizes and alignment"
                    .to_owned(),
            )),
            _ => return Err(self.values.out_of_range("memory_allocator", "offset or cachelib is accepted")),
        }
        match self.values.text("allocation_strategy") {
            "random" => Ok(AllocationStrategy::Random),
            "free_ratio_first" => Ok(AllocationStrategy::FreeRatioFirst),
            "local_first" => Ok(AllocationStrategy::LocalFirst),
            "ssd_free_ratio_first" => {
                warnings.push(Warning(
                    "--allocation_strategy=ssd_free_ratio_first chooses by free memory here, because this \
                     master has no SSD segments"
                        .to_owned(),
                ));
                Ok(AllocationStrategy::FreeRatioFirst)
            }
            "cxl" => Err(FlagError::Refused {
                flag: "allocation_strategy",
                value: "cxl".to_owned(),
                reason: "this version has no CXL memory: the capacity you count on would not be there",
            }),
            _ => Err(self.values.out_of_range(
                "allocation_strategy",
                "random, free_ratio_first, local_first or ssd_free_ratio_first is accepted",
            )),
        }
    }

    fn log(&self) -> Result<LogSettings, FlagError> {
        let level = match (self.int("minloglevel"), self.int("v")) {
            (..=0, ..=0) => LogLevel::Info,
            (..=0, 1) => LogLevel::Debug,
            (..=0, _) => LogLevel::Trace,
            (1, _) => LogLevel::Warn,
            _ => LogLevel::Error,
        };
        let format = match self.values.text("log_format") {
            "text" => LogFormat::Text,
            "json" => LogFormat::Json,
            _ => return Err(self.values.out_of_range("log_format", "text or json is accepted")),
        };
        Ok(LogSettings { level, format, color: self.bool("colorlogtostderr") })
    }
}
