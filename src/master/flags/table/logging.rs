//! Flags that the reference has from its logging and flag libraries (glog and gflags).

use super::Group::{Logging, Settings};
use super::Kind::{Bool, Int32, Text};
use super::{Flag, inert, used};

const FILES: &str = "logs go to standard error, never to files";
const MAIL: &str = "logs are not sent by mail";
const COMPLETION: &str = "flags are not completed by the program itself";

pub(super) const FLAGS: &[Flag] = &[
    used("logtostderr", Bool, "false", Logging, "Accepted either way: logs always go to standard error"),
    used("alsologtostderr", Bool, "false", Logging, "Accepted either way: logs always go to standard error"),
    used("colorlogtostderr", Bool, "false", Logging, "Colour the log lines"),
    used("minloglevel", Int32, "0", Logging, "Least level to log: 0 info, 1 warning, 2 and more error"),
    used("v", Int32, "0", Logging, "Verbosity: 1 adds debug messages, 2 and more everything"),
    inert("vmodule", Text, "", "verbosity is set for the whole process by --v"),
    inert("stderrthreshold", Int32, "2", "every message that is logged goes to standard error"),
    inert("alsologtoemail", Text, "", MAIL),
    inert("logemaillevel", Int32, "999", MAIL),
    inert("logmailer", Text, "/bin/mail", MAIL),
    inert("drop_log_memory", Bool, "true", FILES),
    inert("log_dir", Text, "", FILES),
    inert("log_link", Text, "", FILES),
    inert("logbuflevel", Int32, "0", FILES),
    inert("logbufsecs", Int32, "30", FILES),
    inert("logfile_mode", Int32, "436", FILES),
    inert("max_log_size", Int32, "1800", FILES),
    inert("stop_logging_if_full_disk", Bool, "false", FILES),
    inert("log_backtrace_at", Text, "", "no backtraces are logged at chosen lines"),
    inert("log_prefix", Bool, "true", "every log line has its time and level"),
    inert("symbolize_stacktrace", Bool, "true", "a crash prints its own backtrace"),
    inert("tab_completion_columns", Int32, "80", COMPLETION),
    inert("tab_completion_word", Text, "", COMPLETION),
    used("flagfile", Text, "", Settings, "Files with one flag per line, separated by commas"),
    used("fromenv", Text, "", Settings, "Flags to take from variables FLAGS_name, which must be there"),
    used("tryfromenv", Text, "", Settings, "Flags to take from variables FLAGS_name, if they are there"),
    used("undefok", Text, "", Settings, "Unknown flags to accept in silence"),
    used("help", Bool, "false", Settings, "Show the flags that matter"),
    used("helpshort", Bool, "false", Settings, "The same as --help"),
    used("helpfull", Bool, "false", Settings, "Show all flags"),
    used("helppackage", Bool, "false", Settings, "The same as --helpfull"),
    used("helpon", Text, "", Settings, "Show the flags whose name or heading contains this text"),
    used("helpmatch", Text, "", Settings, "Show the flags whose name or heading contains this text"),
    inert("helpxml", Bool, "false", "the help is not available as XML; --helpfull shows all of it"),
    used("version", Bool, "false", Settings, "Show the version"),
];
