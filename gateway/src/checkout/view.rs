//! Builds the page for a session's situation.

use std::time::Duration;

use axum::response::Response;
use chassis::{clock::Timestamp, money::Money};
use http::StatusCode;
use proto::charges::{Charge, HostedCharge, Provider};
use uuid::Uuid;

use super::{
    Checkout,
    page::{Form, FormPage, NetworkChoice, OtpPage, Purchase, ResultPage, Shell, WaitPage},
    quote::Quote,
    return_link::{OutcomeHint, ReturnLink},
    situation::{PageState, Situation},
    visitor::{Visitor, Wish},
};
use crate::{
    error::Error,
    merchant::{Merchant, Purpose},
    pages::{
        self,
        amount::{shown, unbroken},
    },
};

/// The page of a session.
pub async fn show(
    checkout: &Checkout,
    visitor: &Visitor,
    situation: &Situation,
) -> Result<Response, Error> {
    let merchant = situation.merchant(checkout).await?;
    let view = SessionView {
        visitor,
        situation,
        merchant: &merchant,
    };
    match situation.state {
        PageState::Form => view.form_or_reason(checkout, new_form()),
        PageState::Failed if visitor.wish == Wish::Again => {
            view.form_or_reason(checkout, new_form())
        }
        PageState::Failed => view.failed(),
        PageState::Otp | PageState::Prompt | PageState::Slow if visitor.wish == Wish::Leave => {
            view.leave()
        }
        PageState::Otp => view.otp(StatusCode::OK, "", None),
        PageState::Prompt | PageState::Slow => view.wait(checkout),
        PageState::Success => view.success(),
        PageState::Expired => Ok(view.expired()),
    }
}

/// An empty form with a new attempt.
fn new_form() -> Form {
    Form {
        attempt: Uuid::new_v4().simple().to_string(),
        ..Form::default()
    }
}

/// One visitor's view of one session.
pub struct SessionView<'a> {
    pub visitor: &'a Visitor,
    pub situation: &'a Situation,
    pub merchant: &'a Merchant,
}

impl SessionView<'_> {
    fn form_or_reason(&self, checkout: &Checkout, form: Form) -> Result<Response, Error> {
        if self.merchant.may(Purpose::TakePayment).is_err() {
            return Ok(self.unavailable(StatusCode::OK, self.visitor.text.not_accepting));
        }
        match checkout.rates.quote(self.situation.asked) {
            Some(quote) => Ok(self.form(StatusCode::OK, &quote, &form)),
            None => Ok(self.no_rate()),
        }
    }

    /// The form, with what was entered so far.
    pub fn form(&self, status: StatusCode, quote: &Quote, form: &Form) -> Response {
        let (text, situation) = (self.visitor.text, self.situation);
        let mut shell = self.shell(text.pay_title, PageState::Form.name());
        shell.is_error =
            form.network_error.is_some() || form.number_error.is_some() || form.notice.is_some();
        let debit = shown(quote.debit);
        let rate = quote.rate.as_deref();
        let rate = rate.map(|rate| text.rate(&shown(quote.asked), &debit, rate));
        let networks = Provider::all().filter_map(|provider| {
            let value = provider.code()?;
            Some(NetworkChoice {
                value,
                name: name(provider),
                chosen: form.network == value,
            })
        });
        let page = FormPage {
            shell,
            order: self.order(quote.asked),
            form,
            action: self.visitor.page(),
            debit: &debit,
            quote: quote.carried(),
            rate,
            networks: networks.collect(),
            kept: situation.kept_number().map(|phone| phone.masked()),
            ends: text.ends(&text.moment(situation.expires_at)),
            back: self.back(OutcomeHint::Cancelled).map(|back| back.link),
        };
        pages::respond(status, &page)
    }

    /// The page for when the merchant or the service cannot take the payment now.
    pub fn unavailable(&self, status: StatusCode, line: &str) -> Response {
        let shell = self.shell(self.visitor.text.unavailable_title, "unavailable");
        let page = ResultPage {
            order: Some(self.order(self.situation.asked)),
            next: Some((self.visitor.text.try_again, self.visitor.page())),
            back: self.back(OutcomeHint::Cancelled),
            ..ResultPage::saying(shell, line)
        };
        pages::respond(status, &page)
    }

    pub fn no_rate(&self) -> Response {
        let line = self.visitor.text.no_rate(&shown(self.situation.asked));
        self.unavailable(StatusCode::OK, &line)
    }

    /// The form for a code, with what was wrong with the one before.
    pub fn otp(
        &self,
        status: StatusCode,
        typed: &str,
        fault: Option<&'static str>,
    ) -> Result<Response, Error> {
        let text = self.visitor.text;
        let (hosted, charge) = self.charge()?;
        let is_retry = hosted.otp_tries > 0;
        let wrong = is_retry.then(|| text.code_wrong(hosted.otp_tries_left));
        let error = fault.map(str::to_owned).or(wrong);
        let mut shell = self.polling(text.code_title);
        shell.is_error = error.is_some();
        let page = OtpPage {
            shell,
            order: self.order(self.situation.asked),
            action: self.visitor.under("/code"),
            lead: text.code_for(
                name(charge.provider()),
                &shown(debit(charge)?),
                &unbroken(&hosted.payer_masked),
            ),
            said: hosted.instruction.as_deref(),
            reference: &charge.reference,
            typed,
            error,
            until: self.until(hosted)?,
            leave: self.visitor.wishing(Wish::Leave),
        };
        Ok(pages::respond(status, &page))
    }

    /// Until when a code is accepted; empty if that is not known.
    fn until(&self, hosted: &HostedCharge) -> Result<String, Error> {
        let text = self.visitor.text;
        let Some(until) = &hosted.otp_expires_at else {
            return Ok(String::new());
        };
        let until: Timestamp = until.parse().map_err(Error::internal)?;
        Ok(text.until(&text.moment(until)))
    }

    /// How to leave a payment that waits for its payer, who alone can end it.
    fn leave(&self) -> Result<Response, Error> {
        let text = self.visitor.text;
        let (hosted, charge) = self.charge()?;
        let line = match self.situation.state {
            PageState::Otp => self.until(hosted)?,
            _ => text.still_open(&shown(debit(charge)?)),
        };
        let page = ResultPage {
            order: Some(self.order(self.situation.asked)),
            facts: vec![(text.reference_label, charge.reference.clone())],
            next: Some((text.go_on, self.visitor.page())),
            back: self.back(OutcomeHint::Cancelled),
            ..ResultPage::saying(self.polling(text.open_title), &line)
        };
        Ok(pages::respond(StatusCode::OK, &page))
    }

    fn wait(&self, checkout: &Checkout) -> Result<Response, Error> {
        let text = self.visitor.text;
        let (hosted, charge) = self.charge()?;
        let slow = self.situation.state == PageState::Slow;
        let amount = shown(debit(charge)?);
        let lead = match slow {
            true => text.slow.to_owned(),
            false => text.prompt(
                &unbroken(&hosted.payer_masked),
                &amount,
                &self.merchant.name,
            ),
        };
        let title = if slow {
            text.slow_title
        } else {
            text.prompt_title
        };
        let since: Timestamp = charge.updated_at.parse().map_err(Error::internal)?;
        let waited = checkout.clock.now().since(since);
        let page = WaitPage {
            shell: self.polling(title),
            order: self.order(self.situation.asked),
            action: self.visitor.page(),
            lead,
            said: hosted.instruction.as_deref(),
            rescue: checkout.rescue.text(charge.provider(), text),
            reference: &charge.reference,
            slow,
            waited: waited.as_secs(),
            leave: self.visitor.wishing(Wish::Leave),
        };
        Ok(pages::respond(StatusCode::OK, &page))
    }

    fn success(&self) -> Result<Response, Error> {
        let text = self.visitor.text;
        let (hosted, charge) = self.charge()?;
        let settled_at: Timestamp = charge.updated_at.parse().map_err(Error::internal)?;
        let from = format!(
            "{} ({})",
            unbroken(&hosted.payer_masked),
            name(charge.provider())
        );
        let page = ResultPage {
            order: Some(self.order(self.situation.asked)),
            facts: vec![
                (text.amount_label, shown(debit(charge)?)),
                (text.from_label, from),
                (text.reference_label, charge.reference.clone()),
                (text.time_label, text.moment(settled_at)),
            ],
            back: self.back(OutcomeHint::Completed),
            lines: Vec::new(),
            next: None,
            shell: self.shell(text.success_title, PageState::Success.name()),
        };
        Ok(pages::respond(StatusCode::OK, &page))
    }

    fn failed(&self) -> Result<Response, Error> {
        let text = self.visitor.text;
        let (_, charge) = self.charge()?;
        let reason = charge.failure_reason.as_deref().unwrap_or_default();
        let (what, is_uncharged) = text.failure(reason);
        let about_money = if is_uncharged {
            text.not_charged
        } else {
            text.if_charged
        };
        let lines = [what, about_money].into_iter();
        let page = ResultPage {
            shell: self.shell(text.failed_title, PageState::Failed.name()),
            order: Some(self.order(self.situation.asked)),
            lines: lines.map(str::to_owned).collect(),
            facts: vec![(text.reference_label, charge.reference.clone())],
            next: Some((text.try_again, self.visitor.wishing(Wish::Again))),
            back: self.back(OutcomeHint::Failed),
        };
        Ok(pages::respond(StatusCode::OK, &page))
    }

    fn expired(&self) -> Response {
        let text = self.visitor.text;
        let line = text.expired(&text.moment(self.situation.expires_at));
        let shell = self.shell(text.expired_title, PageState::Expired.name());
        let page = ResultPage {
            order: Some(self.order(self.situation.asked)),
            back: self.back(OutcomeHint::Expired),
            ..ResultPage::saying(shell, &line)
        };
        pages::respond(StatusCode::OK, &page)
    }

    /// The form again, with how long to wait after too many tries.
    pub fn too_many(&self, quote: &Quote, form: Form, wait: Duration) -> Response {
        let minutes = wait.as_secs().div_ceil(60).max(1);
        let form = Form {
            notice: Some(self.visitor.text.too_many(minutes)),
            ..form
        };
        let mut response = self.form(StatusCode::TOO_MANY_REQUESTS, quote, &form);
        let seconds = http::HeaderValue::from(wait.as_secs());
        response
            .headers_mut()
            .insert(http::header::RETRY_AFTER, seconds);
        response
    }

    fn shell(&self, title: &'static str, state: &'static str) -> Shell {
        Shell::new(self.visitor, &self.merchant.name, title, state)
    }

    /// The frame of a page that polls whether it is out of date.
    fn polling(&self, title: &'static str) -> Shell {
        Shell {
            poll: Some(format!("/pay/{}/state", self.situation.id)),
            ..self.shell(title, self.situation.state.name())
        }
    }

    fn order(&self, amount: Money) -> Purchase {
        Purchase {
            merchant: self.merchant.name.clone(),
            amount: shown(amount),
            description: self.situation.session.description.clone(),
        }
    }

    fn back(&self, hint: OutcomeHint) -> Option<ReturnLink> {
        let redirect_url = self.situation.session.redirect_url.as_deref()?;
        ReturnLink::new(redirect_url, &self.situation.id.to_string(), hint)
    }

    fn charge(&self) -> Result<(&HostedCharge, &Charge), Error> {
        let hosted = self.situation.hosted.as_ref();
        hosted
            .and_then(|hosted| Some((hosted, hosted.charge.as_ref()?)))
            .ok_or(Error::internal(
                "a session without the charge that it tells of",
            ))
    }
}

fn debit(charge: &Charge) -> Result<Money, Error> {
    let amount = charge.amount.clone().unwrap_or_default();
    Money::try_from(&amount).map_err(Error::internal)
}

/// The network's name as payers know it; empty for one newer than this version.
fn name(provider: Provider) -> &'static str {
    match provider {
        Provider::Mtn => "MTN MoMo",
        Provider::Telecel => "Telecel Cash",
        Provider::At => "AT Money",
        Provider::Unspecified => "",
    }
}
