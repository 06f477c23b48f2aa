//! How an error is logged: with everything that led to it.

use std::{error::Error, fmt};

/// An error with its sources, each after a colon, for the field `error` of a log line:
/// `error = %chain(&error)`, or `%chain(error.as_ref())` for an [`anyhow::Error`].
pub fn chain<'e>(error: &'e (dyn Error + 'static)) -> Chain<'e> {
    Chain(error)
}

/// See [`chain`].
#[derive(Clone, Copy, Debug)]
pub struct Chain<'e>(&'e (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        f.write_str(&said)?;
        let mut next = self.0.source();
        while let Some(source) = next {
            let text = source.to_string();
            // Many errors repeat their source in their own text.
            if !said.ends_with(&text) {
                write!(f, ": {text}")?;
                said = text;
            }
            next = source.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::chain;

    #[derive(Debug, thiserror::Error)]
    #[error("the record cannot be read")]
    struct SilentError(#[source] io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("the record cannot be read: {0}")]
    struct TellingError(#[source] io::Error);

    #[test]
    fn says_each_cause_once() {
        let cause = || io::Error::other("the disk is gone");
        let whole = "the record cannot be read: the disk is gone";
        assert_eq!(chain(&SilentError(cause())).to_string(), whole);
        assert_eq!(chain(&TellingError(cause())).to_string(), whole);
        let error = anyhow::Error::from(SilentError(cause())).context("no charge");
        assert_eq!(
            chain(error.as_ref()).to_string(),
            format!("no charge: {whole}")
        );
    }
}
