//! Compiles the contracts with protox, so that no protoc has to be installed.

#![expect(
    clippy::disallowed_methods,
    reason = "cargo speaks to build scripts by the environment"
)]

use std::{env, path::PathBuf};

const CONTRACTS: [&str; 15] = [
    "payments/batch/v1/batch.proto",
    "payments/money/v1/money.proto",
    "payments/merchants/v1/merchants.proto",
    "payments/merchants/v1/people.proto",
    "payments/merchants/v1/account.proto",
    "payments/merchants/v1/notices.proto",
    "payments/sessions/v1/sessions.proto",
    "payments/charges/v1/charges.proto",
    "payments/charges/v1/disbursements.proto",
    "payments/charges/v1/statements.proto",
    "payments/charges/v1/reports.proto",
    "payments/charges/v1/figures.proto",
    "payments/webhooks/v1/webhooks.proto",
    "payments/webhooks/v1/merchant_webhooks.proto",
    "payments/ratelimit/v1/ratelimit.proto",
];

/// Messages that identify a person: whoever logs a request must not log these.
const MASKED: [&str; 1] = ["payments.merchants.v1.BusinessForm"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let descriptors = protox::compile(CONTRACTS, ["."])?;
    // For server reflection.
    let out = PathBuf::from(env::var("OUT_DIR")?).join("descriptors.bin");
    std::fs::write(out, prost::Message::encode_to_vec(&descriptors))?;
    tonic_prost_build::configure()
        // They print masked, see src/masked.rs.
        .skip_debug(MASKED)
        // Encoded once, and passed on as they are.
        .bytes(".payments.batch.v1")
        .codec_path("crate::codec::Codec")
        .compile_fds(descriptors)?;
    println!("cargo::rerun-if-changed=payments");
    Ok(())
}
