//! The credentials of our services at the rails.

#[derive(Clone, Debug)]
pub struct RailCredentials {
    pub momo_subscription_key: String,
    pub momo_api_user: String,
    pub momo_api_key: String,
    pub momo_disbursement_subscription_key: String,
    pub momo_disbursement_api_user: String,
    pub momo_disbursement_api_key: String,
    pub momo_target_environment: String,
    pub paystack_secret_key: String,
    pub paystack_callback_token: String,
    pub hubtel_api_id: String,
    pub hubtel_api_key: String,
    pub hubtel_pos_sales_id: String,
    pub hubtel_prepaid_deposit_id: String,
}

impl RailCredentials {
    /// Those of every world.
    pub fn simulated() -> Self {
        Self {
            momo_subscription_key: "simulated-subscription-key".to_owned(),
            momo_api_user: "6f9a1c54-1d6c-4a38-9a56-0b8a6c1f7a11".to_owned(),
            momo_api_key: "simulated-api-key".to_owned(),
            momo_disbursement_subscription_key: "simulated-disbursement-key".to_owned(),
            momo_disbursement_api_user: "0c3f2d6b-7b6e-4a55-8d0e-5f4d0a2b9c31".to_owned(),
            momo_disbursement_api_key: "simulated-disbursement-api-key".to_owned(),
            momo_target_environment: "mtnghana".to_owned(),
            paystack_secret_key: "sk_test_simulated".to_owned(),
            paystack_callback_token: "simulated-callbacks".to_owned(),
            hubtel_api_id: "simulated-api-id".to_owned(),
            hubtel_api_key: "simulated-hubtel-key".to_owned(),
            hubtel_pos_sales_id: "2017001".to_owned(),
            hubtel_prepaid_deposit_id: "2017002".to_owned(),
        }
    }

    /// The settings of charges-svc that have them.
    pub fn settings(&self) -> [(&'static str, &str); 13] {
        [
            ("momo-subscription-key", &self.momo_subscription_key),
            ("momo-api-user", &self.momo_api_user),
            ("momo-api-key", &self.momo_api_key),
            (
                "momo-disbursement-subscription-key",
                &self.momo_disbursement_subscription_key,
            ),
            (
                "momo-disbursement-api-user",
                &self.momo_disbursement_api_user,
            ),
            ("momo-disbursement-api-key", &self.momo_disbursement_api_key),
            ("momo-target-environment", &self.momo_target_environment),
            ("paystack-secret-key", &self.paystack_secret_key),
            ("paystack-callback-token", &self.paystack_callback_token),
            ("hubtel-api-id", &self.hubtel_api_id),
            ("hubtel-api-key", &self.hubtel_api_key),
            ("hubtel-pos-sales-id", &self.hubtel_pos_sales_id),
            ("hubtel-prepaid-deposit-id", &self.hubtel_prepaid_deposit_id),
        ]
    }
}
