//! What a session costs in cedis, the currency that mobile money debits.

use std::{collections::HashMap, str::FromStr};

use chassis::{
    limits::AMOUNT_HUNDREDTHS_MAX,
    money::{Currency, Money},
};
use rust_decimal::Decimal;

/// The operator's rate for one currency, written as `USD=12.50`: cedis for one unit.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeRate {
    currency: Currency,
    cedis: Decimal,
}

impl FromStr for ExchangeRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.trim().split_once('=');
        let (code, cedis) = parts.ok_or("must be of the form USD=12.50")?;
        let currency = code.parse().ok().filter(|code| *code != Currency::GHS);
        let cedis = Decimal::from_str_exact(cedis).ok();
        let cedis = cedis.filter(|cedis| *cedis > Decimal::ZERO);
        let currency = currency.ok_or("must name a currency other than GHS")?;
        let cedis = cedis.ok_or("must give a positive number of cedis")?;
        Ok(Self { currency, cedis })
    }
}

/// All rates, by currency: cedis for one unit.
#[derive(Debug)]
pub struct ExchangeRates(HashMap<Currency, Decimal>);

impl ExchangeRates {
    pub fn new(rates: &[ExchangeRate]) -> Self {
        Self(
            rates
                .iter()
                .map(|rate| (rate.currency, rate.cedis))
                .collect(),
        )
    }

    /// Whether no currency has two rates.
    pub fn is_clear(rates: &[ExchangeRate]) -> bool {
        Self::new(rates).0.len() == rates.len()
    }

    /// Whether sessions in this currency can be paid.
    pub fn has(&self, currency: Currency) -> bool {
        currency == Currency::GHS || self.0.contains_key(&currency)
    }

    /// What is debited for `asked`, or `None` if it cannot be paid.
    pub fn quote(&self, asked: Money) -> Option<Quote> {
        if asked.currency() == Currency::GHS {
            return Some(Quote {
                asked,
                debit: asked,
                rate: None,
            });
        }
        let rate = *self.0.get(&asked.currency())?;
        let debit = asked.convert(rate, Currency::GHS).ok()?;
        let rate = Some(rate.to_string());
        (debit.minor_units() <= AMOUNT_HUNDREDTHS_MAX).then_some(Quote { asked, debit, rate })
    }
}

/// What one session costs.
#[derive(Clone, Debug)]
pub struct Quote {
    pub asked: Money,
    /// In cedis.
    pub debit: Money,
    /// Cedis for one unit, if the two currencies differ.
    pub rate: Option<String>,
}

impl Quote {
    /// What the form carries, so that nobody pays an amount that was not shown. `None` for cedis.
    pub fn carried(&self) -> Option<String> {
        let rate = self.rate.as_ref()?;
        Some(format!("{}@{rate}", self.debit.minor_units()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quote(rates: &[&str], minor_units: i64, code: &str) -> Option<(i64, Option<String>)> {
        let rates: Vec<ExchangeRate> = rates.iter().map(|rate| rate.parse().unwrap()).collect();
        let asked = Money::new(minor_units, code.parse().unwrap());
        let quote = ExchangeRates::new(&rates).quote(asked)?;
        Some((quote.debit.minor_units(), quote.carried()))
    }

    #[test]
    fn cedis_need_no_rate_and_others_do() {
        assert_eq!(quote(&[], 2550, "GHS"), Some((2550, None)));
        assert_eq!(quote(&[], 1000, "USD"), None);
        let carried = Some("12500@12.50".to_owned());
        assert_eq!(quote(&["USD=12.50"], 1000, "USD"), Some((12_500, carried)));
    }

    #[test]
    fn what_is_too_much_cannot_be_paid() {
        assert_eq!(quote(&["USD=12.50"], 999_999_999_999, "USD"), None);
    }

    #[test]
    fn rates_that_make_no_sense_are_refused() {
        for text in [
            "", "USD", "USD=", "USD=0", "USD=-1", "usd=1", "GHS=1", "USD=1e3",
        ] {
            assert!(text.parse::<ExchangeRate>().is_err(), "{text}");
        }
    }
}
