//! Tests of the load tester itself.

mod pace;
