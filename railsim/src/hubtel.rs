//! Hubtel in Ghana.

pub mod settings;
