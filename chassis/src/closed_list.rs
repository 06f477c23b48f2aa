//! A closed list of values: the enum, its codes and its parser, written once.

/// A text that is none of the list's codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not {0}")]
pub struct UnknownCode(pub &'static str);

/// Counts a stored value that this version does not know, such as one that a newer version wrote
/// before it was rolled back. Whoever reads it leaves it out and goes on.
pub fn count_unknown(column: &str) {
    tracing::warn!(column, "a stored value is not known to this version");
    metrics::counter!("unknown_values_total", "column" => column.to_owned()).increment(1);
}

/// Declares an enum together with the codes that stand for it in SQL, JSON, metrics and logs.
///
/// ```
/// chassis::closed_list! {
///     /// How an order stands.
///     pub enum OrderStatus: "an order's status" {
///         /// Nobody has paid.
///         Open = "OPEN",
///         Paid = "PAID",
///     }
/// }
///
/// assert_eq!(OrderStatus::Open.code(), "OPEN");
/// assert_eq!("PAID".parse(), Ok(OrderStatus::Paid));
/// assert_eq!(OrderStatus::ALL, [OrderStatus::Open, OrderStatus::Paid]);
/// let error = "LOST".parse::<OrderStatus>().unwrap_err();
/// assert_eq!(error.to_string(), "not an order's status");
/// ```
///
/// Where it is a column as well, follow it with [`text_column!`](crate::text_column).
#[macro_export]
macro_rules! closed_list {
    (
        $(#[$list_doc:meta])*
        $visibility:vis enum $name:ident: $what:literal {
            $( $(#[$doc:meta])* $variant:ident = $code:literal, )+
        }
    ) => {
        $(#[$list_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $visibility enum $name { $( $(#[$doc])* $variant, )+ }

        impl $name {
            /// Every value, in the order of its declaration.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// What a text or a value that is none of them is refused with.
            pub const UNKNOWN: $crate::closed_list::UnknownCode =
                $crate::closed_list::UnknownCode($what);

            /// Its code in SQL, JSON, metrics and logs.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)+ }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.code())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::closed_list::UnknownCode;

            fn from_str(code: &str) -> Result<Self, Self::Err> {
                match code {
                    $($code => Ok(Self::$variant),)+
                    _ => Err(Self::UNKNOWN),
                }
            }
        }
    };
}

/// Converts a closed list into its enum of the contracts and back. Whichever has a value that the
/// other lacks does not compile; those after `hidden` are never sent.
///
/// ```ignore
/// chassis::proto_list! { OrderStatus = proto::orders::OrderStatus { Open, Paid } }
/// ```
#[macro_export]
macro_rules! proto_list {
    ($list:ty = $proto:ty { $($variant:ident),+ $(,)? } $(hidden { $($hidden:ident),+ })?) => {
        impl From<$list> for $proto {
            fn from(value: $list) -> Self {
                match value {
                    $(<$list>::$variant => Self::$variant,)+
                    $($(<$list>::$hidden => Self::Unspecified,)+)?
                }
            }
        }

        impl TryFrom<$proto> for $list {
            type Error = $crate::closed_list::UnknownCode;

            fn try_from(value: $proto) -> Result<Self, Self::Error> {
                match value {
                    $(<$proto>::$variant => Ok(Self::$variant),)+
                    <$proto>::Unspecified => Err(Self::UNKNOWN),
                }
            }
        }
    };
}
