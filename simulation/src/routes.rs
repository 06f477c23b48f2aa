//! Which rail carries which provider: a third of all goes over Hubtel. In some worlds that is
//! configured anew, for the replicas of charges-svc that start from then on.

use crate::{
    choice::Choices,
    rails::Rail,
    time::{MINUTE, Millis, SECOND},
};

/// The settings, and what carries each provider besides Hubtel.
const SETTINGS: [(&str, Rail); 3] = [
    ("rail-mtn", Rail::Momo),
    ("rail-telecel", Rail::Paystack),
    ("rail-at", Rail::Paystack),
];

/// When the routes change, if they do.
pub fn changed_at(seed: u64) -> Option<Millis> {
    let mut choices = Choices::of(seed, "change of routes");
    let at = choices.between(10 * SECOND, 6 * MINUTE);
    choices.chance(400).then_some(at)
}

/// The settings of a replica that starts now.
pub fn at(seed: u64, now: Millis) -> [(&'static str, Rail); 3] {
    let is_changed = changed_at(seed).is_some_and(|changed_at| now >= changed_at);
    let name = if is_changed { "later routes" } else { "routes" };
    let mut choices = Choices::of(seed, name);
    SETTINGS.map(|(setting, other)| {
        let rail = choices.weighted(&[(1, Rail::Hubtel), (2, other)]);
        (setting, rail)
    })
}
