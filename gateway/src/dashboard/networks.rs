//! The networks, as the dashboard names them.

use std::sync::LazyLock;

use proto::charges::Provider;

/// In the order of columns, pictures and choices.
pub const NETWORKS: [(Provider, &str); 3] = [
    (Provider::Mtn, "MTN"),
    (Provider::Telecel, "Telecel"),
    (Provider::At, "AT"),
];

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
