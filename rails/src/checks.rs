//! Checks that the settings of all rails share.

use std::time::Duration;

use chassis::config::Refusals;
use reqwest::Url;
use secrecy::{ExposeSecret as _, SecretString};

use crate::client::{is_call_timeout, plain_base};

pub fn check_url(refusals: &mut Refusals, variable: &'static str, url: &Url) {
    let wants = "http(s)://host[:port][/path]";
    refusals.unless(plain_base(url).is_ok(), variable, wants);
    refusals.public_url(variable, url.as_str());
}

pub fn check_secret(refusals: &mut Refusals, variable: &'static str, secret: &SecretString) {
    refusals.secret(variable, secret.expose_secret());
}

pub fn check_timeout(refusals: &mut Refusals, variable: &'static str, timeout: Duration) {
    let wants = "more than nothing and at most 8s";
    refusals.unless(is_call_timeout(timeout), variable, wants);
}
