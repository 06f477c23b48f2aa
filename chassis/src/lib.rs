//! What every process runs on, and the value types that all of them speak.
//!
//! This is a closed list: a new module needs a reason that every service shares.

pub mod admin;
pub mod api_key;
pub mod charge_status;
pub mod clock;
pub mod closed_list;
pub mod config;
pub mod error_chain;
pub mod failure;
pub mod fixed_window;
pub mod grpc;
pub mod http;
pub mod ids;
pub mod limits;
pub mod metrics;
pub mod money;
pub mod page;
pub mod phone;
pub mod provider;
pub mod rate_bucket;
pub mod sealed;
pub mod sets;
pub mod shutdown;
pub mod telemetry;
#[doc(hidden)]
pub mod testing;
mod tls;

/// Allocating is a tenth to a sixth of what a request costs, and the system's allocator is the
/// slower one at the sizes of requests' futures. Without huge pages, which round each service up by
/// 10 to 15 MiB and made none faster.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
