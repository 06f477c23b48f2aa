//! Authenticators and recovery codes.

use chassis::testing::check_refusal;
use proto::merchants::{
    Action, BeginTotpRequest, ConfirmTotpRequest, EnterCodeRequest, LogInResponse,
    RenewRecoveryCodesRequest, confirm_request::Proof,
};
use ring::hmac;
use tonic::{Code, Response, Status};

use crate::browser::{Browser, MINUTE, OTHER_PASSWORD, PASSWORD, origin, sha256};

const AMA: &str = "ama@example.com";

/// An authenticator on somebody's phone, which knows only what it was shown.
struct Authenticator(Vec<u8>);

impl Authenticator {
    fn scan(base_32: &str) -> Self {
        let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
        let bits: String = base_32
            .chars()
            .map(|digit| format!("{:05b}", digits.find(digit).unwrap()))
            .collect();
        let bytes = bits.as_bytes().chunks_exact(8);
        let byte = |bits| u8::from_str_radix(std::str::from_utf8(bits).unwrap(), 2).unwrap();
        Self(bytes.map(byte).collect())
    }

    fn code(&self, browser: &Browser) -> String {
        let step = browser.clock.now().unix_seconds() / 30;
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.0);
        let tag = hmac::sign(&key, &step.to_be_bytes());
        let offset = usize::from(tag.as_ref()[19] & 15);
        let bytes: [u8; 4] = tag.as_ref()[offset..offset + 4].try_into().unwrap();
        format!(
            "{:06}",
            (u32::from_be_bytes(bytes) & 0x7fff_ffff) % 1_000_000
        )
    }
}

impl Browser {
    async fn begin_totp(&mut self, person_id: &str) -> Authenticator {
        let request = BeginTotpRequest {
            person_id: person_id.to_owned(),
        };
        let begun = self.people.begin_totp(request).await.unwrap().into_inner();
        let start = "otpauth://totp/dash.test:ama%40example.com?secret=";
        assert!(begun.uri.starts_with(&format!("{start}{}", begun.secret)));
        Authenticator::scan(&begun.secret)
    }

    async fn confirm_totp(&mut self, person_id: &str, code: &str) -> Result<Vec<String>, Status> {
        let request = ConfirmTotpRequest {
            person_id: person_id.to_owned(),
            code: code.to_owned(),
            origin: origin(),
        };
        let confirmed = self.people.confirm_totp(request).await;
        confirmed.map(|confirmed| confirmed.into_inner().recovery_codes)
    }

    async fn enter_code(&mut self, token: &str, code: &str) -> Result<LogInResponse, Status> {
        let request = EnterCodeRequest {
            token_sha256: sha256(token),
            code: code.to_owned(),
            origin: origin(),
        };
        let entered = self.people.enter_code(request).await;
        entered.map(Response::into_inner)
    }

    /// The token of a login that waits for a code.
    async fn half_log_in(&self) -> String {
        let begun = self.try_log_in(AMA, PASSWORD).await.unwrap();
        assert!(begun.needs_code);
        begun.token
    }

    async fn sign_up_verified(&mut self) {
        self.sign_up(AMA).await;
        let token = self.mail.newest(AMA, 1).await.token("verify-email");
        self.verify_email(&token).await.unwrap();
    }

    /// Ama with an authenticator, a full login and recovery codes.
    async fn enrol(&mut self) -> (Authenticator, String, Vec<String>) {
        let (authenticator, token, codes, _) = self.enrol_by_code().await;
        (authenticator, token, codes)
    }

    /// As [`Self::enrol`], and the code that confirmed it.
    async fn enrol_by_code(&mut self) -> (Authenticator, String, Vec<String>, String) {
        self.sign_up_verified().await;
        let token = self.log_in(AMA).await;
        let person_id = self.person_id(&token).await;
        let authenticator = self.begin_totp(&person_id).await;
        let code = authenticator.code(self);
        let codes = self.confirm_totp(&person_id, &code).await.unwrap();
        assert_eq!(codes.len(), 10);
        (authenticator, token, codes, code)
    }
}

#[tokio::test]
async fn whoever_signs_up_with_anothers_address_cannot_lock_them_out() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    let token = browser.log_in(AMA).await;
    let person_id = browser.person_id(&token).await;
    let request = BeginTotpRequest { person_id };
    let refused = browser.people.begin_totp(request).await;
    check_refusal(refused, Code::FailedPrecondition, "EMAIL_NOT_VERIFIED");
    // The address's owner takes the account over by a mail.
    browser.ask_reset(AMA).await.unwrap();
    let reset = browser.mail.newest(AMA, 2).await.token("reset");
    browser.reset(&reset, OTHER_PASSWORD).await.unwrap();
    check_refusal(
        browser.who(&token).await,
        Code::Unauthenticated,
        "LOGIN_ENDED",
    );
    let begun = browser.try_log_in(AMA, OTHER_PASSWORD).await.unwrap();
    assert!(!begun.needs_code);
    // It was mailed, so the address is theirs.
    let login = browser.who(&begun.token).await.unwrap();
    assert!(login.person.unwrap().email_verified && login.merchant.unwrap().email_verified);
    let done = browser.activities(&begun.token).await;
    let verified = done
        .iter()
        .filter(|activity| activity.action() == Action::EmailVerified);
    assert_eq!(verified.count(), 1);
}

#[tokio::test]
async fn an_authenticator_counts_once_a_right_code_has_confirmed_it() {
    let mut browser = Browser::start().await;
    browser.sign_up_verified().await;
    let token = browser.log_in(AMA).await;
    let person_id = browser.person_id(&token).await;
    let refused = browser.confirm_totp(&person_id, "123456").await;
    check_refusal(refused, Code::NotFound, "TOTP_NOT_BEGUN");
    let first = browser.begin_totp(&person_id).await;
    let wrong = browser.confirm_totp(&person_id, "not one").await;
    check_refusal(wrong, Code::Unauthenticated, "WRONG_CODE");
    browser.log_in(AMA).await;
    let code = first.code(&browser);
    browser.confirm_totp(&person_id, &code).await.unwrap();
    let person = browser.who(&token).await.unwrap().person.unwrap();
    assert!(person.has_totp);
    assert_eq!(person.recovery_codes_left, 10);

    // Another one, which does not count yet.
    let second = browser.begin_totp(&person_id).await;
    browser.wait(MINUTE).await;
    let half = browser.half_log_in().await;
    let code = second.code(&browser);
    let refused = browser.enter_code(&half, &code).await;
    check_refusal(refused, Code::Unauthenticated, "WRONG_CODE");
    let code = first.code(&browser);
    browser.enter_code(&half, &code).await.unwrap();
    let code = second.code(&browser);
    browser.confirm_totp(&person_id, &code).await.unwrap();
    browser.wait(MINUTE).await;
    let half = browser.half_log_in().await;
    let code = first.code(&browser);
    let refused = browser.enter_code(&half, &code).await;
    check_refusal(refused, Code::Unauthenticated, "WRONG_CODE");
}

#[tokio::test]
async fn a_half_login_is_good_for_a_code_alone_and_its_token_dies_with_it() {
    let mut browser = Browser::start().await;
    let (authenticator, full, _) = browser.enrol().await;
    browser.wait(MINUTE).await;
    let half = browser.half_log_in().await;
    assert!(browser.who(&half).await.unwrap().needs_code);
    let proof = Proof::Password(PASSWORD.to_owned());
    let refused = browser.confirm(&half, proof).await;
    check_refusal(refused, Code::Unauthenticated, "LOGIN_ENDED");
    let code = authenticator.code(&browser);
    let refused = browser.enter_code(&full, &code).await;
    check_refusal(refused, Code::Unauthenticated, "LOGIN_ENDED");

    let entered = browser.enter_code(&half, &code).await.unwrap();
    assert!(!entered.needs_code && entered.token != half);
    assert!(!browser.who(&entered.token).await.unwrap().needs_code);
    let refused = browser.who(&half).await;
    check_refusal(refused, Code::Unauthenticated, "LOGIN_ENDED");
}

#[tokio::test]
async fn a_half_login_makes_no_browser_known() {
    let mut browser = Browser::start().await;
    let (authenticator, _, _) = browser.enrol().await;
    let half = browser.half_log_in().await;
    for _ in 0..5 {
        let refused = browser.try_log_in(AMA, "wrong").await;
        check_refusal(refused, Code::Unauthenticated, "WRONG_PASSWORD");
    }
    let paused = browser.try_log_in_after(&half, AMA, PASSWORD).await;
    check_refusal(paused, Code::ResourceExhausted, "TOO_MANY_TRIES");
    browser.wait(MINUTE).await;
    let code = authenticator.code(&browser);
    let whole = browser.enter_code(&half, &code).await.unwrap().token;
    let begun = browser.try_log_in_after(&whole, AMA, PASSWORD).await;
    assert!(begun.unwrap().needs_code);
}

#[tokio::test]
async fn each_code_is_taken_once() {
    let mut browser = Browser::start().await;
    let (authenticator, token, codes, used) = browser.enrol_by_code().await;
    let refused = browser.confirm(&token, Proof::Code(used)).await;
    check_refusal(refused, Code::Unauthenticated, "WRONG_CODE");
    browser.wait(MINUTE).await;
    let code = authenticator.code(&browser);
    let typed = format!(" {} {} ", &code[..3], &code[3..]);
    let confirmed = browser.confirm(&token, Proof::Code(typed)).await;
    confirmed.unwrap();
    let half = browser.half_log_in().await;
    let refused = browser.enter_code(&half, &code).await;
    check_refusal(refused, Code::Unauthenticated, "WRONG_CODE");

    browser.mail.newest(AMA, 2).await;
    let typed = codes[0].to_uppercase().replace('-', " ");
    browser.enter_code(&half, &typed).await.unwrap();
    let told = browser.mail.newest(AMA, 3).await;
    assert_eq!(told.header("Subject"), "A recovery code was used");
    let half = browser.half_log_in().await;
    let refused = browser.enter_code(&half, &codes[0]).await;
    check_refusal(refused, Code::Unauthenticated, "WRONG_CODE");
    let person = browser.who(&token).await.unwrap().person.unwrap();
    assert_eq!(person.recovery_codes_left, 9);

    let renew = RenewRecoveryCodesRequest {
        person_id: person.person_id,
        origin: origin(),
    };
    let renewed = browser.people.renew_recovery_codes(renew).await.unwrap();
    let refused = browser.enter_code(&half, &codes[1]).await;
    check_refusal(refused, Code::Unauthenticated, "WRONG_CODE");
    let new = &renewed.into_inner().recovery_codes[9];
    browser.enter_code(&half, new).await.unwrap();
}

/// However few are tried between pauses, and whatever right ones come between.
#[tokio::test]
async fn five_wrong_codes_are_told() {
    let mut browser = Browser::start().await;
    let (authenticator, token, _) = browser.enrol().await;
    let half = browser.half_log_in().await;
    for wrong in 1..=5 {
        browser.wait(5 * MINUTE).await;
        let refused = browser.enter_code(&half, "not one").await;
        check_refusal(refused, Code::Unauthenticated, "WRONG_CODE");
        let code = authenticator.code(&browser);
        browser.confirm(&token, Proof::Code(code)).await.unwrap();
        let done = browser.activities(&token).await;
        let told = done
            .iter()
            .filter(|activity| activity.action() == Action::WrongCodes);
        assert_eq!(told.count(), usize::from(wrong == 5), "{wrong}");
    }
    let told = browser.mail.newest(AMA, 3).await;
    let subject = "Wrong codes were entered for your account";
    assert_eq!(told.header("Subject"), subject);
}

#[tokio::test]
async fn five_wrong_codes_are_a_pause() {
    let mut browser = Browser::start().await;
    let (authenticator, token, _) = browser.enrol().await;
    let half = browser.half_log_in().await;
    for _ in 0..5 {
        let refused = browser.enter_code(&half, "not one").await;
        check_refusal(refused, Code::Unauthenticated, "WRONG_CODE");
    }
    browser.wait(4 * MINUTE).await;
    let code = authenticator.code(&browser);
    let paused = browser.enter_code(&half, &code).await;
    check_refusal(paused, Code::ResourceExhausted, "TOO_MANY_TRIES");
    let paused = browser.confirm(&token, Proof::Code(code)).await;
    check_refusal(paused, Code::ResourceExhausted, "TOO_MANY_TRIES");
    browser.wait(MINUTE).await;
    let code = authenticator.code(&browser);
    browser.enter_code(&half, &code).await.unwrap();
}

#[tokio::test]
async fn recovery_codes_need_an_authenticator() {
    let mut browser = Browser::start().await;
    browser.sign_up(AMA).await;
    let token = browser.log_in(AMA).await;
    let renew = RenewRecoveryCodesRequest {
        person_id: browser.person_id(&token).await,
        origin: origin(),
    };
    let refused = browser.people.renew_recovery_codes(renew).await;
    check_refusal(refused, Code::NotFound, "TOTP_NOT_BEGUN");
}
