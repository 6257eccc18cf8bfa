//! The flags of a master: their table, and what becomes of them.

mod ha;
mod parse;
mod table;

use std::collections::HashMap;
use std::io;

use moonkeeper::master::flags::FlagError;
use moonkeeper::master::settings::Settings;
use moonkeeper::master::settings::command_line::{Parsed, parse};

/// Files and environment for one call.
#[derive(Default)]
struct World {
    env: Vec<(String, String)>,
    files: HashMap<String, String>,
}

impl World {
    fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    fn file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.into(), text.into());
        self
    }

    fn parse(&self, args: &[&str]) -> Result<Parsed, FlagError> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let read = |path: &str| {
            self.files.get(path).cloned().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        };
        parse(&args, &self.env, &read)
    }

    fn run(&self, args: &[&str]) -> (Settings, Vec<String>) {
        match self.parse(args) {
            Ok(Parsed::Run { settings, warnings }) => {
                (*settings, warnings.iter().map(ToString::to_string).collect())
            }
            other => panic!("{args:?} gave {other:?}"),
        }
    }

    fn error(&self, args: &[&str]) -> String {
        match self.parse(args) {
            Err(why) => why.to_string(),
            Ok(parsed) => panic!("{args:?} gave {parsed:?}"),
        }
    }
}

fn settings(args: &[&str]) -> Settings {
    let (settings, warnings) = World::default().run(args);
    assert!(warnings.is_empty(), "{args:?} warns: {warnings:?}");
    settings
}

fn warnings(args: &[&str]) -> Vec<String> {
    World::default().run(args).1
}

fn error(args: &[&str]) -> String {
    World::default().error(args)
}
