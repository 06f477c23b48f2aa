//! The networks, as the dashboard names them.

use std::sync::LazyLock;

use proto::charges::Provider;

/// In the order of columns, pictures and choices.
pub const NETWORKS: [(Provider, &str); 3] = [
    (Provider::Mtn, "MTN"),
    (Provider::Telecel, "Telecel"),
    (Provider::At, "AT"),
];

/// Empty for what is none of them.
pub fn name(network: Provider) -> &'static str {
    let mut known = NETWORKS.iter();
    let found = known.find(|(known, _)| *known == network);
    found.map(|(_, name)| *name).unwrap_or_default()
}

/// The choices of a form: code and name.
pub static CHOICES: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
    let codes = NETWORKS
        .iter()
        .filter_map(|(network, name)| Some((network.code()?, *name)));
    codes.collect()
});

/// The choices of a filter.
pub static WITH_ANY: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
    [("", "Any")]
        .into_iter()
        .chain(CHOICES.iter().copied())
        .collect()
});
