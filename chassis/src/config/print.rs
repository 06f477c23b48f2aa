//! Settings as text, without their secrets.

use std::fmt::Write as _;

use clap::{Arg, ArgMatches, Command, parser::ValueSource};
use reqwest::Url;

use super::refusals::RefusedSetting;

const MASK: &str = "***";

/// Secret URLs, which are shown with their passwords masked.
const SECRET_URLS: [&str; 3] = ["DATABASE_URL", "MIGRATE_DATABASE_URL", "REDIS_URL"];

/// Every setting that `--help` shows, in the same order: `VARIABLE=value  # where it comes from`.
pub(super) fn settings(command: &Command, matches: &ArgMatches) -> String {
    let mut text = String::new();
    for arg in settable(command) {
        let name = variable(arg);
        let value = value(arg, matches).unwrap_or_default();
        let origin = match matches.value_source(arg.get_id().as_str()) {
            Some(ValueSource::CommandLine) => format!("flag {}", flag(arg)),
            Some(ValueSource::EnvVariable) => "environment".to_owned(),
            Some(_) => "default".to_owned(),
            None => "not set".to_owned(),
        };
        writeln!(text, "{name}={value}  # {origin}").expect("a String takes what is written");
    }
    text
}

/// One line about a refused setting: its value and what it must be.
pub(super) fn refusal(command: &Command, matches: &ArgMatches, refusal: &RefusedSetting) -> String {
    let RefusedSetting {
        variable: of,
        wants,
    } = refusal;
    let Some(arg) = settable(command).find(|arg| variable(arg) == **of) else {
        return format!("{of}: wants {wants}");
    };
    let name = name(arg);
    match value(arg, matches) {
        Some(got) => format!("{name} got \"{got}\"; wants {wants}"),
        None => format!("{name} is not set; wants {wants}"),
    }
}

/// The arguments that are settings: all but `--help` and `--version`.
pub fn settable(command: &Command) -> impl Iterator<Item = &Arg> {
    let ids = ["help", "version"];
    let all = command.get_arguments();
    all.filter(move |arg| !ids.contains(&arg.get_id().as_str()))
}

/// The environment variable of a setting, or its flag if it has none.
pub fn variable(arg: &Arg) -> String {
    let variable = arg
        .get_env()
        .map(|name| name.to_string_lossy().into_owned());
    variable.unwrap_or_else(|| flag(arg))
}

/// How messages name a setting: its variable and flag, or its flag alone.
pub(super) fn name(arg: &Arg) -> String {
    match arg.get_env() {
        Some(name) => format!("{} ({})", name.to_string_lossy(), flag(arg)),
        None => flag(arg),
    }
}

pub fn flag(arg: &Arg) -> String {
    format!("--{}", arg.get_long().unwrap_or(arg.get_id().as_str()))
}

fn value(arg: &Arg, matches: &ArgMatches) -> Option<String> {
    let values = matches.get_raw(arg.get_id().as_str())?;
    let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
    Some(masked(arg, &values.join(",")))
}

/// A value fit to be shown: without secrets, passwords in URLs or line breaks.
pub(super) fn masked(arg: &Arg, value: &str) -> String {
    let is_secret = arg.is_hide_env_values_set();
    let variable = variable(arg);
    let is_url = match is_secret {
        // In other secrets, every part may be secret.
        true => SECRET_URLS.contains(&&*variable),
        false => variable.ends_with("_URL") || value.contains("://"),
    };
    let shown = if value.is_empty() {
        Some(String::new())
    } else if is_url && (is_secret || value.contains(['@', '?'])) {
        without_password(value)
    } else {
        Some(value.to_owned()).filter(|_| !is_secret)
    };
    let shown = shown.unwrap_or_else(|| MASK.to_owned());
    shown.escape_debug().to_string()
}

/// `None` if it is unclear which part is the password.
fn without_password(value: &str) -> Option<String> {
    let mut url = Url::parse(value).ok()?;
    let has_user = !url.username().is_empty() || url.password().is_some();
    if value.matches('@').count() != usize::from(has_user) {
        return None;
    }
    if url.password().is_some() {
        url.set_password(Some(MASK)).ok()?;
    }
    // PostgreSQL takes a password in the query, too.
    if url.query().is_some() {
        url.set_query(Some(MASK));
    }
    url.set_fragment(None);
    Some(url.to_string())
}
