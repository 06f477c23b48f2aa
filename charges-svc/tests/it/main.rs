//! Tests of charges-svc through its interfaces.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod admission;
mod balance_lines;
mod books;
mod cases;
mod commit_wire;
mod completed;
mod create;
mod disbursements;
mod early;
mod fairness;
mod figures;
mod finality;
mod floats;
mod hints;
mod hosted;
mod hubtel;
mod leases;
mod lists;
mod mtn;
mod neighbour;
mod newer;
mod operate;
mod own_accounts;
mod payers;
mod payout_accounts;
mod payout_fees;
mod payout_terms;
mod rail_away;
mod rail_reports;
mod refusals;
mod resend;
mod sent_again;
mod sets;
mod settlements;
mod shop;
mod started;
mod statements;
mod store;
mod suspense_refunds;
mod timeline;
mod treasury;
mod watch;
mod weather;
mod world;
