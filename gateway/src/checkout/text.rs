//! Every word that a payer reads, in every language of the pages.
//!
//! A language is one value of [`Text`], so a missing phrase does not compile. `{}` stands for what
//! a page fills in. The words for each failure are in [`chassis::failure`].

use std::fmt::Display;

use chassis::failure::{AtCheckout, FailureReason};
use http::{HeaderMap, header::ACCEPT_LANGUAGE};

/// The phrases of one language.
#[derive(Debug)]
pub struct Text {
    /// BCP 47, for the page and for `?lang=`.
    pub code: &'static str,
    /// The language's name in itself.
    pub name: &'static str,
    pub error: &'static str,
    pub problem: &'static str,
    pub no_pin: &'static str,
    help: &'static str,
    to: &'static str,
    pub pay_title: &'static str,
    pay: &'static str,
    pub sending: &'static str,
    pub network: &'static str,
    pub number: &'static str,
    pub other_number: &'static str,
    pub other_number_label: &'static str,
    pub number_hint: &'static str,
    pub choose_network: &'static str,
    pub enter_number: &'static str,
    pub wrong_number_form: &'static str,
    rate: &'static str,
    pub rate_changed: &'static str,
    pub nothing_sent: &'static str,
    too_many: &'static str,
    too_many_looks: &'static str,
    ends: &'static str,
    pub cancel: &'static str,
    pub code_title: &'static str,
    code_for: &'static str,
    pub code_label: &'static str,
    pub submit_code: &'static str,
    pub checking: &'static str,
    pub code_missing: &'static str,
    code_wrong: &'static str,
    pub code_not_sent: &'static str,
    pub no_code: &'static str,
    pub no_code_help: &'static str,
    until: &'static str,
    reference: &'static str,
    pub prompt_title: &'static str,
    prompt: &'static str,
    pub slow_title: &'static str,
    pub slow: &'static str,
    pub still_waiting: &'static str,
    pub offline: &'static str,
    pub stopped: &'static str,
    pub check_now: &'static str,
    pub no_prompt: &'static str,
    rescue_mtn: &'static str,
    rescue_telecel: &'static str,
    rescue_at: &'static str,
    pub wrong_number: &'static str,
    pub cancel_waiting: &'static str,
    pub change_payer: &'static str,
    pub open_title: &'static str,
    still_open: &'static str,
    pub go_on: &'static str,
    pub copy: &'static str,
    pub copied: &'static str,
    pub may_close: &'static str,
    pub may_close_paid: &'static str,
    pub success_title: &'static str,
    pub amount_label: &'static str,
    pub from_label: &'static str,
    pub reference_label: &'static str,
    pub time_label: &'static str,
    go_back: &'static str,
    pub returning: &'static str,
    pub stay: &'static str,
    pub print: &'static str,
    pub failed_title: &'static str,
    pub not_charged: &'static str,
    pub if_charged: &'static str,
    pub try_again: &'static str,
    /// Picks this language's words for a failure.
    failure: fn(AtCheckout) -> &'static str,
    pub expired_title: &'static str,
    expired: &'static str,
    pub unavailable_title: &'static str,
    pub not_accepting: &'static str,
    no_rate: &'static str,
    pub trouble: &'static str,
    pub unknown_title: &'static str,
    pub unknown: &'static str,
    pub refused_title: &'static str,
    pub refused: &'static str,
    months: [&'static str; 12],
}

pub static ENGLISH: Text = Text {
    code: "en",
    name: "English",
    error: "Error:",
    problem: "There is a problem",
    no_pin: "We never ask for your mobile money PIN on this page. Enter it only on your phone.",
    help: "Questions about what you are paying for? Contact {}.",
    to: "to {}",
    pay_title: "Pay with mobile money",
    pay: "Pay {}",
    sending: "Sending prompt…",
    network: "Choose your network",
    number: "Mobile money number",
    other_number: "Use another number",
    other_number_label: "The other number",
    number_hint: "For example 024\u{a0}123\u{a0}4567",
    choose_network: "Choose the network of your number",
    enter_number: "Enter your mobile money number",
    wrong_number_form: "Enter a Ghana mobile number, such as 024\u{a0}123\u{a0}4567",
    rate: "{0} is charged as {1}. Rate:\u{a0}{2}.",
    rate_changed: "The exchange rate has changed. Check the new amount and pay again. Nothing was charged.",
    nothing_sent: "The payment could not be sent just now. Nothing was charged. Try again.",
    too_many: "Too many tries. Nothing was charged. Try again in {} min.",
    too_many_looks: "Too many tries from your connection. If you approved a payment on your phone, you do not need to pay again. Load this page again in {} min.",
    ends: "This link can be paid until {}.",
    cancel: "Cancel and return",
    code_title: "Enter your code",
    code_for: "{0} needs a code to take {1} from {2}.",
    code_label: "Code",
    submit_code: "Submit code",
    checking: "Checking code…",
    code_missing: "Enter the code: letters and digits, without spaces",
    code_wrong: "The last code was not accepted. Tries left:\u{a0}{}.",
    code_not_sent: "The code could not be sent just now. Submit it again.",
    no_code: "I did not get a code",
    no_code_help: "Check that the phone is on and has signal, and follow what the network says above.",
    until: "You can enter a code until {}. After that, you can pay again with another number or network.",
    reference: "Reference: {}",
    prompt_title: "Check your phone",
    prompt: "Enter your PIN on the phone {0} to approve {1} to {2}.",
    slow_title: "Still waiting",
    slow: "If you approved on your phone, you do not need to pay again. We are waiting for the network.",
    still_waiting: "Waiting for your approval.",
    offline: "No connection. Your payment is safe; we will check again.",
    stopped: "This page has stopped checking by itself. Use “Check now”.",
    check_now: "Check now",
    no_prompt: "Did not get a prompt?",
    rescue_mtn: "Dial *170#, choose My Wallet, then My Approvals. Enter your PIN and approve the payment.",
    rescue_telecel: "Check that the phone is on and has signal. For help from Telecel Cash, dial *110#.",
    rescue_at: "Check that the phone is on and has signal. For help from AT Money, dial *110#.",
    wrong_number: "Wrong number or network? A prompt cannot be called back. Decline it or let it run out; then you can pay again here.",
    cancel_waiting: "Cancel waiting",
    change_payer: "Use another number or network",
    open_title: "This payment is still open",
    still_open: "A prompt cannot be called back. To stop the payment, decline it on the phone or let it run out. If you approve it, you pay {}. Once the network has ended it, you can pay again here with another number or network.",
    go_on: "Back to the payment",
    copy: "Copy reference",
    copied: "Copied",
    may_close: "You can close this page. The shop is told when you have paid.",
    may_close_paid: "You can close this page.",
    success_title: "Payment complete",
    amount_label: "Amount",
    from_label: "From",
    reference_label: "Reference",
    time_label: "Time",
    go_back: "Return to {}",
    returning: "You will be returned in 5 seconds.",
    stay: "Stay on this page",
    print: "Print or save receipt",
    failed_title: "Payment not completed",
    not_charged: "You were not charged.",
    if_charged: "If money left your wallet, contact the shop with the reference.",
    try_again: "Try again",
    failure: |words| words.english,
    expired_title: "This link has ended",
    expired: "This link ended on {}. Ask the shop for a new one.",
    unavailable_title: "Not available right now",
    not_accepting: "This shop cannot take payments right now. It is not because of you; try again later.",
    no_rate: "{} cannot be paid with mobile money yet, because there is no exchange rate for it. Nothing was charged.",
    trouble: "Something does not work on our side. If you approved a payment on your phone, you do not need to pay again. Load this page again in a moment.",
    unknown_title: "Page not found",
    unknown: "There is no payment at this address. Check the link, or ask the shop for a new one.",
    refused_title: "Not accepted",
    refused: "This form did not come from our page, so nothing was done. Open the payment link and try again.",
    months: [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ],
};

/// Twi (Akan, Asante). A native speaker must proofread it before it goes live.
pub static TWI: Text = Text {
    code: "tw",
    name: "Twi",
    error: "Mfomsoɔ:",
    problem: "Ɔhaw bi wɔ hɔ",
    no_pin: "Yɛmmisa wo mobile money PIN wɔ kratafa yi so da. Fa hyɛ wo fon so nko ara.",
    help: "Wowɔ asɛmmisa fa deɛ woretua ho a, frɛ {}.",
    to: "kɔ {}",
    pay_title: "Fa mobile money tua",
    pay: "Tua {}",
    sending: "Yɛresoma…",
    network: "Yi wo network",
    number: "Mobile money nɔma",
    other_number: "Fa nɔma foforɔ di dwuma",
    other_number_label: "Nɔma foforɔ no",
    number_hint: "Te sɛ 024\u{a0}123\u{a0}4567",
    choose_network: "Yi network a wo nɔma no wɔ so",
    enter_number: "Kyerɛw wo mobile money nɔma",
    wrong_number_form: "Kyerɛw Ghana mobile nɔma, te sɛ 024\u{a0}123\u{a0}4567",
    rate: "{0} yɛ {1}. Sesa boɔ:\u{a0}{2}.",
    rate_changed: "Sesa boɔ no asesa. Hwɛ boɔ foforɔ no na san tua. Yɛnnyee sika biara.",
    nothing_sent: "Yɛantumi ansoma seesei. Yɛnnyee sika biara. San sɔ hwɛ.",
    too_many: "Woasɔ ahwɛ mpɛn dodoɔ. Yɛnnyee sika biara. San sɔ hwɛ wɔ simma {} mu.",
    too_many_looks: "Woasɔ ahwɛ mpɛn dodoɔ. Sɛ woapene so wɔ wo fon so a, ɛnhia sɛ wotua bio. San bue kratafa yi wɔ simma {} mu.",
    ends: "Wobɛtumi atua wɔ ha kɔpem {}.",
    cancel: "Gyae na san kɔ",
    code_title: "Kyerɛw wo code",
    code_for: "{0} hia code ansa na agye {1} afiri {2}.",
    code_label: "Code",
    submit_code: "Soma code no",
    checking: "Yɛrehwɛ code no…",
    code_missing: "Kyerɛw code no: nkyerɛwdeɛ ne nɔma, a ɔkwan nna mu",
    code_wrong: "Code a ɛtwa toɔ no nyɛ. Mpɛn a aka:\u{a0}{}.",
    code_not_sent: "Yɛantumi ansoma code no seesei. San soma bio.",
    no_code: "Mennyaa code",
    no_code_help: "Hwɛ sɛ fon no asɔ na network wɔ so, na di deɛ network no aka wɔ soro hɔ no akyi.",
    until: "Wobɛtumi akyerɛw code kɔpem {}. Ɛno akyi no, wobɛtumi de nɔma anaa network foforɔ atua.",
    reference: "Nkyerɛkyerɛ nɔma: {}",
    prompt_title: "Hwɛ wo fon so",
    prompt: "Kyerɛw wo PIN wɔ fon {0} so na penee {1} so kɔma {2}.",
    slow_title: "Yɛda so retwɛn",
    slow: "Sɛ woapene so wɔ wo fon so a, ɛnhia sɛ wotua bio. Yɛretwɛn network no.",
    still_waiting: "Yɛretwɛn sɛ wobɛpene so.",
    offline: "Intanɛt nni hɔ. Wo sika yɛ dwoodwoo; yɛbɛsan ahwɛ.",
    stopped: "Kratafa yi agyae hwɛ. Mia “Hwɛ seesei”.",
    check_now: "Hwɛ seesei",
    no_prompt: "Woannya nkra wɔ fon so?",
    rescue_mtn: "Frɛ *170#, yi My Wallet, afei My Approvals. Kyerɛw wo PIN na penee so.",
    rescue_telecel: "Hwɛ sɛ fon no asɔ na network wɔ so. Telecel Cash mmoa: frɛ *110#.",
    rescue_at: "Hwɛ sɛ fon no asɔ na network wɔ so. AT Money mmoa: frɛ *110#.",
    wrong_number: "Nɔma anaa network no nyɛ deɛ ɛfata? Yɛntumi nsan nkɔfa nkra no. Po, anaa ma ne berɛ ntwam; afei wobɛtumi atua wɔ ha bio.",
    cancel_waiting: "Gyae twɛn",
    change_payer: "Fa nɔma anaa network foforɔ",
    open_title: "Ntua yi nkɔɔ awieeɛ",
    still_open: "Yɛntumi nsan nkɔfa nkra no. Sɛ wopɛ sɛ wogyae a, po wɔ fon no so anaa ma ne berɛ ntwam. Sɛ wopene so a, wotua {}. Sɛ network no wie a, wobɛtumi de nɔma anaa network foforɔ atua wɔ ha.",
    go_on: "San kɔ ntua no so",
    copy: "Kɔpi nkyerɛkyerɛ nɔma no",
    copied: "Wɔakɔpi",
    may_close: "Wobɛtumi ato kratafa yi mu. Sɛ wotua wie a, yɛbɛka akyerɛ dwadifoɔ no.",
    may_close_paid: "Wobɛtumi ato kratafa yi mu.",
    success_title: "Woatua awie",
    amount_label: "Sika dodoɔ",
    from_label: "Firi",
    reference_label: "Nkyerɛkyerɛ nɔma",
    time_label: "Berɛ",
    go_back: "San kɔ {}",
    returning: "Yɛde wo bɛsan akɔ wɔ sɛkɛn 5 mu.",
    stay: "Tena ha",
    print: "Print anaa kora receipt no",
    failed_title: "Ntua no ankɔ so",
    not_charged: "Yɛannye sika biara amfiri wo hɔ.",
    if_charged: "Sɛ sika firii wo wallet mu a, fa nkyerɛkyerɛ nɔma no frɛ dwadifoɔ no.",
    try_again: "San sɔ hwɛ",
    failure: |words| words.twi,
    expired_title: "Link yi aba awieeɛ",
    expired: "Link yi baa awieeɛ {}. Bisa dwadifoɔ no foforɔ.",
    unavailable_title: "Ɛnyɛ adwuma seesei",
    not_accepting: "Dwadifoɔ yi ntumi nnye sika seesei. Ɛmfiri wo; san sɔ hwɛ akyire.",
    no_rate: "Yɛntumi mfa mobile money ntua {} seesei, ɛfiri sɛ sesa boɔ nni hɔ. Yɛnnyee sika biara.",
    trouble: "Biribi nkɔ yie wɔ yɛn hɔ. Sɛ woapene so wɔ wo fon so a, ɛnhia sɛ wotua bio. San bue kratafa yi akyire kakra.",
    unknown_title: "Yɛanhu kratafa no",
    unknown: "Ntua biara nni address yi so. Hwɛ link no, anaa bisa dwadifoɔ no foforɔ.",
    refused_title: "Yɛannye",
    refused: "Form yi amfiri yɛn kratafa so, enti yɛanyɛ hwee. Bue link no na san sɔ hwɛ.",
    months: [
        "Ɔpɛpɔn",
        "Ɔgyefoɔ",
        "Ɔbɛnem",
        "Oforisuo",
        "Kotonimaa",
        "Ayɛwohomumɔ",
        "Kitawonsa",
        "Ɔsanaa",
        "Ɛbɔ",
        "Ahinime",
        "Obubuo",
        "Ɔpɛnimaa",
    ],
};

/// Sorted by code.
pub const LANGUAGES: [&Text; 2] = [&ENGLISH, &TWI];

/// The language with this code. Akan counts as Twi.
pub fn by_code(code: &str) -> Option<&'static Text> {
    let primary = code.split(['-', '_']).next().unwrap_or_default();
    let primary = primary.trim().to_ascii_lowercase();
    let primary = if primary == "ak" { "tw" } else { &primary };
    LANGUAGES.into_iter().find(|text| text.code == primary)
}

/// The first language in Accept-Language that we speak, or English. Browsers name the preferred one
/// first.
pub fn preferred(headers: &HeaderMap) -> &'static Text {
    let accepted = headers.get(ACCEPT_LANGUAGE);
    let accepted = accepted.and_then(|value| value.to_str().ok());
    accepted
        .unwrap_or_default()
        .split(',')
        .find_map(|entry| by_code(entry.split(';').next().unwrap_or_default()))
        .unwrap_or(&ENGLISH)
}

/// The phrase with `{}` replaced.
fn fill(phrase: &str, value: &dyn Display) -> String {
    phrase.replace("{}", &value.to_string())
}

/// The phrase with `{0}`, `{1}`, … replaced, in one pass because a value may contain braces.
fn fill_all(phrase: &str, values: &[&str]) -> String {
    let mut parts = phrase.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (index, rest) = part.split_once('}').unwrap_or((part, ""));
        let value = index
            .parse()
            .ok()
            .and_then(|index: usize| values.get(index));
        filled.push_str(value.copied().unwrap_or_default());
        filled.push_str(rest);
    }
    filled
}

impl Text {
    /// The language to offer instead.
    pub fn other(&self) -> &'static Text {
        if self.code == ENGLISH.code {
            return &TWI;
        }
        &ENGLISH
    }

    pub fn help(&self, merchant: &str) -> String {
        fill(self.help, &merchant)
    }

    pub fn to(&self, merchant: &str) -> String {
        fill(self.to, &merchant)
    }

    pub fn pay(&self, amount: &str) -> String {
        fill(self.pay, &amount)
    }

    pub fn rate(&self, asked: &str, debited: &str, rate: &str) -> String {
        fill_all(self.rate, &[asked, debited, rate])
    }

    pub fn too_many(&self, minutes: u64) -> String {
        fill(self.too_many, &minutes)
    }

    /// Says nothing about charges, because the session is not looked up.
    pub fn too_many_looks(&self, minutes: u64) -> String {
        fill(self.too_many_looks, &minutes)
    }

    pub fn ends(&self, at: &str) -> String {
        fill(self.ends, &at)
    }

    pub fn code_for(&self, network: &str, amount: &str, number: &str) -> String {
        fill_all(self.code_for, &[network, amount, number])
    }

    pub fn code_wrong(&self, tries_left: u32) -> String {
        fill(self.code_wrong, &tries_left)
    }

    pub fn until(&self, at: &str) -> String {
        fill(self.until, &at)
    }

    pub fn reference(&self, reference: &str) -> String {
        fill(self.reference, &reference)
    }

    pub fn prompt(&self, number: &str, amount: &str, merchant: &str) -> String {
        fill_all(self.prompt, &[number, amount, merchant])
    }

    /// Where to approve if no prompt shows up, unless the operator says otherwise.
    pub fn rescue(&self, provider: proto::charges::Provider) -> &'static str {
        use proto::charges::Provider;
        match provider {
            Provider::Mtn => self.rescue_mtn,
            Provider::Telecel => self.rescue_telecel,
            Provider::At | Provider::Unspecified => self.rescue_at,
        }
    }

    pub fn still_open(&self, amount: &str) -> String {
        fill(self.still_open, &amount)
    }

    pub fn go_back(&self, host: &str) -> String {
        fill(self.go_back, &host)
    }

    pub fn expired(&self, at: &str) -> String {
        fill(self.expired, &at)
    }

    pub fn no_rate(&self, amount: &str) -> String {
        fill(self.no_rate, &amount)
    }

    /// What happened, and whether it is certain that nothing was debited. A reason newer than this
    /// version counts as `RAIL_ERROR`.
    pub fn failure(&self, reason: &str) -> (&'static str, bool) {
        let reason = reason.parse().unwrap_or(FailureReason::RailError);
        let words = reason.at_checkout();
        ((self.failure)(words), words.is_uncharged)
    }

    /// `3 May 2026, 14:05 GMT`; Ghana's time is GMT.
    pub fn moment(&self, at: chassis::clock::Timestamp) -> String {
        let at = at.datetime();
        let month = usize::from(u8::from(at.month()));
        let month = self.months.get(month - 1).copied().unwrap_or_default();
        let (day, year) = (at.day(), at.year());
        format!(
            "{day} {month} {year}, {:02}:{:02}\u{a0}GMT",
            at.hour(),
            at.minute()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(value: &'static str) -> &'static str {
        let headers = [(ACCEPT_LANGUAGE, http::HeaderValue::from_static(value))];
        preferred(&headers.into_iter().collect()).code
    }

    #[test]
    fn the_first_language_that_we_speak_is_chosen() {
        assert_eq!(accepts("tw"), "tw");
        assert_eq!(accepts("fr, ak-GH;q=0.9, en;q=0.8"), "tw");
        assert_eq!(accepts("en-GB,tw;q=0.5"), "en");
        assert_eq!(accepts("fr"), "en");
        assert_eq!(preferred(&HeaderMap::new()).code, "en");
    }

    #[test]
    fn only_a_networks_own_word_says_that_nobody_was_charged() {
        for (reason, is_certain) in [
            ("INSUFFICIENT_FUNDS", true),
            ("PAYER_DECLINED", true),
            ("RAIL_CONFIGURATION", true),
            ("PAYER_TIMEOUT", false),
            ("OTP_EXPIRED", false),
            ("OTP_ATTEMPTS_EXCEEDED", false),
            ("RAIL_UNAVAILABLE", false),
            ("RAIL_ERROR", false),
            ("SOMETHING_NEW", false),
        ] {
            for text in [&ENGLISH, &TWI] {
                assert_eq!(text.failure(reason).1, is_certain, "{reason}");
            }
        }
    }

    #[test]
    fn what_is_filled_in_is_not_read_again() {
        assert_eq!(fill_all("{0} to {1}.", &["{1}", "B"]), "{1} to B.");
        assert_eq!(ENGLISH.to("{}"), "to {}");
    }
}
