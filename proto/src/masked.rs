//! How messages print that identify a person.

use std::fmt;

use crate::merchants::BusinessForm;

/// Names the business alone.
impl fmt::Debug for BusinessForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusinessForm")
            .field("kind", &self.kind())
            .field("registered_name", &self.registered_name)
            .finish_non_exhaustive()
    }
}
