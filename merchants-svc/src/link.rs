//! Links that are mailed to a person, each good for one purpose.

use std::time::Duration;

chassis::closed_list! {
    /// What a link is for.
    pub enum LinkPurpose: "a purpose of a link" {
        /// To verify the address that it was mailed to.
        VerifyEmail = "VERIFY_EMAIL",
        /// To make the address that it was mailed to the person's.
        ChangeEmail = "CHANGE_EMAIL",
        /// To undo that, once: gives the address back and chooses another password.
        RevertEmail = "REVERT_EMAIL",
        /// To choose another password, once.
        ResetPassword = "RESET_PASSWORD",
        /// To choose the first password, once.
        AcceptInvitation = "ACCEPT_INVITATION",
    }
}

chassis::text_column!(LinkPurpose);

impl LinkPurpose {
    /// How long it is good from when it is sent.
    pub fn lasts(self) -> Duration {
        match self {
            Self::VerifyEmail | Self::ChangeEmail => Duration::from_hours(24),
            Self::ResetPassword => Duration::from_mins(30),
            Self::AcceptInvitation | Self::RevertEmail => Duration::from_hours(7 * 24),
        }
    }

    /// Its path at the dashboard, before the token.
    pub fn path(self) -> &'static str {
        match self {
            Self::VerifyEmail => "verify-email",
            Self::ChangeEmail => "change-email",
            Self::ResetPassword | Self::AcceptInvitation | Self::RevertEmail => "reset",
        }
    }
}
